"""Lengths of time as they are typed: ``30s``, ``5m``, ``2h``, ``1d``."""

from __future__ import annotations

import math
import re

from device_agent.errors import UsageInvalid

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])\Z", re.ASCII)
NUMBER = re.compile(r"[0-9]{1,6}", re.ASCII)


def duration(option: str, text: str, longest: float = math.inf) -> float:
    """Seconds from ``30s``, ``5m``, ``2h`` or ``1d``. Raises ``UsageInvalid``, also for more than the longest."""
    match = DURATION.match(text)
    seconds = float(match[1]) * UNITS[match[2]] if match is not None else 0.0
    if not 0 < seconds <= longest:
        raise UsageInvalid(
            f"this is too long for {option}" if seconds > longest else f"{option} takes a length of time",
            found=repr(text),
            allowed="a number and a unit: 30s, 5m, 2h or 1d"
            + (f"; at most {written(longest)}" if longest < math.inf else ""),
            hint=f"{option} {text}m" if NUMBER.fullmatch(text) and 0 < float(text) * UNITS["m"] <= longest else None,
        )
    return seconds


def written(seconds: float) -> str:
    """A length of time as it is typed, in the largest unit that fits it whole."""
    size, unit = max((size, unit) for unit, size in UNITS.items() if seconds % size == 0)
    return f"{seconds / size:g}{unit}"
