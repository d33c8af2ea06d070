"""upstream/salt/probe.py: a silent master is lost, a slow one is not."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

import pytest

from device_agent.errors import Refused
from device_agent.questions import Unanswered
from tests.peers.clock import HandClock
from tests.peers.waiting import until
from upstream.dealer import LinkLost
from upstream.salt.probe import PROBE_SECONDS, PROBES, UNHEARD_SECONDS, Probe

EVERY = 30.0


class Line:
    """Where a master publishes."""

    def __init__(self) -> None:
        self.up = True
        self.looks = 0

    @property
    def connected(self) -> bool:
        self.looks += 1
        return self.up


class Desk:
    """A master that answers no probe, unless it is told to, while the clock of the test goes on."""

    def __init__(self) -> None:
        self.clock, self.line = HandClock(), Line()
        self.refused: Counter[str] = Counter()
        self.probe = Probe(self.line, lambda refusal: self.refused.update([refusal.reason]), self.clock)
        self.asked = 0
        self.answers = False
        self.stores = 0
        """How many chunks of answers are stored yet, one during each probe."""

    async def ask(self, patience: float) -> None:
        self.asked += 1
        await asyncio.sleep(0)
        if self.answers:
            return self.probe.heard()
        self.clock.move(patience)
        if self.stores:
            self.stores -= 1
            self.probe.heard()
        raise Unanswered("no answer in 5 s")

    def has_asked(self, times: int) -> bool:
        return self.asked == times

    async def lost(self) -> str:
        """Why the link was lost."""
        with pytest.raises(LinkLost) as lost:
            async with asyncio.timeout(40):
                await self.probe.run(self.ask, EVERY)
        return str(lost.value)


async def test_a_silent_master_is_lost_after_two_probes() -> None:
    desk = Desk()
    desk.clock.move(EVERY)
    assert "no answer in 5 s" in await desk.lost()
    assert desk.asked == PROBES


async def test_a_master_that_stores_chunks_too_slowly_for_a_probe_is_not_lost_until_it_stores_none() -> None:
    desk = Desk()
    desk.stores = 4
    async with asyncio.TaskGroup() as group:
        running = group.create_task(desk.lost())
        for asked in (PROBES, 2 * PROBES):
            desk.clock.move(EVERY)
            desk.probe.look()
            await until(partial(desk.has_asked, asked))
        desk.clock.move(EVERY)
        desk.probe.look()
        await running
    assert desk.asked == 3 * PROBES


async def test_nobody_is_asked_while_answers_come() -> None:
    desk = Desk()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(desk.probe.run(desk.ask, 0.01))
        await until(lambda: desk.line.looks > 3)
        assert not desk.asked
        running.cancel()


async def test_without_its_publishes_a_master_that_answers_no_probe_is_lost_though_it_answered_just_before() -> None:
    desk = Desk()
    desk.line.up = False
    desk.probe.look()
    assert "does not answer" in await desk.lost()
    assert desk.clock.monotonic() < HandClock().monotonic() + EVERY
    assert PROBES * PROBE_SECONDS < EVERY


async def test_a_master_that_answers_but_publishes_nothing_for_long_is_lost() -> None:
    desk = Desk()
    desk.answers, desk.line.up = True, False
    async with asyncio.TaskGroup() as group:
        running = group.create_task(desk.lost())
        desk.probe.look()
        await until(lambda: desk.asked == 1)
        desk.clock.move(UNHEARD_SECONDS + 1.0)
        desk.probe.look()
        assert "nothing published" in await running


async def test_a_wrong_answer_is_counted_and_is_none() -> None:
    desk = Desk()

    async def wrong(_: float) -> None:
        raise Refused("malformed", "no answer")

    desk.clock.move(EVERY)
    with pytest.raises(LinkLost):
        await desk.probe.run(wrong, EVERY)
    assert desk.refused == {"malformed": PROBES}
