"""What the functions of ``service`` want of whatever starts the services of a device."""

from __future__ import annotations

from typing import Literal, Protocol

from device_agent.commands import Said

Verb = Literal["start", "stop", "restart", "reload", "force-reload"]


class InitSystem(Protocol):
    """The services of one host."""

    async def names(self) -> list[str]:
        """Every service it knows."""

    async def states(self) -> dict[str, bool]:
        """By service, whether it starts by itself; those that have no such choice are left out."""

    async def available(self, name: str) -> bool:
        """There is such a service."""

    async def running(self, name: str) -> bool:
        """It runs now."""

    async def act(self, name: str, verb: Verb) -> Said:
        """Start it, stop it and so on."""

    async def starts(self, name: str) -> bool:
        """It starts by itself when the device does."""

    async def set_starts(self, name: str, starts: bool) -> Said:
        """Have it start by itself, or not."""
