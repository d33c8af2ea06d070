"""A broker that lets everybody in, the places of every kind where functions run, and what goes up to Salt masters.

A file whose master, gate or clock is another has one of its own of that name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.peers.broker import Broker, running_broker
from tests.peers.clock import HandClock
from tests.peers.database import opened_rooms
from tests.peers.host_places import KINDS, Beds, Place, place
from tests.peers.salt_sending import Sending
from tests.peers.salt_sockets import PlayedMaster
from tests.peers.salt_uplink_bed import SaltBed


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def host_beds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beds]:
    opened = Beds(tmp_path_factory.mktemp("beds"))
    yield opened
    opened.close()


@pytest.fixture(params=KINDS)
async def there(request: pytest.FixtureRequest, host_beds: Beds, tmp_path: Path) -> AsyncIterator[Place]:
    async with place(request.param, host_beds, tmp_path) as found:
        yield found


@pytest.fixture
def bed(tmp_path: Path) -> SaltBed:
    """An uplink to Salt masters, with what is above and below it played."""
    return SaltBed(tmp_path)


@pytest.fixture
async def master() -> AsyncIterator[PlayedMaster]:
    """A Salt master on real sockets, for that uplink."""
    async with PlayedMaster() as played:
        yield played


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def gate(tmp_path: Path, clock: HandClock) -> AsyncIterator[Sending]:
    """A gateway's store with whoever tells Salt masters what waits in it."""
    async with opened_rooms(tmp_path, clock=clock, masters=True) as rooms:
        found = Sending(rooms, clock)
        async with found.sender:
            yield found
