"""A station's rooms with pillar, without any link: devices are put into its registry, and ask as its links let them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from device_agent.protocol.messages import Hello
from device_agent.protocol.pillar import ITEMS, PillarTold, PillarWanted
from gateway.config import StationSettings
from gateway.devices.pillar import Above
from gateway.kept_rooms import KeptRooms
from gateway.rooms import Role, Rooms
from tests.peers.clock import HandClock


class PillarSite:
    """The rooms, and devices that ask."""

    def __init__(self, rooms: Rooms, kept: KeptRooms, folder: Path, clock: HandClock) -> None:
        self.rooms = rooms
        self.kept = kept
        self.folder = folder
        self.clock = clock

    def hello(self, name: str, **grains: Any) -> None:
        """A device is here, with these grains."""
        self.rooms.registry.hello("mqtt", name, Hello("0" * 16, "test", {"id": name, **grains}))

    async def told(self, device: str, **wanted: Any) -> PillarTold:
        """What a device is told when it asks."""
        body = await self.kept.to_devices.ask(device, ITEMS, msgspec.msgpack.encode(PillarWanted(**wanted)))
        return msgspec.msgpack.decode(body, type=PillarTold)

    async def pillar(self, device: str, **wanted: Any) -> dict[Any, Any]:
        """A device's pillar, as it is told."""
        return (await self.told(device, **wanted)).value()

    def counted(self, name: str) -> int:
        """A counter of the station."""
        return self.rooms.metrics.counters[name]


def write_tree(folder: Path, files: dict[str, str]) -> Path:
    """Put files below a folder."""
    for path, text in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return folder


@asynccontextmanager
async def pillar_site(
    folder: Path,
    *,
    role: Role = "gateway",
    name: str = "lisbon",
    above: Callable[[], Above | None] | None = None,
    **settings: Any,
) -> AsyncIterator[PillarSite]:
    """Rooms with these settings, for as long as the block lasts."""
    state, clock = folder / f"state-{name}", HandClock()
    state.mkdir(parents=True, exist_ok=True)
    told = msgspec.convert({"name": name, **settings}, StationSettings)
    rooms = Rooms(role, told, state, clock)
    kept = KeptRooms(rooms, told, state, clock)
    if above is not None:
        kept.pillars.above = above
    async with AsyncExitStack() as stack:
        for part in [*rooms.parts_before_recovery(), *kept.parts()]:
            await stack.enter_async_context(part)
        yield PillarSite(rooms, kept, state, clock)
