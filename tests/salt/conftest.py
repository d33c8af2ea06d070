"""Stock Salt masters, and which releases of them the tests are run with: `make salt`, or the short form of a commit.

A master is started once for each file and each release; what a test leaves at it concerns nobody else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.salt_master import SaltMaster
from tests.peers.salt_release import ASKED, MINUTES, releases_asked, stock_salt

HERE = Path(__file__).parent
SECONDS = 60 * MINUTES


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A release may have to be installed before the first, so none is hurried; a commit waits for the short ones."""
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        item.add_marker(pytest.mark.timeout(SECONDS))
        # Releases are apart: where there are several processes, each takes one ("make salt").
        if (called := getattr(item, "callspec", None)) is not None and "programs" in called.params:
            item.add_marker(pytest.mark.xdist_group(called.params["programs"]))
        if os.environ.get(ASKED) != "long" and item.get_closest_marker("short") is None:
            item.add_marker(pytest.mark.skip(reason=f'of the long form: try "make salt", or {ASKED}=long'))


@pytest.fixture(scope="module", params=releases_asked())
def programs(request: pytest.FixtureRequest) -> Path:
    """Where the programs of a release are. Skips where Salt cannot be had, unless it must."""
    return stock_salt(request.param)


@pytest.fixture(scope="module")
def master(programs: Path) -> Iterator[SaltMaster]:
    """A master that the tests of a file share."""
    with SaltMaster(programs) as started:
        yield started
