"""A Salt master is told as much at once as it can take: less in a message that it is slow over, and one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from gateway.salt.pace import CHUNK, LINES, Pace
from tests.peers.clock import HandClock
from tests.peers.database import opened_rooms
from tests.peers.salt_above import SaltAboveDouble
from tests.peers.salt_sending import ONE, Sending
from tests.peers.waiting import until
from upstream.salt.ports import ReturnsOfJob


class SlowAbove(SaltAboveDouble):
    """A master that takes so many seconds of this clock for each answer."""

    def __init__(self, clock: HandClock, each: float) -> None:
        super().__init__()
        self.clock, self.each = clock, each
        self.messages: list[tuple[int, int]] = []
        """Of each the answers in it, and the messages that were on their way then."""
        self._on_their_way = 0

    async def returns(self, entries: Sequence[ReturnsOfJob]) -> None:
        answers = sum(len(entry.answers) for entry in entries)
        self._on_their_way += 1
        try:
            # The others of this link begin theirs meanwhile.
            for _ in range(100):
                await asyncio.sleep(0)
            self.messages.append((answers, self._on_their_way))
            self.clock.move(answers * self.each)
            await super().returns(entries)
        finally:
            self._on_their_way -= 1


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Sending]:
    clock = HandClock()
    async with opened_rooms(tmp_path, clock=clock, masters=True) as rooms:
        found = Sending(rooms, clock)
        async with found.sender:
            yield found


async def test_a_slow_master_is_told_less_at_once_and_a_quick_one_more_again(gate: Sending) -> None:
    jid = await gate.ordered(1, ONE)
    names = [f"cam-{number:04}" for number in range(700)]
    await gate.answered(jid, *names)
    one = SlowAbove(gate.clock, each=3.0)
    async with one.linked(gate.sender, ONE):
        await until(gate.emptied, what="everything to be confirmed")
        slow = one.messages[-5:]
        one.each = 0.0
        one.messages.clear()
        again = await gate.ordered(2, ONE)
        await gate.answered(again, *(f"cam-{number:04}" for number in range(3000)))
        await until(gate.emptied, what="everything to be confirmed")
    assert max(answers for answers, _ in slow) <= 3, slow
    assert max(at_once for _, at_once in slow) == 1, slow
    assert one.messages[0][0] <= 4
    assert max(answers for answers, _ in one.messages) == CHUNK
    assert gate.sender._paces[ONE] == Pace(CHUNK, LINES)
    assert [device for each, device in one.answers() if each == jid] == names, "and everything once"


async def test_a_master_that_was_given_up_over_a_message_is_told_less_in_the_next(gate: Sending) -> None:
    jid = await gate.ordered(1, ONE)
    await gate.answered(jid, *(f"cam-{number:04}" for number in range(400)))
    one = SlowAbove(gate.clock, each=1.0)
    one.deaf = True
    await gate.not_answered(one)
    assert max(answers for answers, _ in one.messages) == CHUNK
    one = SlowAbove(gate.clock, each=0.0)
    async with one.linked(gate.sender, ONE):
        await until(gate.emptied)
    assert one.messages[0][0] <= CHUNK // 4
