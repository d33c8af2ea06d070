"""A process whose wall clock jumps while it runs, by libfaketime; this machine's stays as it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


class JumpingClock:
    """What processes that are started ``within`` it believe of the day."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(0)

    def set(self, seconds: int) -> None:
        """From now on so far from the truth."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n", encoding="ascii")
        fresh.replace(self._file)

    @contextmanager
    def within(self) -> Iterator[None]:
        """Processes that are started meanwhile have this clock."""
        assert LIBRARIES, "libfaketime is not installed: apt-get install faketime"
        words = {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
        with patch.dict(os.environ, words):
            yield
