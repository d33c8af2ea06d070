"""Audit rows: every allow and deny that matters, on disk with what it tells of, and on its way to the masters."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from device_agent.clock import Clock
from device_agent.protocol import limits
from device_agent.protocol.messages import AuditRecord, AuditVerdict
from gateway.spool import ledger
from gateway.spool.budget import SpoolFull
from gateway.spool.queue import Spool
from gateway.store.writer import Statement, StoreFailed, Writer

log = logging.getLogger(__name__)

# A site says that it took a job from above; where the job was issued that is known already, and said once is enough.
_ADD = (
    "INSERT OR IGNORE INTO audit"
    " (site, mark, at, user, door, action, subject, verdict, why, jid, fun, arguments)"
    " SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12"
    " WHERE ?5 <> 'above' OR ?6 <> 'run' OR ?8 <> 'allow'"
    " OR NOT EXISTS (SELECT 1 FROM audit WHERE jid = ?10 AND action = 'run' AND verdict = 'allow')"
)


@dataclass(frozen=True, kw_only=True)
class Deed:
    """One thing somebody asked for, and the answer.

    ``door`` is socket, api, above (a master) or device. ``action`` is a word like ``run``, ``keys.accept``; ``subject``
    what it was done to: a target, a device, a site, a key. ``why`` is the operator's reason, or that of a refusal.
    """

    user: str
    door: str
    action: str
    subject: str
    verdict: AuditVerdict
    why: str = ""
    jid: str = ""
    fun: str = ""
    arguments: str = ""


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
            )
            for record in records
        ],
    )


def bounded(text: str, characters: int) -> str:
    """The text as it fits a row, and marked where it was cut."""
    sound = text.encode("utf-8", "replace").decode("utf-8")
    return sound if len(sound) <= characters else f"{sound[: characters - 1]}…"
