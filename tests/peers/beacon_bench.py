"""A beacon on this machine, as an agent runs it, and what it fired."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from device_agent import loader
from device_agent.beacons.beacons import Beacons, FromPillar
from device_agent.beacons.kinds import begun
from device_agent.beacons.port import Around, Beacon
from device_agent.clock import Clock
from device_agent.ended import Ended
from device_agent.local_host import LocalHost
from device_agent.own import NoCustom, Own
from device_agent.pillar import HeldPillar
from tests.peers.function_case import PillarStation

NAME = "cam-1"


class Kept:
    """Keeps events in memory; ``fails`` is raised instead."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.fails: Exception | None = None

    async def fire(self, device: str, tag: str, data: dict[str, Any], *, local: bool = False) -> None:
        if self.fails is not None:
            raise self.fails
        assert device == NAME
        self.events.append((tag, dict(data)))

    def of(self, beacon: str) -> list[dict[str, Any]]:
        """The data of what one beacon fired."""
        return [data for tag, data in self.events if tag.startswith(f"salt/beacon/{NAME}/{beacon}/")]


def around(clock: Clock | None = None, folder: Path = Path("/nonexistent"), **folders: Path) -> Around:
    """This machine, or folders that stand for its kernel's."""
    host = LocalHost({"id": NAME})
    return Around(host, clock or Clock(), partial(_called, host), NoCustom(), folder, **folders)


async def _called(host: LocalHost, fun: str, given: dict[str, Any]) -> Ended:
    return await loader.call(fun, host, [], given, Own())


def made(name: str, data: Any) -> Beacon:
    """A beacon that has not looked yet."""
    return begun(name, data).beacon


async def looked(name: str, data: Any, clock: Clock | None = None, **folders: Path) -> list[dict[str, Any]]:
    """What a beacon finds at its first look."""
    beacon = made(name, data)
    try:
        return [each.data for each in await beacon.look(around(clock, **folders))]
    finally:
        await beacon.close()


class Bench:
    """The beacons of a device that run, without an agent around them."""

    def __init__(
        self, folder: Path, settings: dict[str, Any], *, from_pillar: FromPillar = "none", clock: Clock | None = None
    ) -> None:
        self.kept = Kept()
        self.counted: list[tuple[str, str]] = []
        self.station = PillarStation()
        self.beacons = Beacons(
            settings,
            folder,
            from_pillar=from_pillar,
            host=LocalHost({"id": NAME}),
            clock=clock or Clock(),
            count=lambda reason, detail, device: self.counted.append((reason, detail)),
        )
        self.own = Own(station=self.station, pillar=HeldPillar(self.station), events=self.kept, beacons=self.beacons)

    async def call(self, fun: str, *arg: Any, **kwarg: Any) -> Any:
        """The value of a function of the device."""
        ended = await loader.call(f"beacons.{fun}", LocalHost({"id": NAME}), list(arg), kwarg, self.own)
        assert ended.outcome == "ok", ended
        return ended.value

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The beacons run inside."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.beacons.run(self.own))
            try:
                yield
            finally:
                task.cancel()
