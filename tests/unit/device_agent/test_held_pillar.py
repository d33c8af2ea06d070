"""A device asks for its pillar once, whoever needs it, and tells those who live by it when it is another."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from device_agent.ended import FunctionFailed
from device_agent.pillar import HeldPillar
from device_agent.protocol.pillar import PillarTold
from device_agent.questions import Unanswered


class Station:
    """Gives a pillar, or none."""

    def __init__(self) -> None:
        self.pillar: dict[str, Any] | None = {"a": 1}
        self.asked = 0

    async def ask(self, about: str, body: bytes = b"", *, patience: float = 0.0) -> bytes:
        self.asked += 1
        await asyncio.sleep(0)
        if self.pillar is None:
            raise Unanswered("nobody is there")
        return msgspec.msgpack.encode(PillarTold(msgspec.msgpack.encode(self.pillar)))


async def test_all_who_wait_for_it_ask_once() -> None:
    station = Station()
    pillar = HeldPillar(station)
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(pillar.load()) for _ in range(5)]
    assert [task.result() for task in asked] == [{"a": 1}] * 5
    assert station.asked == 1


async def test_another_one_is_told_and_the_same_is_not() -> None:
    station = Station()
    pillar = HeldPillar(station)
    told: list[Any] = []
    pillar.on_change(lambda: told.append(dict(pillar.held)))
    await pillar.load()
    await pillar.refresh()
    station.pillar = {"a": 2}
    await pillar.refresh()
    station.pillar = None
    with pytest.raises(FunctionFailed):
        await pillar.refresh()
    assert told == [{"a": 1}, {"a": 2}]
    assert pillar.held == {"a": 2}


async def test_who_asks_after_a_failure_asks_again() -> None:
    station = Station()
    station.pillar = None
    pillar = HeldPillar(station)
    with pytest.raises(FunctionFailed):
        await pillar.load()
    station.pillar = {}
    assert await pillar.load() == {}
    assert station.asked == 2
