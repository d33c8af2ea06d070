"""What the functions of ``beacons`` ask of a device's beacons."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class Changed(NamedTuple):
    """Whether something was changed, and Salt's words for why not."""

    done: bool
    why: str = ""


class OwnBeacons(Protocol):
    """The beacons of a device."""

    def listed(self, *, pillar: bool = True, own: bool = True) -> dict[str, Any]:
        """What is configured, by name; ``enabled`` is whether any runs, if that was ever said."""

    def available(self) -> list[str]:
        """The beacons that there are."""

    def wrong(self, name: str, data: Any) -> str:
        """What is wrong with a configuration; nothing when nothing is."""

    def put(self, name: str, data: Any) -> Changed:
        """Configure one, new or changed."""

    def delete(self, name: str) -> Changed:
        """Take one away."""

    def enable(self, name: str | None, *, enabled: bool) -> Changed:
        """Have one run or not; without a name all of them."""

    def reset(self) -> None:
        """Take all of them away."""

    async def save(self) -> str:
        """Have what counts now count at the next start, and say where that stands. Raises ``OSError``."""
