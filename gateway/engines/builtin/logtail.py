"""Follows text files of this machine, and fires an event for each line that matches."""

from __future__ import annotations

import glob
import logging
import re
import time
from pathlib import Path
from typing import Any, Final

from device_agent.errors import NotRunning, OutstationError
from gateway.engines.context import current
from gateway.engines.event_bus import EventBus
from gateway.engines.tail import Tail

log = logging.getLogger(__name__)

FILES: Final = 100
LOOK_AGAIN_SECONDS: Final = 5.0


def start(
    path: str | list[str],
    pattern: str,
    tag: str = "site/log/line",
    interval: float = 1.0,
    per_minute: int = 600,
    from_start: bool = False,
) -> None:
    """Follow for ever. ``path``: globs; ``pattern``: a regular expression that is searched for in each line.

    Its named groups are in the data of the event, beside ``path`` and ``line``. Lines above ``per_minute`` are counted
    and fire nothing. Raises ``ValueError`` for options that make no sense.
    """
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern: {pattern!r} is no regular expression: {error}") from None
    if {"path", "line"} & wanted.groupindex.keys():
        raise ValueError(f"pattern: {pattern!r} has a group path or line: these are what is always there")
    if not 0.1 <= interval <= 3600 or per_minute < 1:
        raise ValueError(f"interval is 0.1 to 3600 seconds and per_minute at least 1, not {interval} and {per_minute}")
    following = Following(
        [path] if isinstance(path, str) else path, wanted, tag, per_minute=per_minute, from_start=from_start
    )
    while True:
        following.turn(time.monotonic())
        time.sleep(interval)


class Following:
    """The files, what they matched, and how much of it may be told."""

    def __init__(
        self, globs: list[str], wanted: re.Pattern[str], tag: str, *, per_minute: int, from_start: bool
    ) -> None:
        self._globs = globs
        self._wanted = wanted
        self._tag = tag
        self._per_minute = per_minute
        self._from_start = from_start
        self._tails: dict[str, Tail] = {}
        self._gone: set[str] = set()
        self._looked = float("-inf")
        self._looks = 0
        self._minute = float("-inf")
        self._told = 0
        self._report = current().report
        self._bus = EventBus(current(), listen=False)

    def turn(self, now: float) -> None:
        """Look at every file once."""
        if now - self._looked >= LOOK_AGAIN_SECONDS:
            self._looked = now
            self._looks += 1
            self._look()
        if now - self._minute >= 60.0:
            self._minute, self._told = now, 0
        events: list[dict[str, Any]] = []
        for tail in self._tails.values():
            try:
                lines, cut = tail.lines(), tail.cut
            except OSError as error:
                self._report.add("unreadable")
                log.error("cannot be read path=%s error=%s", tail.place, error.strerror)
                continue
            if cut:
                self._report.add("lines_cut", cut)
                tail.cut = 0
            events += [
                self._event(str(tail.place), line, match) for line in lines if (match := self._wanted.search(line))
            ]
        self._fire(events)

    def _event(self, path: str, line: str, match: re.Match[str]) -> dict[str, Any]:
        return {**match.groupdict(), "path": path, "line": line}

    def _fire(self, events: list[dict[str, Any]]) -> None:
        room = max(0, self._per_minute - self._told)
        if len(events) > room:
            self._report.add("too_many", len(events) - room)
        for data in events[:room]:
            try:
                self._bus.fire_event(data, self._tag)
            except NotRunning:
                raise
            except OutstationError as error:
                self._report.add("refused")
                log.error("an event was refused tag=%s error=%s", self._tag, error)
        self._told += min(room, len(events))

    def _look(self) -> None:
        found = sorted({name for each in self._globs for name in glob.glob(each)})  # noqa: PTH207 - a pattern from the top of the file system
        if len(found) > FILES:
            self._report.add("too_many_files", len(found) - FILES)
            log.error("too many files match, the first %d are followed found=%d", FILES, len(found))
        for name in found[:FILES]:
            if name not in self._tails:
                # Of a file that appears later the whole is new.
                self._tails[name] = Tail(Path(name), from_start=self._from_start or self._looks > 1)
        # One that is being rotated is not there for a moment: it is let go at the second look.
        gone = set(self._tails) - set(found)
        for name in gone & self._gone:
            self._tails.pop(name).close()
        self._gone = gone
