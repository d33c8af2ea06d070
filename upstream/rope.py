"""What a station needs of its uplink, whatever masters are at the other end of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from device_agent.questions import PATIENCE_SECONDS

Ask = Callable[[str, bytes], Awaitable[bytes]]
"""The body of an answer. Raises ``Refused`` and ``Unanswered``."""


class Rope(Protocol):
    """``upstream.uplink.Uplink`` to our own masters, ``upstream.salt.uplink.SaltUplink`` to Salt's."""

    def status(self) -> dict[str, Any]:
        """Where the active link stands, or the best one; and all links."""

    @property
    def cut_until(self) -> float | None:
        """Until when it is cut on purpose, in wall seconds; None when it is not."""

    def cut(self, seconds: float) -> None:
        """Lose every link without a word, and connect to nobody for so long."""

    def mend(self) -> None:
        """Connect again before its time."""

    async def reseal(self, site: str, jid: str, reason: str, master: str = "") -> None:
        """Ask whoever gave a job for new seals; nobody is asked where a master does not seal."""

    async def ask(self, about: str, body: bytes = b"", *, patience: float = PATIENCE_SECONDS) -> bytes:
        """The body of a master's answer. Raises ``Refused`` with its reason, and ``Unanswered``."""

    def askable(self) -> dict[str, Ask]:
        """The masters that are there, by name, each to be asked by itself."""
