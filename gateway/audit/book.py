"""Audit rows: every allow and deny that matters, on disk with what it tells of, and on its way to the masters."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import replace

from device_agent.clock import Clock
from device_agent.protocol import limits
from device_agent.protocol.messages import AuditRecord
from gateway.audit.deed import Deed
from gateway.audit.folding import RefusalFolding
from gateway.spool import ledger
from gateway.spool.budget import SpoolFull
from gateway.spool.queue import Spool
from gateway.store.writer import Statement, StoreFailed, Writer

log = logging.getLogger(__name__)

REFUSED_SUBJECT_CHARACTERS = 256
"""The caller chooses the subject of a refusal."""

# A site says that it took a job from above; where the job was issued that is known already, and said once is enough.
_ADD = (
    "INSERT OR IGNORE INTO audit"
    " (site, mark, at, user, door, action, subject, verdict, why, jid, fun, arguments, times)"
    " SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13"
    " WHERE ?5 <> 'above' OR ?6 <> 'run' OR ?8 <> 'allow'"
    " OR NOT EXISTS (SELECT 1 FROM audit WHERE jid = ?10 AND action = 'run' AND verdict = 'allow')"
)


class AuditBook:
    """Writes deeds of this station, each once, numbered under a name that no other start of it has."""

    def __init__(self, *, site: str, writer: Writer, spool: Spool, clock: Clock) -> None:
        self._site = site
        self._writer = writer
        self._spool = spool
        self._clock = clock
        # Not the store's epoch: a store restored from a backup would give its numbers out again.
        self._start = secrets.token_hex(8)
        self._number = 0
        self._folding = RefusalFolding(clock)

    def statements(self, deeds: Sequence[Deed]) -> list[Statement]:
        """The statements that keep deeds here and spool them; commit them with what they tell of, then ``written``."""
        records = [self._record(deed) for deed in deeds]
        return [keeping(records), *self._spool.adding(records)]

    def written(self) -> None:
        """The statements are on disk: wake whoever sends."""
        self._spool.added()

    async def write(self, deeds: Sequence[Deed]) -> None:
        """Keep deeds that stand for themselves. A failed commit is logged: it changes no answer.

        Where the spool has no room they are kept here, and the ledger counts what does not go up.
        """
        records = [self._record(deed) for deed in deeds]
        try:
            upward = self._spool.adding(records)
        except SpoolFull:
            upward = ledger.lost("audit", "budget", len(records))
        try:
            await self._writer.commit([keeping(records), *upward])
        except StoreFailed as error:
            for deed in deeds:
                log.error("audit row lost error=%s deed=%r", error.found, deed)
            return
        self.written()

    async def refused(self, deed: Deed) -> None:
        """Keep a refusal, or count it: equal ones, and too many of one user, share a row (``write_counted``)."""
        deed = replace(deed, subject=bounded(deed.subject, REFUSED_SUBJECT_CHARACTERS))
        if self._folding.take(deed):
            await self.write([deed])

    async def write_counted(self, *, all_of_them: bool = False) -> None:
        """Write the rows of refusals that were counted, of each window that has ended."""
        counted = self._folding.due(all_of_them=all_of_them)
        if counted:
            await self.write(counted)

    def _record(self, deed: Deed) -> AuditRecord:
        self._number += 1
        return AuditRecord(
            mark=f"{self._start}-{self._number}",
            site=self._site,
            at=self._clock.wall(),
            user=bounded(deed.user, limits.AUDIT_NAME_CHARACTERS),
            door=bounded(deed.door, limits.AUDIT_NAME_CHARACTERS),
            action=bounded(deed.action, limits.AUDIT_NAME_CHARACTERS),
            subject=bounded(deed.subject, limits.AUDIT_TEXT_CHARACTERS),
            verdict=deed.verdict,
            why=bounded(deed.why, limits.AUDIT_TEXT_CHARACTERS),
            jid=bounded(deed.jid, limits.AUDIT_NAME_CHARACTERS),
            fun=bounded(deed.fun, limits.AUDIT_NAME_CHARACTERS),
            arguments=bounded(deed.arguments, limits.AUDIT_TEXT_CHARACTERS),
            times=deed.times,
        )


def keeping(records: Sequence[AuditRecord]) -> Statement:
    """The statement that keeps rows, this station's or a site's, each once."""
    return (
        _ADD,
        [
            (
                record.site,
                record.mark,
                record.at,
                record.user,
                record.door,
                record.action,
                record.subject,
                record.verdict,
                record.why,
                record.jid,
                record.fun,
                record.arguments,
                record.times,
            )
            for record in records
        ],
    )


def bounded(text: str, characters: int) -> str:
    """The text as it fits a row, and marked where it was cut."""
    sound = text.encode("utf-8", "replace").decode("utf-8")
    return sound if len(sound) <= characters else f"{sound[: characters - 1]}…"
