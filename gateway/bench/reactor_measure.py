"""What ``bench reactor`` does to either side: events one at a time, and all at once, each until its deed is known.

It imports nothing but Python's own library, and is read by the interpreter of stock Salt as well.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, Final, Protocol

FIRED: Final = {"runner": "bench/runner", "local": "bench/local"}
"""The tag of the events of each kind of reaction."""

DONE: Final = "bench/done"
"""What the runner's reaction fires. That of a job is its return."""

ONE_SECONDS: Final = 60.0


class Line(Protocol):
    """The way into one side's event bus and out of it."""

    def fire(self, events: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Fire these events, in this order."""

    def next(self, seconds: float) -> tuple[str, dict[str, Any]] | None:
        """The next event that may be a deed, or None after so many seconds."""


def alone(line: Line, kind: str, run: str, count: int) -> dict[str, Any]:
    """One event after another, each when the deed of the one before is known: the seconds that each took."""
    took = []
    for number in range(count):
        key = f"{run}-{number}"
        begun = time.monotonic()
        line.fire([(FIRED[kind], {"key": key})])
        if not _deeds(line, {key}, {}, begun + ONE_SECONDS):
            break
        took.append(time.monotonic() - begun)
    return {"ok": len(took), "seconds": sum(took), "took": took}


def burst(line: Line, kind: str, run: str, count: int, at_once: int, seconds: float) -> dict[str, Any]:
    """All events at once: the seconds from the first until each deed, and until the last."""
    keys = [f"{run}-{number}" for number in range(count)]
    fired: dict[str, float] = {}

    def fire() -> None:
        for first in range(0, count, at_once):
            some = keys[first : first + at_once]
            fired.update(dict.fromkeys(some, time.monotonic()))
            line.fire([(FIRED[kind], {"key": key}) for key in some])

    firing = threading.Thread(target=fire, name="fire")
    begun = time.monotonic()
    firing.start()
    done: dict[str, float] = {}
    _deeds(line, set(keys), done, begun + seconds)
    firing.join()
    took = [when - fired[key] for key, when in done.items()]
    return {"ok": len(done), "seconds": max(done.values(), default=begun) - begun, "took": took}


def ready(line: Line, seconds: float) -> dict[str, Any]:
    """Fire until a deed of each kind is known: whoever does it is there, and all is loaded."""
    deadline = time.monotonic() + seconds
    for kind in FIRED:
        number = 0
        while True:
            number += 1
            key = f"ready-{kind}-{number}"
            line.fire([(FIRED[kind], {"key": key})])
            if _deeds(line, {key}, {}, min(deadline, time.monotonic() + 5.0)):
                break
            if time.monotonic() > deadline:
                return {"ok": 0, "found": f"no {kind} reaction within {seconds:.0f} s"}
    return {"ok": 1}


def _deeds(line: Line, wanted: set[str], done: dict[str, float], deadline: float) -> bool:
    """Wait for these deeds; whether all came. ``done`` gets the time of each."""
    waiting = set(wanted)
    while waiting and (left := deadline - time.monotonic()) > 0:
        event = line.next(left)
        if event is None:
            continue
        key = _key(*event)
        if key in waiting:
            waiting.discard(key)
            done[key] = time.monotonic()
    return not waiting


def _key(tag: str, data: dict[str, Any]) -> str:
    """Which event a deed is of."""
    if tag == DONE:
        return str(data.get("key", ""))
    words = tag.split("/")
    return str(data.get("return", "")) if words[:2] == ["salt", "job"] and words[3:4] == ["ret"] else ""
