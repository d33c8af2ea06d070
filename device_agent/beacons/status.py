"""``status``: what the functions of the module of this name say, at each look."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

from device_agent.beacons.given import Given
from device_agent.beacons.port import Around, Found, Looking
from device_agent.clock import stamp

INTERVAL_SECONDS: Final = 60.0
DEFAULT: Final = ("loadavg", "cpustats", "meminfo", "vmstats", "time")
ALL: Final = "all"
_NAME: Final = re.compile(r"[a-z][a-z_]{0,31}")


class Status(Looking):
    """Each option is a function of ``status``, with the items of its answer that are told, or ``all``."""

    interval: ClassVar[float] = INTERVAL_SECONDS

    def __init__(self, given: Given) -> None:
        self._wanted: dict[str, list[Any]] = {}
        for name, items in given.items:
            if not _NAME.fullmatch(name):
                raise given.wrong(f"has no option {name[:80]}.", name[:80], "- loadavg: [all]")
            self._wanted[name] = items if isinstance(items, list) else [items]
        self._wanted = self._wanted or {name: [ALL] for name in DEFAULT}

    async def look(self, around: Around) -> list[Found]:
        """All of it in one event, whose tag ends with the time."""
        told: dict[str, Any] = {}
        for name, items in self._wanted.items():
            ended = await around.call(f"status.{name}", {})
            if ended.outcome != "ok":
                told[name] = f"Status beacon is incorrectly configured: {ended.why}"
                continue
            told[name] = ended.value if ALL in items else _items(ended.value, items)
        # As Salt writes it: an offset behind the time.
        return [Found({"data": told}, tag=f"{stamp(around.clock.wall())}+00:00")]


def _items(value: Any, items: list[Any]) -> Any:
    if not isinstance(value, dict | list) and items in ([0], ["0"]):
        # Of a single value it means all of it.
        return value
    found: dict[str, Any] = {}
    for item in items:
        try:
            found[str(item)] = value[item] if isinstance(value, dict) else value[int(item)]
        except (LookupError, TypeError, ValueError):
            return f"Status beacon is incorrectly configured: {item!r} is not in it"
    return found
