"""What events set off, on disk: each matched event, and each reaction before it is made."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from device_agent.clock import Clock
from device_agent.protocol.messages import Event, decode_stored, encode_value
from gateway.reactor.seen import SOURCES, Happened, Seen, Source
from gateway.reactor.sls import Reaction, Trouble
from gateway.store.reader import Reader
from gateway.store.writer import Statement, Writer

EventState = Literal["waiting", "rendered", "stopped", "dropped"]
State = Literal["waiting", "issued", "failed", "refused", "dropped"]
WHY_CHARACTERS: Final = 2000
TROUBLES: Final = 100
WAITING_PAGE: Final = 1_000_000

_ADD_EVENT = (
    "INSERT OR IGNORE INTO reactor_events (source, number, tag, data, stamp, site, depth, state, why, matched)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_ADDED = "SELECT id, number, state FROM reactor_events WHERE source = ? AND number BETWEEN ? AND ? ORDER BY number"
_SEEN = "INSERT OR REPLACE INTO reactor_seen (source, number) VALUES (?, ?)"
_RENDERED = "UPDATE reactor_events SET state = 'rendered', troubles = ? WHERE id = ? AND state = 'waiting'"
_ADD = "INSERT OR IGNORE INTO reactions (key, event, place, body, state, why) VALUES (?, ?, ?, ?, 'waiting', '')"
_ENDED = "UPDATE reactions SET state = ?, jid = ?, why = ?, ended = ? WHERE key = ? AND state = 'waiting'"
_DROP_EVENT = "UPDATE reactor_events SET state = 'dropped', why = ? WHERE id = ?"
_DROP = "UPDATE reactions SET state = 'dropped', why = ? WHERE event = ? AND state = 'waiting'"
_DROP_HELD = "UPDATE reactor_held SET state = 'held', why = ? WHERE event = ? AND state = 'ready'"
_TO_DO = (
    "SELECT id FROM reactor_events WHERE state = 'waiting'"
    " UNION SELECT event FROM reactions WHERE state = 'waiting' ORDER BY 1 LIMIT ?"
)
_EVENT = "SELECT id, tag, data, stamp, site, depth, state, why, troubles, matched FROM reactor_events"
_REACTIONS = "SELECT key, body, state, jid, why, ended FROM reactions WHERE event = ? ORDER BY place"
_PRUNE_REACTIONS = (
    "DELETE FROM reactions WHERE state <> 'waiting' AND event IN"
    " (SELECT id FROM reactor_events WHERE matched < ? AND state <> 'waiting')"
)
_PRUNE_EVENTS = (
    "DELETE FROM reactor_events WHERE matched < ? AND state <> 'waiting'"
    " AND NOT EXISTS (SELECT 1 FROM reactions WHERE reactions.event = reactor_events.id)"
    " AND NOT EXISTS (SELECT 1 FROM reactor_held WHERE reactor_held.event = reactor_events.id"
    " AND reactor_held.state IN ('ready', 'waits', 'turn'))"
)
_PRUNE_HELD = "DELETE FROM reactor_held WHERE event < (SELECT min(id) FROM reactor_events)"
_TROUBLES = "UPDATE reactor_events SET troubles = ? WHERE id = ?"


class Matched(Struct, frozen=True):
    """An event with rules, as it is on disk."""

    id: int
    event: Event
    depth: int
    state: EventState
    why: str
    troubles: list[Trouble]
    matched: float


class Made(Struct, frozen=True):
    """A reaction, as it is on disk. ``key`` is the same however often it is tried."""

    key: str
    reaction: Reaction
    state: State
    jid: str | None
    why: str
    ended: float | None


_reaction = msgspec.msgpack.Decoder(Reaction)
_troubles = msgspec.msgpack.Decoder(list[Trouble])


def key_of(matched: Matched, reaction: Reaction) -> str:
    """What names a reaction to this event: the same after a restart, and on no other event."""
    event = matched.event
    said = [event.site, event.tag, event.stamp, matched.id, reaction.rule, reaction.file, reaction.id, reaction.said]
    said += [reaction.name] if reaction.name else []
    return hashlib.sha256(msgspec.msgpack.encode(said)).hexdigest()[:32]


class ReactionBook:
    """Rows of events and reactions."""

    def __init__(self, *, writer: Writer, reader: Reader, clock: Clock, keep_seconds: float) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self._keep_seconds = keep_seconds

    async def matched(
        self, happened: Sequence[tuple[Happened, int, EventState, str]], source: Source, last: int
    ) -> list[tuple[Matched, int]]:
        """Put matched events on disk, with how far was looked; as they are there, each with the size of its data.

        ``happened`` is of one source. Raises ``StoreFailed``.
        """
        now = self._clock.wall()
        rows = [
            (
                each.source,
                each.number,
                each.event.tag,
                encode_value(each.event.data if state == "waiting" else {}),
                each.event.stamp,
                each.event.site,
                depth,
                state,
                why,
                now,
            )
            for each, depth, state, why in happened
        ]
        await self._writer.commit([(_ADD_EVENT, rows), (_SEEN, [(source, last)])])
        stored = {row[1]: row for row in rows}
        found = await self._reader.rows(_ADDED, (source, min(stored), max(stored)))
        return [
            (_as_stored(number, stored[place], state), len(stored[place][3]))
            for number, place, state in found
            if place in stored
        ]

    async def place(self, seen: Seen) -> None:
        """Keep how far was looked. Raises ``StoreFailed``."""
        await self._writer.commit([(_SEEN, [(name, seen.numbers[name]) for name in SOURCES])])

    async def forget_place(self) -> None:
        """There are no rules: what happens meanwhile is nobody's. Raises ``StoreFailed``."""
        if await self._reader.rows("SELECT 1 FROM reactor_seen LIMIT 1"):
            await self._writer.commit([("DELETE FROM reactor_seen", [()])])

    async def to_do(self) -> list[int]:
        """Events that wait for their reactions, oldest first."""
        return [number for (number,) in await self._reader.rows(_TO_DO, (WAITING_PAGE,))]

    async def rendered(
        self, matched: Matched, reactions: Sequence[Reaction], troubles: Sequence[Trouble]
    ) -> list[Made]:
        """Reactions are rows before they are deeds; as they are there, in their order. Raises ``StoreFailed``."""
        rows = [
            (key_of(matched, reaction), matched.id, place, encode_value(reaction))
            for place, reaction in enumerate(reactions)
        ]
        kept = encode_value(list(troubles[:TROUBLES]))
        await self._writer.commit([(_ADD, rows), (_RENDERED, [(kept, matched.id)])])
        # Two reactions that are the same in everything have one key and one row.
        made = {
            row[0]: Made(row[0], reaction, "waiting", None, "", None)
            for row, reaction in zip(rows, reactions, strict=True)
        }
        return list(made.values())

    async def rendered_late(
        self, matched: Matched, reactions: Sequence[Reaction], troubles: Sequence[Trouble], beside: Sequence[Statement]
    ) -> None:
        """The reactions of a file that was let through later, beside those that are there. Raises ``StationFailed``."""
        first = len(await self.reactions(matched.id))
        before = await self.event(matched.id)
        rows = [
            (key_of(matched, reaction), matched.id, place, encode_value(reaction))
            for place, reaction in enumerate(reactions, start=first)
        ]
        kept = [*(before.troubles if before is not None else []), *troubles][:TROUBLES]
        await self._writer.commit([(_ADD, rows), (_TROUBLES, [(encode_value(kept), matched.id)]), *beside])

    def issuing(self, key: str, jid: str, why: str = "") -> list[Statement]:
        """To be committed with the job itself: so one reaction is one job, whenever the station is killed."""
        return [(_ENDED, [("issued", jid, why[:WHY_CHARACTERS], self._clock.wall(), key)])]

    async def ended(self, key: str, state: State, why: str) -> None:
        """A reaction that made no job. Raises ``StoreFailed``."""
        await self._writer.commit([(_ENDED, [(state, None, why[:WHY_CHARACTERS], self._clock.wall(), key)])])

    async def dropped(self, number: int, why: str) -> None:
        """An event gave way, and with it the turn that a throttle gave it. Raises ``StoreFailed``."""
        row = [(why, number)]
        await self._writer.commit([(_DROP_EVENT, row), (_DROP, row), (_DROP_HELD, row)])

    async def prune(self) -> None:
        """Let go of what ended long ago. Raises ``StoreFailed``."""
        until = self._clock.wall() - self._keep_seconds
        await self._writer.commit([(_PRUNE_REACTIONS, [(until,)]), (_PRUNE_EVENTS, [(until,)]), (_PRUNE_HELD, [()])])

    async def event(self, number: int) -> Matched | None:
        """One event by its number."""
        return next(iter(await self._events("WHERE id = ?", (number,))), None)

    async def reactions(self, number: int) -> list[Made]:
        """The reactions to an event, in their order."""
        return [
            Made(key, _reaction.decode(body), state, jid, why, ended)
            for key, body, state, jid, why, ended in await self._reader.rows(_REACTIONS, (number,))
        ]

    async def of_jid(self, jid: str) -> list[Matched]:
        """The event whose reaction is this job."""
        rows = await self._reader.rows("SELECT event FROM reactions WHERE jid = ?", (jid,))
        return [found for (number,) in rows if (found := await self.event(number)) is not None]

    async def newest(self, tag: str, count: int) -> list[Matched]:
        """The newest events with this very tag."""
        return await self._events("WHERE tag = ? ORDER BY id DESC LIMIT ?", (tag, count))

    async def counts(self) -> dict[str, int]:
        """Reactions by state, and events that were stopped or gave way."""
        rows = await self._reader.rows("SELECT state, count(*) FROM reactions GROUP BY state")
        rows += await self._reader.rows(
            "SELECT 'events_' || state, count(*) FROM reactor_events WHERE state <> 'rendered' GROUP BY state"
        )
        return dict(rows)

    async def _events(self, where: str, values: tuple[Any, ...]) -> list[Matched]:
        return [
            Matched(
                number,
                Event(tag=tag, data=decode_stored(data), stamp=at, site=site),
                depth,
                state,
                why,
                [] if troubles is None else _troubles.decode(troubles),
                matched,
            )
            for number, tag, data, at, site, depth, state, why, troubles, matched in await self._reader.rows(
                f"{_EVENT} {where}", values
            )
        ]


def _as_stored(number: int, row: tuple[Any, ...], state: EventState) -> Matched:
    """An event as it would be read again."""
    _, _, tag, data, at, site, depth, _, why, matched = row
    return Matched(
        number, Event(tag=tag, data=decode_stored(data), stamp=at, site=site), depth, state, why, [], matched
    )
