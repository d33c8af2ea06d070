"""Writes the events of the station to a file, one JSON object on each line: the first engine of Salt's own pages.

The file is begun anew when it is large, as ``path.1`` … ``path.N``; the oldest goes.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any, TextIO

from gateway.engines.context import current
from gateway.engines.event_bus import EventBus

log = logging.getLogger(__name__)

MODE = 0o640
WAIT_SECONDS = 1.0
REOPEN_LINES = 1000


def start(path: str, tag: str = "", max_megabytes: float = 100.0, keep: int = 5) -> None:
    """Write for ever. ``tag``: how the tags that are written begin. Raises ``OSError`` where the file cannot be."""
    if max_megabytes <= 0 or not 0 <= keep <= 1000:
        raise ValueError(f"max_megabytes is above 0 and keep 0 to 1000, not {max_megabytes} and {keep}")
    place, most, report = Path(path), int(max_megabytes * 1024 * 1024), current().report
    with EventBus(current()) as bus:
        file = _opened(place)
        try:
            log.info("events are written to %s", place)
            while True:
                event = bus.get_event(wait=WAIT_SECONDS, tag=tag, full=True)
                if event is None:
                    file.flush()
                    continue
                file.write(_line(event))
                report.add("written")
                if file.tell() > most or not _same(file, place):
                    file.close()
                    _turn(place, keep, most)
                    file = _opened(place)
        finally:
            file.close()


def _line(event: dict[str, Any]) -> str:
    return json.dumps(event, default=str) + "\n"


def _opened(place: Path) -> TextIO:
    descriptor = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)
    return os.fdopen(descriptor, "a", encoding="utf-8", buffering=1)


def _same(file: TextIO, place: Path) -> bool:
    """Whether it still stands at its place: logrotate(8) may have moved it."""
    try:
        return os.fstat(file.fileno()).st_ino == place.stat().st_ino
    except OSError:
        return False


def _turn(place: Path, keep: int, most: int) -> None:
    if not place.exists() or place.stat().st_size <= most:
        return
    if keep == 0:
        place.unlink()
        return
    for number in range(keep, 0, -1):
        older = place.with_name(f"{place.name}.{number - 1}") if number > 1 else place
        if older.exists():
            older.replace(place.with_name(f"{place.name}.{number}"))
