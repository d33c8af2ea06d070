"""The station itself in the API: what it is, how it does, its checks and its counters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from gateway.api.operation import Answer, Asked, Operation
from gateway.checks.check_events import News
from gateway.checks.every import CHECKS, Check, look, worst_first
from gateway.checks.finding import Facts, Finding
from gateway.store.writer import StoreFailed


class StationFacts(Facts, Protocol):
    """What this noun shows."""

    async def metrics_text(self) -> str:
        """The counters in Prometheus' text format."""


class Teller(Protocol):
    """Makes events of what has changed."""

    async def tell(self, findings: Sequence[Finding]) -> list[News]:
        """Of which checks something has changed. Raises ``StoreFailed``."""


class StationApi:
    """Operations on the station."""

    def __init__(self, facts: StationFacts, check_events: Teller, checks: Sequence[Check] = CHECKS) -> None:
        self._facts = facts
        self._check_events = check_events
        self._checks = checks

    def operations(self) -> list[Operation]:
        """The table."""
        return [
            Operation("GET", "/station", "What this station is, and how it does", self._show),
            Operation("GET", "/check", "Every check, with what mends what", self._check),
            # What it tells is the station's own: whoever may look at the findings may have them told.
            Operation("POST", "/check", "The same, and events of what has changed since", self._tell, needs="view"),
            Operation("GET", "/metrics", "Counters for Prometheus", self._metrics, text=True),
        ]

    async def _show(self, _: Asked) -> Answer:
        return await self._facts.station_view()

    async def _check(self, _: Asked) -> Answer:
        return {"findings": msgspec.to_builtins(await look(self._facts, self._checks))}

    async def _tell(self, _: Asked) -> Answer:
        findings = await look(self._facts, self._checks)
        news: list[News] = []
        try:
            news = await self._check_events.tell(findings)
        except StoreFailed as error:
            untold = Finding(
                check="events",
                severity="error",
                finding=f"what has changed could not be told: {error.what}",
                meaning="no rule and no master hears of it until the store takes events again",
                fix="outstation check; look at the findings about the disk and the store",
            )
            findings = worst_first([untold, *findings])
        return {"findings": msgspec.to_builtins(findings), "news": msgspec.to_builtins(news)}

    async def _metrics(self, _: Asked) -> Answer:
        return await self._facts.metrics_text()
