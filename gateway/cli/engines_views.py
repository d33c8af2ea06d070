"""What the API says of engines, as types."""

from __future__ import annotations

from msgspec import Struct


class EngineView(Struct, frozen=True, kw_only=True):
    """An engine. ``why``: how its last life ended; ``again_at``: when the next one begins."""

    name: str
    module: str
    state: str
    source: str = ""
    pid: int | None = None
    since: float = 0.0
    starts: int = 0
    why: str = ""
    again_at: float | None = None
    counts: dict[str, int] = {}


class EnginePage(Struct, frozen=True):
    """All engines, in the order of the settings."""

    engines: list[EngineView]
