"""What throttles made of events, on disk: an event that waits, has its turn or was held back is a row that says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from device_agent.clock import Clock, stamp
from device_agent.protocol.messages import decode_stored, encode_value
from gateway.reactor.sls import Reaction
from gateway.reactor.throttle import Throttle
from gateway.reactor.windows import HeldState, Kept, Place, Verdict
from gateway.store.reader import Reader
from gateway.store.writer import Statement, Writer

OFFERED: Final = 1000
OFFERED_BYTES: Final = 256 * 1024
"""Most of the collected events that a file is given, the newest ones."""

_PUT = (
    "INSERT OR REPLACE INTO reactor_held (event, glob, file, key, state, why, joined, at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_JOIN = (
    "UPDATE reactor_held SET state = ?, why = ?, joined = ? WHERE glob = ? AND file = ? AND key = ?"
    " AND state = 'waits' AND event <> ?"
)
_WINDOW = (
    "INSERT OR REPLACE INTO reactor_windows (glob, file, key, last, last_event, day, passes, due, wait, spec)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_NO_WINDOW = "DELETE FROM reactor_windows WHERE glob = ? AND file = ? AND key = ?"
_STATE = "UPDATE reactor_held SET state = ? WHERE event = ? AND glob = ? AND file = ?"
_OF = "SELECT glob, file, key, state, why, joined FROM reactor_held WHERE event = ? ORDER BY glob, file"
_OPEN = (
    "SELECT event, glob, file, key, state FROM reactor_held WHERE state IN ('ready', 'waits', 'turn', 'running')"
    " ORDER BY event"
)
_WINDOWS = "SELECT glob, file, key, last, last_event, day, passes, due, wait, spec FROM reactor_windows"
_JOINED = (
    "SELECT e.tag, e.data, e.stamp, length(e.data) FROM reactor_held h JOIN reactor_events e ON e.id = h.event"
    " WHERE h.joined = ? AND h.glob = ? AND h.file = ? ORDER BY h.event DESC LIMIT ?"
)
_COUNTS = "SELECT glob, file, state, count(*) FROM reactor_held GROUP BY glob, file, state"
_UNBEGUN = (
    "SELECT h.state FROM reactor_events e LEFT JOIN reactor_held h ON h.event = e.id AND h.glob = ? AND h.file = ?"
    " WHERE e.id = ?"
)
_BODIES = "SELECT body, state, jid FROM reactions WHERE event = ?"
_IS_OPEN = (
    "SELECT 1 FROM jobs WHERE jid = ?1 AND closed IS NULL"
    " UNION ALL SELECT 1 FROM calls WHERE jid = ?1 AND state = 'open'"
)

_reaction = msgspec.msgpack.Decoder(Reaction)
_throttle = msgspec.msgpack.Decoder(Throttle)


class Held(Struct, frozen=True):
    """What became of an event under one throttle."""

    glob: str
    file: str
    key: str
    state: HeldState
    why: str
    joined: int


class HeldBook:
    """Rows of events under throttles, and of their windows."""

    def __init__(self, *, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def write(self, statements: Sequence[Statement]) -> None:
        """Raises ``StoreFailed``."""
        await self._writer.commit(statements)

    def putting(self, place: Place, verdicts: Sequence[Verdict], kept: Kept) -> list[Statement]:
        """What becomes of events of one window, and where that stands then."""
        glob, file, key = place
        now = self._clock.wall()
        rows = [(each.event, glob, file, key, each.state, each.why, each.into, now) for each in verdicts]
        return [(_PUT, rows), (_WINDOW, [(glob, file, key, *kept[:-1], encode_value(kept.spec))])]

    def joining(self, place: Place, verdict: Verdict) -> Statement:
        """Those that waited share what becomes of the newest of them."""
        if verdict.state == "held":
            return (_JOIN, [("held", verdict.why, 0, *place, verdict.event)])
        return (_JOIN, [("joined", f"in the reaction to event {verdict.event}", verdict.event, *place, verdict.event)])

    def forgetting(self, places: Sequence[Place]) -> list[Statement]:
        """Windows that matter no more."""
        return [(_NO_WINDOW, list(places))]

    def moving(self, event: int, glob: str, file: str, state: HeldState) -> list[Statement]:
        """The state of an event changes, and nothing else of it."""
        return [(_STATE, [(state, event, glob, file)])]

    async def of(self, event: int) -> list[Held]:
        """What is known of an event."""
        return [Held(*row) for row in await self._reader.rows(_OF, (event,))]

    async def open_rows(self) -> list[tuple[int, Place, HeldState]]:
        """Every event of which something is still to come, oldest first."""
        return [(event, (glob, file, key), state) for event, glob, file, key, state in await self._reader.rows(_OPEN)]

    async def windows(self) -> list[tuple[Place, Kept]]:
        """Every window that is kept."""
        rows = await self._reader.rows(_WINDOWS)
        return [
            ((glob, file, key), Kept._make([*times, _throttle.decode(spec)])) for glob, file, key, *times, spec in rows
        ]

    async def collected(self, event: int, glob: str, file: str) -> list[dict[str, Any]]:
        """The events for which this one reacts too, oldest first, without itself; of many the newest."""
        found: list[dict[str, Any]] = []
        room = OFFERED_BYTES
        for tag, data, at, size in await self._reader.rows(_JOINED, (event, glob, file, OFFERED - 1)):
            room -= size
            if room < 0:
                break
            found.append({"tag": tag, "data": {**decode_stored(data), "_stamp": stamp(at)}})
        return found[::-1]

    async def is_over(self, event: int, glob: str, file: str) -> bool:
        """Whether the reactions of this file to an event have all ended, jobs and all."""
        rows = await self._reader.rows(_UNBEGUN, (glob, file, event))
        if rows and rows[0][0] in (None, "ready"):
            # It was let through, and nothing has been rendered for it so far.
            return False
        for body, state, jid in await self._reader.rows(_BODIES, (event,)):
            reaction = _reaction.decode(body)
            if (reaction.rule, reaction.file) != (glob, file):
                continue
            if state == "waiting" or (jid is not None and await self._reader.rows(_IS_OPEN, (jid,))):
                return False
        return True

    async def counts(self) -> dict[tuple[str, str], dict[str, int]]:
        """By rule and file: events by what became of them."""
        found: dict[tuple[str, str], dict[str, int]] = {}
        for glob, file, state, count in await self._reader.rows(_COUNTS):
            found.setdefault((glob, file), {})[state] = count
        return found
