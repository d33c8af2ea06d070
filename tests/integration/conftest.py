"""A broker that lets everybody in, and the places of every kind where functions run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.peers.broker import Broker, running_broker
from tests.peers.host_places import KINDS, Beds, Place, place


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
