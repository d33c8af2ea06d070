"""gateway/returners/sending.py on a real store: what is sent again, what is given up, and who speaks later."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from device_agent.errors import UsageInvalid
from device_agent.protocol.messages import OutcomeRecord, encode
from device_agent.protocol.outcomes import Outcome
from gateway.jobs.record import outcome_statement
from gateway.returners.book import ReturnBook
from gateway.returners.returned import NotReturned, Returned
from gateway.returners.sending import Returners
from gateway.returners.settings import ReturnerLimits
from gateway.rooms import Rooms
from tests.peers.clock import HandClock
from tests.peers.database import a_job, opened_rooms
from tests.peers.waiting import until

HOUR = 3600.0


class Receiver:
    """Takes returns, or does not."""

    most = 2

    def __init__(self) -> None:
        self.had: list[tuple[str, str]] = []
        self.failure: NotReturned | None = None
        self.never = ""
        self.tries = 0

    async def send(self, returns: list[Returned]) -> None:
        self.tries += 1
        if any(each.record.id == self.never for each in returns):
            raise NotReturned("not this one")
        if self.failure is not None:
            raise self.failure
        self.had += [(each.record.id, each.record.outcome.value) for each in returns]


class Bench:
    """A station's rooms with one receiver."""

    def __init__(self, rooms: Rooms, clock: HandClock) -> None:
        self.rooms = rooms
        self.clock = clock
        self.receiver = Receiver()
        self.book = ReturnBook(writer=rooms.writer, reader=rooms.reader, clock=clock)
        self.part = Returners(
            {"smtp": self.receiver},
            book=self.book,
            limits=ReturnerLimits(give_up_hours=1.0, pause_seconds=1.0),
            bus=rooms.bus,
            clock=clock,
        )

    async def job(self) -> str:
        """A job that is on disk with its returner."""
        job = a_job()
        sent_on = self.part.wanted("smtp")
        assert sent_on is not None
        row = (job.jid, encode(job), "local", 2e9, 0.0)
        added = "INSERT INTO jobs (jid, body, origin, deadline, accepted) VALUES (?, ?, ?, ?, ?)"
        await self.rooms.writer.commit([(added, [row]), *sent_on.beside(job.jid)])
        return job.jid

    async def outcome(self, jid: str, device: str, outcome: Outcome = Outcome.OK) -> None:
        """A device has answered, or its site is dark."""
        record = OutcomeRecord(
            jid=jid, site="lisbon", id=device, fun="test.ping", outcome=outcome, retcode=0, value=True, ended=1.0
        )
        await self.rooms.writer.commit([outcome_statement([record], "")])
        await self.book.wake([jid])

    async def closed(self, jid: str) -> None:
        """Nobody will answer any more."""
        await self.rooms.writer.commit([("UPDATE jobs SET closed = 1 WHERE jid = ?", [(jid,)])])
        await self.book.wake([jid])

    async def waiting(self) -> int:
        """Jobs that are not done."""
        return sum((await self.book.waiting()).values())

    async def is_lost(self) -> bool:
        """Whether anything is."""
        return bool(await self.book.lost_lately())


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Bench]:
    clock = HandClock()
    async with opened_rooms(folder, clock=clock) as rooms:
        yield Bench(rooms, clock)


async def test_every_return_is_had_in_its_order_and_the_job_is_done_when_it_is_closed(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        jid = await bench.job()
        for number in range(5):
            await bench.outcome(jid, f"cam-{number}")
        async with bench.part:
            await until(lambda: len(bench.receiver.had) == 5)
            assert await bench.waiting() == 1
            await bench.closed(jid)

            async def done() -> bool:
                return await bench.waiting() == 0

            await until(done)
        assert [device for device, _ in bench.receiver.had] == [f"cam-{number}" for number in range(5)]


async def test_what_a_dark_site_says_later_is_sent_as_well(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        jid = await bench.job()
        await bench.outcome(jid, "cam-1", Outcome.SITE_DARK)
        await bench.closed(jid)
        async with bench.part:
            await until(lambda: bench.receiver.had == [("cam-1", "site_dark")])
            await bench.outcome(jid, "cam-1")
            await until(lambda: bench.receiver.had == [("cam-1", "site_dark"), ("cam-1", "ok")])


async def test_what_a_dark_site_says_later_and_is_refused_for_good_holds_up_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        jid = await bench.job()
        await bench.outcome(jid, "cam-1", Outcome.SITE_DARK)
        async with bench.part:
            await until(lambda: bench.receiver.had == [("cam-1", "site_dark")])
            bench.receiver.failure = NotReturned("too large", final=True)
            await bench.outcome(jid, "cam-1")
            await until(bench.is_lost)
            (row,) = await bench.book.lost_lately()
            assert (row["jid"], row["returner"], row["site"], row["device"]) == (jid, "smtp", "lisbon", "cam-1")
            assert row["why"] == "too large"
            bench.receiver.failure = None
            await bench.outcome(jid, "cam-2")
            await until(lambda: bench.receiver.had[1:] == [("cam-2", "ok")])
            assert await bench.book.told_later("smtp", 10) == []
            assert ("returns_lost_total", {"returner": "smtp"}, 1) in bench.part.labelled()


async def test_what_a_dark_site_says_later_and_nobody_takes_holds_up_nothing_and_is_given_up(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        jid = await bench.job()
        await bench.outcome(jid, "cam-1", Outcome.SITE_DARK)
        async with bench.part:
            await until(lambda: bench.receiver.had == [("cam-1", "site_dark")])
            bench.receiver.never = "cam-1"
            await bench.outcome(jid, "cam-1")
            await until(lambda: bench.part.failing() == [("smtp", "not this one")])
            await bench.outcome(jid, "cam-2")
            await until(lambda: bench.receiver.had[1:] == [("cam-2", "ok")])
            assert not await bench.is_lost()
            bench.clock.move(2 * HOUR)
            await until(bench.is_lost)
            (row,) = await bench.book.lost_lately()
            assert (row["device"], row["why"]) == ("cam-1", "not this one")


async def test_what_nobody_takes_is_given_up_in_time_and_named(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        jid = await bench.job()
        await bench.outcome(jid, "cam-1")
        bench.receiver.failure = NotReturned("nobody is there")
        async with bench.part:
            await until(lambda: bench.receiver.tries >= 1)
            assert not await bench.is_lost()
            bench.clock.move(2 * HOUR)
            await until(bench.is_lost)
            (row,) = await bench.book.lost_lately()
            assert (row["device"], row["why"]) == ("cam-1", "nobody is there")
            assert bench.part.failing() == [("smtp", "nobody is there")]
            bench.receiver.failure = None
            await bench.outcome(jid, "cam-2")
            await until(lambda: bench.receiver.had == [("cam-2", "ok")])
            assert bench.part.failing() == []


async def test_what_is_refused_for_good_does_not_hold_up_what_comes_after(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        jid = await bench.job()
        await bench.outcome(jid, "cam-1")
        bench.receiver.failure = NotReturned("never", final=True)
        async with bench.part:
            await until(bench.is_lost)
            bench.receiver.failure = None
            await bench.outcome(jid, "cam-2")
            await until(lambda: bench.receiver.had == [("cam-2", "ok")])


async def test_returns_of_a_job_that_is_no_longer_kept_are_lost_by_name(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        jid = await bench.job()
        await bench.rooms.writer.commit([("DELETE FROM jobs WHERE jid = ?", [(jid,)])])
        async with bench.part:
            await until(bench.is_lost)
            (row,) = await bench.book.lost_lately()
            assert (row["jid"], row["device"]) == (jid, "*")
            assert await bench.waiting() == 0


@pytest.mark.parametrize("said", ["redis", "smtp,redis", ["redis"], ",".join(f"a{n}" for n in range(9))])
async def test_a_name_that_is_none_is_refused(tmp_path: Path, said: str | list[str]) -> None:
    async with opened(tmp_path) as bench:
        with pytest.raises(UsageInvalid) as caught:
            bench.part.wanted(said)
        assert "smtp" in (caught.value.allowed or "")
        assert bench.part.wanted("") is None
        assert bench.part.wanted([]) is None
