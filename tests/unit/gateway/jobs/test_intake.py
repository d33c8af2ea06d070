"""gateway/jobs/intake.py."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from device_agent.protocol.links import Parcel
from gateway.jobs import intake as intake_module
from gateway.jobs.accept import Acceptance
from gateway.jobs.deliver import Delivery
from gateway.jobs.intake import Intake
from tests.peers.clock import HandClock
from tests.peers.waiting import until


class Taker:
    """Where jobs and cancels end up; each takes until the test lets it."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.go = asyncio.Event()

    async def accept_from_above(self, parcel: Parcel, remaining: float, master: str) -> None:
        async with asyncio.timeout(60):
            await self.go.wait()
        self.taken.append((parcel.definition, remaining, master))

    def forestall(self, jid: str) -> None:
        self.taken.append(f"forestall {jid}")

    async def cancel_from_above(self, jid: str) -> None:
        self.taken.append(jid)


def made(taker: Taker, clock: HandClock) -> Intake:
    return Intake(cast("Acceptance", taker), cast("Delivery", taker), clock)


async def test_a_cancel_stays_behind_the_job_it_is_about() -> None:
    taker = Taker()
    async with made(taker, HandClock()) as intake:
        await intake.accept_from_above(Parcel(b"first", ()), 10.0, "m")
        await intake.cancel_from_above("jid")
        await intake.accept_from_above(Parcel(b"second", ()), 10.0, "m")
        taker.go.set()
        await until(lambda: len(taker.taken) == 4, what="all of them")
    assert taker.taken == [(b"first", 10.0, "m"), "forestall jid", "jid", (b"second", 10.0, "m")]


async def test_the_expiry_of_a_job_runs_while_it_waits() -> None:
    taker, clock = Taker(), HandClock()
    async with made(taker, clock) as intake:
        await intake.accept_from_above(Parcel(b"in hand", ()), 10.0, "m")
        await until(intake._queue.empty, what="the first is in hand")
        await intake.accept_from_above(Parcel(b"waiting", ()), 10.0, "m")
        clock.move(25)
        taker.go.set()
        await until(lambda: len(taker.taken) == 2, what="both")
    assert taker.taken[1] == (b"waiting", -15.0, "m")


async def test_what_was_taken_is_finished_before_the_stop() -> None:
    taker = Taker()
    async with made(taker, HandClock()) as intake:
        for number in range(5):
            await intake.accept_from_above(Parcel(b"%d" % number, ()), 1.0, "m")
        taker.go.set()
    assert len(taker.taken) == 5


async def test_a_master_that_sends_faster_than_the_disk_writes_is_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "QUEUED", 2)
    taker = Taker()
    async with made(taker, HandClock()) as intake, asyncio.TaskGroup() as group:
        sending = group.create_task(send(intake, 10))
        await until(intake._queue.full, what="a full queue")
        assert not sending.done()
        taker.go.set()
    assert len(taker.taken) == 10


async def send(intake: Intake, jobs: int) -> None:
    for number in range(jobs):
        await intake.accept_from_above(Parcel(b"%d" % number, ()), 1.0, "m")
