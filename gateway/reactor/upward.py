"""Tells the stations above of each reaction, when all is known of it that this station does.

A reaction and the word of it for those above are marked as told in one commit, so that each is told of once, however
this station ends; it waits in the spool like any event. Where there is nobody above, nothing is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import msgspec

from device_agent.clock import Clock
from device_agent.errors import StationFailed
from device_agent.parts import Part
from device_agent.protocol import tags
from device_agent.protocol.messages import Event, decode_stored, encode_value
from gateway.reactor.report import ARGUMENT_BYTES, DATA_BYTES, VALUE_CHARACTERS, Report, ReportedCall, data_of
from gateway.reactor.site_reactions import pruning
from gateway.reactor.sls import Reaction
from gateway.spool.queue import Spool
from gateway.store.reader import Reader
from gateway.store.writer import StoreFailed, Writer

log = logging.getLogger(__name__)

PAGE: Final = 200
LOOK_SECONDS: Final = 1.0
PRUNE_SECONDS: Final = 600.0

_UNTOLD = (
    "SELECT reactions.key, place, body, reactions.state, reactions.jid, reactions.why, reactions.ended,"
    " reactor_events.id, tag, data, stamp, site, depth FROM reactions"
    " JOIN reactor_events ON reactor_events.id = reactions.event"
    " WHERE told = 0 AND reactions.state <> 'waiting'"
    " AND NOT EXISTS (SELECT 1 FROM calls WHERE calls.jid = reactions.jid AND calls.state = 'open')"
    " ORDER BY reactions.event, place LIMIT ?"
)
_CALL = "SELECT state, value FROM calls WHERE jid = ?"
_TOLD = "UPDATE reactions SET told = 1 WHERE key = ?"

_reaction = msgspec.msgpack.Decoder(Reaction)


class ReactionsUpward(Part):
    """Looks for what was not told, and lets go of what sites told long ago."""

    name: ClassVar[str] = "reactions-upward"

    def __init__(
        self, *, site: str, spool: Spool, reader: Reader, writer: Writer, clock: Clock, keep_seconds: float
    ) -> None:
        self._site = site
        self._spool = spool
        self._reader = reader
        self._writer = writer
        self._clock = clock
        self._keep_seconds = keep_seconds

    async def open(self) -> None:
        """Begin."""
        self.spawn(self._tell(), "tell")
        self.spawn(self._prune(), "prune")

    async def _tell(self) -> None:
        while True:
            try:
                more = self._spool.enabled and await self.tell_page()
            except StationFailed as error:
                log.error("reactions could not be told of, it is tried again error=%s", error)
                more = False
            if not more:
                await asyncio.sleep(LOOK_SECONDS)

    async def tell_page(self) -> bool:
        """Tell of some; whether there may be more. Raises ``StationFailed``."""
        rows = await self._reader.rows(_UNTOLD, (PAGE,))
        if not rows:
            return False
        reports = [await self._report(row) for row in rows]
        now = self._clock.wall()
        events = [
            Event(tag=tags.reaction(report.key), data=data_of(report), stamp=now, site=self._site) for report in reports
        ]
        await self._writer.commit([*self._spool.adding(events), (_TOLD, [(report.key,) for report in reports])])
        self._spool.added()
        return len(rows) == PAGE

    async def _report(self, row: Sequence[Any]) -> Report:
        key, place, body, state, jid, why, _, number, tag, data, stamp, site, depth = row
        reaction = _reaction.decode(body)
        left_out = []
        if len(data) > DATA_BYTES:
            left_out.append("data")
        arguments = len(encode_value([reaction.arg, reaction.kwarg]))
        if arguments > ARGUMENT_BYTES:
            left_out.append("arguments")
        return Report(
            key=key,
            number=number,
            place=place,
            tag=tag,
            data={} if "data" in left_out else decode_stored(data),
            stamp=stamp,
            site=site,
            depth=depth,
            call=ReportedCall(
                id=reaction.id,
                file=reaction.file,
                rule=reaction.rule,
                said=reaction.said,
                kind=reaction.kind,
                fun=reaction.fun,
                tgt=reaction.tgt,
                tgt_type=reaction.tgt_type,
                arg=[] if "arguments" in left_out else reaction.arg,
                kwarg={} if "arguments" in left_out else reaction.kwarg,
            ),
            state=state,
            jid=jid or "",
            why=why,
            left_out=left_out,
            **await self._called(jid),
        )

    async def _called(self, jid: str | None) -> dict[str, Any]:
        """How the call ended that a reaction was; nothing for a job."""
        rows = await self._reader.rows(_CALL, (jid,)) if jid else []
        if not rows:
            return {}
        ((state, kept),) = rows
        value = None if kept is None else decode_stored(kept)
        if state != "ok":
            return {"outcome": state, "failed": "" if value is None else str(value)[:VALUE_CHARACTERS]}
        return {
            "outcome": state,
            "value": value if len(str(value)) <= VALUE_CHARACTERS else str(value)[:VALUE_CHARACTERS],
        }

    async def _prune(self) -> None:
        while True:
            try:
                await self._writer.commit(pruning(self._clock.wall() - self._keep_seconds))
            except StoreFailed as error:
                log.error("old reactions of sites not pruned error=%s", error.found)
            await asyncio.sleep(PRUNE_SECONDS)
