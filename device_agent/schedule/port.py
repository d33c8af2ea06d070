"""What a function may ask of the schedule of the device that it runs on."""

from __future__ import annotations

from datetime import tzinfo
from typing import Any, Literal, Protocol

from device_agent.trust.reach import Reach

Where = Literal["opts", "pillar"]


class Schedule(Protocol):
    """The schedule of one device. Names are those of its entries; times are seconds since 1970."""

    @property
    def zone(self) -> tzinfo:
        """The zone that its times are said in."""

    @property
    def enabled(self) -> bool:
        """Whether it runs as a whole."""

    def written(self, where: Where | None = None) -> dict[str, dict[str, Any]]:
        """Its entries as they were written: of the pillar, of everything else (``opts``), or all."""

    def kept(self) -> dict[str, dict[str, Any]]:
        """The entries that were added or changed, and are kept on the device."""

    def is_pillar(self, name: str) -> bool:
        """Whether an entry is one of the pillar."""

    def status(self, name: str) -> dict[str, Any]:
        """What was done of an entry, and what comes, under Salt's names; times are seconds."""

    def next_fire(self, name: str) -> float | None:
        """When an entry runs next."""

    async def put(self, name: str, value: dict[str, Any], reach: Reach | None, *, persist: bool) -> None:
        """Add an entry or change it. Raises ``ScheduleInvalid``, and ``OSError`` where it cannot be kept."""

    async def remove(self, name: str, *, persist: bool) -> None:
        """Take an entry away. Raises ``OSError`` where that cannot be kept."""

    async def switch(self, name: str | None, *, on: bool, persist: bool) -> None:
        """Switch an entry on or off; without a name the whole schedule. Raises ``OSError``."""

    async def move(self, name: str, at: float, to: float | None) -> None:
        """Skip an entry at one time, and run it at another where one is named. Raises ``OSError``."""

    async def run(self, name: str) -> str:
        """Run an entry now, beside its times; the jid of the run. Raises ``OSError``."""

    async def save(self) -> None:
        """Keep all that was changed. Raises ``OSError``."""

    async def reload(self) -> bool:
        """Only what was kept counts, and the pillar is asked for; whether that has a schedule.

        Raises ``FunctionFailed`` when the station gives no pillar.
        """
