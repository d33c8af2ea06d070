"""A whole system for each test that asks for one, and systems that the tests of a file share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers.system import System, one_site, whole_system

DEVICES = 50


@pytest.fixture
def system() -> Iterator[System]:
    with whole_system() as started:
        yield started


@pytest.fixture(scope="module")
def shared() -> Iterator[System]:
    with one_site(DEVICES) as started:
        yield started


@pytest.fixture
def site(shared: System) -> System:
    """A master and a site with fifty devices, all up, with nothing on its way."""
    return all_up(shared)


@pytest.fixture(scope="module")
def shared_beside_a_broker() -> Iterator[System]:
    with whole_system() as started:
        started.add_master()
        started.add_gateway("lisbon", "central", broker=started.add_broker())
        started.join("lisbon")
        started.add_swarm(DEVICES, "lisbon")
        yield started


@pytest.fixture
def beside_a_broker(shared_beside_a_broker: System) -> System:
    """The same with a broker that stands beside the gateway, so that devices stay connected while that is away."""
    return all_up(shared_beside_a_broker)


def all_up(started: System) -> System:
    for station in ("central", "lisbon"):
        if station not in started.children:
            started.restart(station)
    started.connected("lisbon")
    started.until(lambda: cameras_here(started) == DEVICES, "every device is here")
    started.until(lambda: started.view("lisbon")["spool_pending"] == 0, "the spool is empty")
    return started


def cameras_here(started: System) -> int:
    return sum(each["present"] for each in started.view("central", "/devices?tgt=cam-*")["devices"])


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
