"""Words, values and times as people read them, with nothing in them that a terminal would obey.

What a device says is hostile: every string of the outside passes ``safe`` before it is shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from device_agent.clock import iso
from device_agent.command_line.safe_text import safe
from device_agent.protocol.outcomes import MEANING, Outcome

__all__ = [
    "SHOWN_CHARACTERS",
    "SHOWN_LINES",
    "STYLE",
    "ago",
    "compact",
    "dark_since",
    "meaning",
    "moment",
    "safe",
    "shown",
    "since",
    "tally",
    "value_lines",
]

SHOWN_CHARACTERS = 2000
SHOWN_LINES = 40
"""How much of one value a terminal is shown."""

STYLE: dict[str, str] = {
    Outcome.OK: "green",
    Outcome.FAILED: "red",
    Outcome.REFUSED: "red",
    Outcome.EXPIRED: "yellow",
    Outcome.UNREACHABLE: "yellow",
    Outcome.TIMED_OUT: "yellow",
    Outcome.UNKNOWN: "magenta",
    Outcome.CANCELLED: "dim",
    Outcome.SITE_DARK: "magenta",
}
"""The colour of each outcome, wherever it is shown."""

_WORDS: dict[str, str] = {outcome.value: words for outcome, words in MEANING.items()}


def compact(value: Any) -> str:
    """A value as JSON on one line. It is pure ASCII, so no terminal obeys anything in it."""
    return json.dumps(value, separators=(",", ":"))


def shown(value: Any) -> str:
    """A value on one line: text as it is, anything else as compact JSON; letters stay letters."""
    return safe(value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False))


def value_lines(value: Any, cut: bool) -> list[str]:
    """A value in lines: text as it is, anything else as compact JSON. ``cut`` shortens it, and says so."""
    if not isinstance(value, str):
        lines = [shown(value)]
    else:
        lines = [safe(line.rstrip("\r").expandtabs(8)) for line in value.rstrip("\r\n").split("\n")]
    if not cut:
        return lines
    kept: list[str] = []
    room = SHOWN_CHARACTERS
    for line in lines[:SHOWN_LINES]:
        if len(line) >= room:
            kept.append(line[:room])
            room = 0
            break
        kept.append(line)
        room -= len(line)
    total = sum(map(len, lines))
    if len(kept) < len(lines) or total > SHOWN_CHARACTERS:
        kept.append(f"… cut: {total:,} characters in {len(lines):,} lines; --json or a pipe gives all")
    return kept


def meaning(outcome: str) -> str:
    """What an outcome means, in words; an outcome of a newer station is its own word."""
    return _WORDS.get(outcome) or safe(outcome)


def ago(seconds: float) -> str:
    """A length of time in one unit: ``now``, ``40s``, ``5m``, ``3h``, ``12d``."""
    if seconds < 1:
        return "now"
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def since(seconds: float) -> str:
    """``5m ago``; ``now`` for what has just been, or by another clock will be."""
    age = ago(seconds)
    return age if age == "now" else f"{age} ago"


def moment(wall_seconds: float | None, now: float, nothing: str = "never") -> str:
    """A time, and how long ago that is."""
    if wall_seconds is None:
        return nothing
    return f"{iso(wall_seconds)} ({since(now - wall_seconds)})"


def dark_since(last_seen: float | None) -> str:
    """Since when nothing is heard of a site."""
    return "never heard" if last_seen is None else f"dark since {iso(last_seen)}"


def tally(counts: Mapping[str, int]) -> str:
    """``1,002 ok, 1 unreachable``: the outcomes that there are, in the order of the glossary."""
    known = [outcome.value for outcome in Outcome]
    order = [*known, *sorted(set(counts) - set(known))]
    return ", ".join(f"{counts[outcome]:,} {safe(outcome)}" for outcome in order if counts.get(outcome))
