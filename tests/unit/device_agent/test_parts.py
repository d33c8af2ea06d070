"""device_agent/parts.py: parts stop in order, also when one crashes, and whoever is late is named."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import ClassVar

import pytest

from device_agent.parts import Part, leaves
from tests.peers.waiting import until


class Told(Part):
    """A part that writes down what happens to it."""

    def __init__(self, label: str, diary: list[str]) -> None:
        self.label = label
        self.diary = diary
        self.crash = asyncio.Event()

    async def open(self) -> None:
        self.diary.append(f"open {self.label}")
        self.spawn(self._loop(), "loop")

    async def _loop(self) -> None:
        try:
            await self.crash.wait()
            raise RuntimeError(self.label)
        except asyncio.CancelledError:
            self.diary.append(f"cancel {self.label}")
            raise

    async def drain(self) -> None:
        await asyncio.sleep(0)
        self.diary.append(f"drain {self.label}")

    async def close(self) -> None:
        self.diary.append(f"close {self.label}")


async def test_parts_stop_in_reverse_each_draining_before_its_loops_end() -> None:
    diary: list[str] = []
    async with AsyncExitStack() as stack:
        for label in ("store", "bus", "link"):
            await stack.enter_async_context(Told(label, diary))
        await until(lambda: len(diary) == 3)
        await asyncio.sleep(0)
    assert diary == [
        *("open store", "open bus", "open link"),
        *("drain link", "cancel link", "close link"),
        *("drain bus", "cancel bus", "close bus"),
        *("drain store", "cancel store", "close store"),
    ]


@pytest.mark.parametrize("crashing", [0, 1, 2])
async def test_a_part_that_crashes_still_lets_the_others_stop_in_order(crashing: int) -> None:
    diary: list[str] = []
    parts = [Told(label, diary) for label in ("store", "bus", "link")]

    async def station() -> None:
        async with AsyncExitStack() as stack:
            for part in parts:
                await stack.enter_async_context(part)
            parts[crashing].crash.set()
            await asyncio.Event().wait()

    with pytest.raises(BaseExceptionGroup) as caught:
        async with asyncio.timeout(60):
            await station()
    assert [str(leaf) for leaf in leaves(caught.value)] == [parts[crashing].label]
    closing = [line for line in diary if line.startswith(("drain", "close"))]
    assert closing == [f"{what} {label}" for label in ("link", "bus", "store") for what in ("drain", "close")]


class Slow(Part):
    """A part whose drain does not end."""

    name: ClassVar[str] = "slowcoach"
    drain_seconds: ClassVar[float] = 0.02

    def __init__(self) -> None:
        self.ended: list[str] = []

    async def drain(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append("drain")

    async def close(self) -> None:
        self.ended.append("close")


async def test_a_drain_past_its_limit_is_cut_and_named(caplog: pytest.LogCaptureFixture) -> None:
    async with Slow() as part:
        pass
    assert part.ended == ["drain", "close"]
    (record,) = caplog.records
    assert "part=slowcoach" in record.message
    assert "limit_seconds=0.02" in record.message


class Clumsy(Part):
    """A part whose drain fails."""

    name: ClassVar[str] = "clumsy"

    def __init__(self) -> None:
        self.closed = False

    async def drain(self) -> None:
        raise ValueError("slipped")

    async def close(self) -> None:
        self.closed = True


async def test_a_drain_that_fails_is_reported_and_the_part_closes(caplog: pytest.LogCaptureFixture) -> None:
    async with Clumsy() as part:
        pass
    assert part.closed
    assert "slipped" in caplog.text


class Unopened(Part):
    """A part that fails while opening, when one of its loops runs already."""

    def __init__(self, diary: list[str]) -> None:
        self.diary = diary

    async def open(self) -> None:
        self.spawn(self._loop(), "loop")
        await asyncio.sleep(0)
        raise OSError("no such port")

    async def _loop(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.diary.append("loop ended")

    async def close(self) -> None:
        self.diary.append("closed")


async def test_a_part_that_does_not_open_leaves_nothing_running() -> None:
    diary: list[str] = []
    before = asyncio.all_tasks()
    with pytest.raises(BaseException) as caught:
        async with asyncio.timeout(60), Unopened(diary):
            pytest.fail("it must not open")
    assert any(isinstance(leaf, OSError) for leaf in leaves(caught.value))
    assert diary == ["loop ended", "closed"]
    assert asyncio.all_tasks() == before


async def test_a_loop_has_the_name_of_its_part() -> None:
    async with Told("x", []) as part:
        task = part.spawn(asyncio.sleep(0), "nap")
        assert task.get_name() == "part/nap"
        await task


def test_leaves_are_the_single_errors_inside_groups() -> None:
    one, two, three = ValueError("1"), OSError("2"), RuntimeError("3")
    assert leaves(ExceptionGroup("a", [one, ExceptionGroup("b", [two, three])])) == [one, two, three]
    assert leaves(one) == [one]
