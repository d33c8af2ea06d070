"""The event bus of a stock Salt master, as ``salt-run state.event`` shows it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.peers.salt_daemon import SaltDaemon

MARK = "salt/test-bed/listens"


class Bus:
    """What was on the bus since it is listened to."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def events(self, tags: str = "*") -> list[tuple[str, dict[str, Any]]]:
        """Tags and data of all so far whose tag matches this glob."""
        found = []
        for line in self._file.read_text(encoding="utf-8").splitlines(keepends=True):
            tag, tab, data = line.partition("\t")
            if tab and line.endswith("\n") and tag != MARK and fnmatchcase(tag, tags):
                found.append((tag, json.loads(data)))
        return found

    def told(self) -> str:
        """All that was printed, as it is."""
        return self._file.read_text(encoding="utf-8")


@contextmanager
def listening(master: SaltDaemon) -> Iterator[Bus]:
    """Listen to a master's bus; from when the block begins nothing is missed."""
    number = next(NUMBERS)
    file = master.folder / f"bus-{number}"
    with file.open("w", encoding="utf-8") as out, master.started("salt-run", "state.event", out=out) as process:
        bus = Bus(file)

        def heard() -> bool:
            assert process.poll() is None, f"salt-run state.event ended: {bus.told()}"
            sent = master.run("salt-run", "event.send", MARK)
            assert sent.status == 0, sent
            return MARK in bus.told()

        master.until(heard, "salt-run state.event listens")
        yield bus


NUMBERS = itertools.count()
