"""Which returns must still be sent: rows of the store. A job's are there in the commit that accepts the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from device_agent.clock import Clock
from device_agent.protocol.messages import decode_job
from gateway.jobs.record import COLUMNS, outcome_record
from gateway.returners.returned import Returned
from gateway.store.reader import Reader
from gateway.store.writer import Statement, Writer

ADD: Final = "INSERT INTO job_returners (jid, returner) VALUES (?, ?)"
FAILED: Final = (
    "UPDATE job_returners SET tries = tries + 1, since = coalesce(since, ?), due = ?, why = ?"
    " WHERE jid = ? AND returner = ?"
)
# What came since it was looked at is not kept waiting.
WAITS: Final = (
    "UPDATE job_returners SET due = ? WHERE jid = ? AND returner = ?"
    " AND NOT EXISTS (SELECT 1 FROM outcomes AS o WHERE o.jid = job_returners.jid AND o.id > job_returners.place)"
    " AND NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.jid = job_returners.jid AND j.closed IS NOT NULL)"
)
AT: Final = (
    "UPDATE job_returners SET place = ?, tries = 0, since = NULL, due = 0, why = '' WHERE jid = ? AND returner = ?"
)
LOST: Final = "INSERT INTO returns_lost (jid, returner, site, device, why, at) VALUES (?, ?, ?, ?, ?, ?)"
HAD_LATER: Final = "DELETE FROM returns_dark WHERE jid = ? AND returner = ? AND outcome = ?"
AT_ONCE: Final = 50
"""Jobs that are looked at together."""

CLOCK_JUMPED_SECONDS: Final = 86_400.0
"""No pause is so long: the clock was set back."""

DARK: Final = "site_dark"
LOST_TOLD: Final = 100


class Todo(Struct, frozen=True):
    """A job whose returns a returner has not had all."""

    jid: str
    returner: str
    place: int
    tries: int
    since: float | None


class ReturnBook:
    """Reads what is to be sent, and writes what became of it."""

    def __init__(self, *, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    @staticmethod
    def adding(jid: str, returners: Sequence[str]) -> list[Statement]:
        """What is in the commit of a job."""
        return [(ADD, [(jid, name) for name in returners])] if returners else []

    async def due(self, returner: str) -> list[Todo]:
        """Jobs that are to be looked at now, the oldest first."""
        rows = await self._reader.rows(
            "SELECT jid, returner, place, tries, since FROM job_returners"
            " WHERE returner = ? AND done = 0 AND (due <= ? OR due > ?) ORDER BY due, jid LIMIT ?",
            (returner, now := self._clock.wall(), now + CLOCK_JUMPED_SECONDS, AT_ONCE),
        )
        return [Todo(*row) for row in rows]

    async def returns(self, todo: Todo, most: int) -> list[Returned]:
        """The next of them, in the order in which they came."""
        return await self._returned("o.jid = ? AND o.id > ? ORDER BY o.id LIMIT ?", (todo.jid, todo.place, most))

    async def told_later(self, returner: str, most: int) -> list[Returned]:
        """What sites that were dark have said since."""
        return await self._returned(
            "o.outcome <> ? AND o.id IN (SELECT outcome FROM returns_dark WHERE returner = ?) LIMIT ?",
            (DARK, returner, most),
        )

    async def _returned(self, where: str, given: tuple[Any, ...]) -> list[Returned]:
        columns = ", ".join(f"o.{name.strip()}" for name in COLUMNS.split(","))
        rows = await self._reader.rows(
            f"SELECT o.id, j.body, {columns} FROM outcomes AS o JOIN jobs AS j ON j.jid = o.jid WHERE {where}",  # noqa: S608 - made of constants here
            given,
        )
        return [Returned(row[0], decode_job(bytes(row[1])), outcome_record(row[2:])) for row in rows]

    async def open_jids(self) -> list[str]:
        """Jobs that have something to be sent."""
        return [row[0] for row in await self._reader.rows("SELECT DISTINCT jid FROM job_returners WHERE done = 0")]

    async def is_closed(self, jid: str) -> bool | None:
        """Whether nobody will answer any more; None when the job is no longer kept."""
        rows = await self._reader.rows("SELECT closed FROM jobs WHERE jid = ?", (jid,))
        return None if not rows else rows[0][0] is not None

    async def sent(self, todo: Todo, returns: Sequence[Returned]) -> None:
        """These were had."""
        await self._writer.commit([self._at(todo, returns[-1].number), self._dark(todo, returns)])

    async def sent_later(self, returner: str, returns: Sequence[Returned]) -> None:
        """These were had after all."""
        await self._writer.commit([self._had_later(returner, returns)])

    async def lost_later(self, returner: str, returns: Sequence[Returned], why: str) -> None:
        """What sites that were dark have said since will never be had."""
        await self._writer.commit([self._lost(returner, returns, why), self._had_later(returner, returns)])

    async def failed(self, todo: Todo, why: str, due: float) -> None:
        """They were not had, and are sent again."""
        now = self._clock.wall()
        await self._writer.commit(
            [
                (
                    FAILED,
                    [(now, due, why[:500], todo.jid, todo.returner)],
                )
            ]
        )

    async def lost(self, todo: Todo, returns: Sequence[Returned], why: str) -> None:
        """They will never be had."""
        lost = self._lost(todo.returner, returns, why)
        await self._writer.commit([lost, self._at(todo, returns[-1].number)])

    async def waits(self, todo: Todo, due: float) -> None:
        """There is nothing to send now; it is looked at again then, or when something is heard of the job."""
        await self._writer.commit([(WAITS, [(due, todo.jid, todo.returner)])])

    async def done(self, todo: Todo) -> None:
        """All of them were had, or are lost."""
        await self._writer.commit(
            [("UPDATE job_returners SET done = 1 WHERE jid = ? AND returner = ?", [(todo.jid, todo.returner)])]
        )

    async def wake(self, jids: Sequence[str]) -> None:
        """Something is heard of these jobs: what waited for nothing else is looked at now."""
        await self._writer.commit(
            [("UPDATE job_returners SET due = 0 WHERE jid = ? AND done = 0 AND tries = 0", [(jid,) for jid in jids])]
        )

    async def gone(self, todo: Todo) -> None:
        """The job is no longer kept: what was not sent of it cannot be."""
        row = (todo.jid, todo.returner, "", "*", "the job is no longer kept: jobs.keep_hours", self._clock.wall())
        await self._writer.commit(
            [
                (LOST, [row]),
                ("UPDATE job_returners SET done = 1 WHERE jid = ? AND returner = ?", [(todo.jid, todo.returner)]),
            ]
        )

    async def prune(self, before: float) -> None:
        """Let go of what is done, with its job."""
        await self._writer.commit(
            [
                ("DELETE FROM job_returners WHERE done = 1 AND jid NOT IN (SELECT jid FROM jobs)", [()]),
                ("DELETE FROM returns_dark WHERE jid NOT IN (SELECT jid FROM jobs)", [()]),
                ("DELETE FROM returns_lost WHERE at < ?", [(before,)]),
            ]
        )

    async def waiting(self) -> dict[str, int]:
        """Jobs that are not done, by returner."""
        return dict(
            await self._reader.rows("SELECT returner, count(*) FROM job_returners WHERE done = 0 GROUP BY returner")
        )

    async def lost_lately(self) -> list[dict[str, Any]]:
        """What was lost, the newest first."""
        rows = await self._reader.rows(
            "SELECT jid, returner, site, device, why, at FROM returns_lost ORDER BY id DESC LIMIT ?", (LOST_TOLD,)
        )
        return [dict(zip(("jid", "returner", "site", "device", "why", "at"), row, strict=True)) for row in rows]

    def _lost(self, returner: str, returns: Sequence[Returned], why: str) -> Statement:
        now = self._clock.wall()
        records = [each.record for each in returns]
        return (LOST, [(record.jid, returner, record.site, record.id, why[:500], now) for record in records])

    @staticmethod
    def _had_later(returner: str, returns: Sequence[Returned]) -> Statement:
        return (HAD_LATER, [(each.record.jid, returner, each.number) for each in returns])

    @staticmethod
    def _at(todo: Todo, place: int) -> Statement:
        return (AT, [(place, todo.jid, todo.returner)])

    @staticmethod
    def _dark(todo: Todo, returns: Sequence[Returned]) -> Statement:
        rows = [(todo.jid, todo.returner, each.number) for each in returns if each.record.outcome.value == DARK]
        return ("INSERT OR IGNORE INTO returns_dark (jid, returner, outcome) VALUES (?, ?, ?)", rows)
