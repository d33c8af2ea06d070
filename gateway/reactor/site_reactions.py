"""What sites told of their reactions: kept beside the events that it came in, and found by job and by event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from device_agent.errors import Refused
from device_agent.protocol import tags
from device_agent.protocol.messages import Event
from gateway.metrics import Metrics
from gateway.reactor.report import Report, report_of
from gateway.store.reader import Reader
from gateway.store.writer import Statement

KEPT: Final = 200_000
EVENTS: Final = 20
REACTIONS: Final = 1000

_KEEP = (
    "INSERT OR IGNORE INTO site_reactions (site, key, jid, tag, stamp, number, place, body, at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_OLD = "DELETE FROM site_reactions WHERE at < ?"
_TOO_MANY = "DELETE FROM site_reactions WHERE id <= (SELECT max(id) FROM site_reactions) - ?"
_BY_JID = "SELECT DISTINCT site, tag, stamp, number FROM site_reactions WHERE jid = ? AND jid <> '' LIMIT ?"
_BY_TAG = (
    "SELECT site, tag, stamp, number FROM site_reactions WHERE tag = ?"
    " GROUP BY site, tag, stamp, number ORDER BY max(id) DESC LIMIT ?"
)
_OF_EVENT = (
    "SELECT body FROM site_reactions WHERE site = ? AND number = ? AND tag = ? AND stamp = ? ORDER BY place LIMIT ?"
)

_report = msgspec.msgpack.Decoder(Report)

Reports = list[tuple[str, list[Report]]]
"""Of each event: the site that told of it, and its reactions in their order."""


def keeping(events: Sequence[Event], now: float, metrics: Metrics) -> list[Statement]:
    """The statement that keeps what of these events of sites are reports. A bad one is counted, and an event still."""
    rows = []
    for event in events:
        if not event.tag.startswith(tags.REACTION):
            continue
        try:
            report = report_of(event)
        except Refused as refusal:
            metrics.refused("uplink", refusal.reason, event.site, refusal.detail)
            continue
        body = msgspec.msgpack.encode(report)
        what = (event.site, report.key, report.jid, report.tag, report.stamp, report.number, report.place)
        rows.append((*what, body, now))
    return [(_KEEP, rows)] if rows else []


def pruning(before: float) -> list[Statement]:
    """The statements that let go of what came before then, and of the oldest where there are too many."""
    return [(_OLD, [(before,)]), (_TOO_MANY, [(KEPT,)])]


class SiteReactions:
    """Finds them again."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def of(self, what: str) -> Reports:
        """Those to the event behind a job, or to the newest events with this very tag."""
        found = await self._reader.rows(_BY_JID, (what, EVENTS)) or await self._reader.rows(_BY_TAG, (what, EVENTS))
        return [(site, await self._reports(site, number, tag, stamp)) for site, tag, stamp, number in found]

    async def _reports(self, site: str, number: int, tag: str, stamp: Any) -> list[Report]:
        rows = await self._reader.rows(_OF_EVENT, (site, number, tag, stamp, REACTIONS))
        return [_report.decode(body) for (body,) in rows]
