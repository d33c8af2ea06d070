"""Events of what checks find: when something became wrong, and when it is right again; not at each look.

What was told is a row of the store, written in the commit of the event that tells it. So neither a restart nor a full
disk lets a change be told twice, or never.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct

from device_agent.protocol import tags
from gateway.bus import Bus
from gateway.checks.finding import SEVERITIES, Finding, Severity
from gateway.store.reader import Reader

ROW: Final = "checks_told"
TOLD: Final = ("error", "warning")
"""What is only for information becomes no event of its own, nor does it change one."""

FINDINGS_TOLD: Final = 20
"""So many stand in one event, the worst first; ``more`` says how many do not."""

_KEEP: Final = "INSERT OR REPLACE INTO station (key, value) VALUES (?, ?)"

Known = dict[str, dict[str, Severity]]
"""By check: what it concerns, and how bad it is."""


class News(Struct, frozen=True):
    """One check of which something has changed: how bad the worst is now, and was before."""

    check: str
    severity: Severity
    was: Severity
    findings: list[Finding]


class CheckEvents:
    """Compares what was found with what was told last."""

    def __init__(self, *, bus: Bus, reader: Reader) -> None:
        self._bus = bus
        self._reader = reader
        self._turn = asyncio.Lock()

    async def tell(self, findings: Iterable[Finding]) -> list[News]:
        """Fire an event for each check of which something changed; what those are. Raises ``StoreFailed``."""
        async with self._turn:
            before = await self._known()
            now = wrong(findings)
            news = changed(before, now, findings)
            if news:
                events = [self._bus.event(tags.check(each.check), event_data(each)) for each in news]
                row = (ROW, msgspec.json.encode(now).decode())
                await self._bus.accept(events, beside=[(_KEEP, [row])])
            return news

    async def _known(self) -> Known:
        rows = await self._reader.rows("SELECT value FROM station WHERE key = ?", (ROW,))
        try:
            return msgspec.json.decode(rows[0][0], type=Known) if rows else {}
        except msgspec.DecodeError:
            # Of another release: then everything is told anew.
            return {}


def wrong(findings: Iterable[Finding]) -> Known:
    """What is wrong, by check and by what it concerns."""
    found: Known = {}
    for finding in findings:
        if finding.severity in TOLD:
            of_check = found.setdefault(finding.check, {})
            of_check[finding.about] = worst([finding.severity, of_check.get(finding.about, "ok")])
    return found


def changed(before: Known, now: Known, findings: Iterable[Finding]) -> list[News]:
    """The checks of which something came, went, or became better or worse."""
    listed = list(findings)
    return [
        News(
            check=name,
            severity=worst(now.get(name, {}).values()),
            was=worst(before.get(name, {}).values()),
            findings=[each for each in listed if each.check == name and each.severity in TOLD],
        )
        for name in sorted(before.keys() | now.keys())
        if before.get(name, {}) != now.get(name, {})
    ]


def worst(severities: Iterable[Severity]) -> Severity:
    """The worst of them; ok when there is none."""
    return min(severities, key=SEVERITIES.index, default="ok")


def event_data(news: News) -> dict[str, object]:
    """What the event says."""
    told = [msgspec.to_builtins(each) for each in news.findings[:FINDINGS_TOLD]]
    more = max(0, len(news.findings) - FINDINGS_TOLD)
    return {"check": news.check, "severity": news.severity, "was": news.was, "findings": told, "more": more}
