"""The outage drill: the uplink is cut on purpose, for a time, while the site works on.

It ends by itself, also when whoever began it is gone, and with a restart of the station.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from device_agent.clock import iso
from device_agent.errors import UsageInvalid
from device_agent.protocol import tags
from gateway.bus import Bus

LONGEST_SECONDS = 86_400.0


class Cutting(Protocol):
    """An uplink that can be cut."""

    def cut(self, seconds: float) -> None:
        """Lose every link, and connect to nobody for so long."""

    def mend(self) -> None:
        """Connect again."""

    @property
    def cut_until(self) -> float | None:
        """Until when it is cut, in wall seconds; None when it is not."""


class Drill:
    """Begins and ends drills."""

    def __init__(self, uplink: Callable[[], Cutting | None], bus: Bus) -> None:
        self._uplink = uplink
        self._bus = bus

    async def begin(self, seconds: float, user: str) -> dict[str, Any]:
        """Cut the uplink. Raises ``UsageInvalid`` for a length that is none, and where it cannot be."""
        if not 0 < seconds <= LONGEST_SECONDS:
            raise UsageInvalid(
                "the length of a drill is out of range",
                where="seconds",
                found=f"{seconds:g}",
                allowed=f"more than 0 and at most {LONGEST_SECONDS:.0f}",
            )
        uplink = self._there()
        if uplink.cut_until is not None:
            raise UsageInvalid(
                "a drill is under way already",
                error_id="drill.running",
                found=f"the uplink is cut until {iso(uplink.cut_until)}",
                allowed="one at a time",
                hint="wait for its end, or: outstation spool drill --end",
            )
        await self._tell("begun", user, seconds=seconds)
        uplink.cut(seconds)
        return self.view()

    async def end(self, user: str) -> dict[str, Any]:
        """Mend the uplink before its time; nothing happens when it is whole. Raises ``UsageInvalid``."""
        uplink = self._there()
        if uplink.cut_until is not None:
            uplink.mend()
            await self._tell("ended", user)
        return self.view()

    def view(self) -> dict[str, Any]:
        """Whether there is a drill, as the API shows it."""
        uplink = self._uplink()
        until = uplink.cut_until if uplink is not None else None
        return {"running": until is not None, "until": until}

    def _there(self) -> Cutting:
        uplink = self._uplink()
        if uplink is None:
            raise UsageInvalid(
                "this station has no uplink to cut",
                error_id="drill.no_uplink",
                allowed="a gateway with a master above it",
                hint="run the drill there; what a master was told of its sites' spools: outstation spool status",
            )
        return uplink

    async def _tell(self, what: str, user: str, **more: object) -> None:
        await self._bus.fire([self._bus.event(tags.drill(self._bus.site), {"drill": what, "user": user, **more})])
