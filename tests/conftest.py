"""What every test shares."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes, or is drawn, says something about the machine and nothing about the code.
settings.register_profile("outstation", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("outstation")

# A shell has what it puts in the background ignore the one, nohup the other, and all that is started here inherits it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

HEAVY = ("tests/appliance/", "tests/salt/", "tests/system/", "tests/attacks/", "tests/promises/")
"""Each of these starts whole systems, or machines, and takes long."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where tests run in several processes, each takes the next file: what takes long does not come last."""
    items.sort(key=lambda item: not item.nodeid.startswith(HEAVY))
