"""The station itself in the API: what it is, how it does, its checks and its counters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec

from gateway.api.operation import Answer, Asked, Operation
from gateway.checks.finding import Facts, Finding

Check = Callable[[Facts], Awaitable[list[Finding]]]


class StationFacts(Facts, Protocol):
    """What this noun shows."""

    async def metrics_text(self) -> str:
        """The counters in Prometheus' text format."""


class StationApi:
    """Operations on the station."""

    def __init__(self, facts: StationFacts, checks: Sequence[Check]) -> None:
        self._facts = facts
        self._checks = checks

    def operations(self) -> list[Operation]:
        """The table."""
        return [
            Operation("GET", "/station", "What this station is, and how it does", self._show),
            Operation("GET", "/check", "Every check, with what mends what", self._check),
            Operation("GET", "/metrics", "Counters for Prometheus", self._metrics, text=True),
        ]

    async def _show(self, _: Asked) -> Answer:
        return await self._facts.station_view()

    async def _check(self, _: Asked) -> Answer:
        findings: list[Any] = []
        for check in self._checks:
            findings += await check(self._facts)
        return {"findings": [msgspec.structs.asdict(finding) for finding in findings]}

    async def _metrics(self, _: Asked) -> Answer:
        return await self._facts.metrics_text()
