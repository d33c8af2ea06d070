"""A whole system for each test that asks for one, and a small one for those that only ask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers.system import System, whole_system


@pytest.fixture
def system() -> Iterator[System]:
    with whole_system() as started:
        yield started


@pytest.fixture(scope="module")
def one_door() -> Iterator[System]:
    """A master, a site, and one real agent."""
    with whole_system() as started:
        started.add_master()
        started.add_gateway("lisbon", "central")
        started.join("lisbon")
        started.add_agent("door-1", "lisbon")
        started.present(1)
        yield started
