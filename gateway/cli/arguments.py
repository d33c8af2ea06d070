"""What is typed after a function's name, and lengths of time, as values.

Arguments read as in Salt (``salt.utils.args``, ``yamlify_arg``): YAML, where only a list or a dict in its brackets is
one, and text that YAML would lose or turn into something JSON cannot carry stays the text it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from device_agent.errors import UsageInvalid

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])\Z", re.ASCII)
NAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(?!=)(.*)\Z", re.DOTALL)


def duration(text: str, longest: float = math.inf) -> float:
    """Seconds from ``30s``, ``5m``, ``2h`` or ``1d``. Raises ``UsageInvalid``, also for more than the longest."""
    match = DURATION.match(text)
    if match is None or float(match[1]) <= 0:
        raise UsageInvalid(f"a length of time is written like 30s, 5m, 2h or 1d; found {text!r}")
    seconds = float(match[1]) * UNITS[match[2]]
    if seconds > longest:
        raise UsageInvalid(f"at most {written(longest)}; found {text!r}")
    return seconds


def written(seconds: float) -> str:
    """A length of time as it is typed, in the largest unit that fits it whole."""
    size, unit = max((size, unit) for unit, size in UNITS.items() if seconds % size == 0)
    return f"{seconds / size:g}{unit}"


def split_arguments(typed: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """The positional and the named arguments of a function. Raises ``UsageInvalid``."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for text in typed:
        match = NAMED.match(text)
        if match is None:
            positional.append(value(text))
        elif match[1] in named:
            raise UsageInvalid(f"the argument {match[1]} is given twice")
        else:
            named[match[1]] = value(match[2])
    return positional, named


def value(text: str) -> Any:
    """One argument as a value. Raises ``UsageInvalid`` for a dict whose keys are not text."""
    import yaml

    # A `#` after a space would silently end the value, and `1_000` and `12:30` would become numbers nobody typed.
    if not text.strip() or text in ("|", "!") or re.fullmatch(r"[-+]?[0-9_:.]*[_:][0-9_:.]*", text):
        return text
    if text == "None":
        return None
    try:
        parsed = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text
    if "#" in text and (parsed is None or isinstance(parsed, str)):
        return text
    if (isinstance(parsed, dict) and not text.lstrip().startswith("{")) or (
        isinstance(parsed, list) and not text.lstrip().startswith("[")
    ):
        return text
    try:
        return parsed if carried(parsed) else text
    except RecursionError:
        raise UsageInvalid("an argument contains itself", found=text) from None


def carried(parsed: object) -> bool:
    """Whether JSON can carry it: no dates, sets, bytes, infinities."""
    if isinstance(parsed, float):
        return math.isfinite(parsed)
    if isinstance(parsed, list):
        return all(map(carried, parsed))
    if isinstance(parsed, dict):
        for key in parsed:
            if not isinstance(key, str):
                raise UsageInvalid(f"a key in an argument must be text: write '{key}' in quotes, found {key!r}")
        return all(map(carried, parsed.values()))
    return parsed is None or isinstance(parsed, (str, bool, int))
