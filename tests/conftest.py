"""What every test shares."""

from __future__ import annotations

import pytest
from hypothesis import settings

# How long an example takes says something about the machine and nothing about the code.
settings.register_profile("outstation", deadline=None, print_blob=True)
settings.load_profile("outstation")

HEAVY = ("tests/system/", "tests/attacks/", "tests/promises/")
"""Each of these starts whole systems: one at a time, while the others run beside them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where tests run in several processes, those of one file stay together, and the heavy ones in one process."""
    for item in items:
        file = item.nodeid.partition("::")[0]
        group = "heavy" if file.startswith(HEAVY) else file
        item.add_marker(pytest.mark.xdist_group(group))
