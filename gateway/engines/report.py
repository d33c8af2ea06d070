"""What an engine says of itself to its station: counts and words, in JSON lines on a pipe, never waited for."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections import Counter
from typing import Any, Final

TELL_SECONDS: Final = 1.0
NAMES: Final = 32
WORDS: Final = 1000

_name = re.compile(r"[a-z][a-z0-9_]{0,39}")


class Report:
    """Counts until the next line. What finds no room in the pipe is told with a later one."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        os.set_blocking(descriptor, False)

    def tell_regularly(self) -> None:
        """From now on in a thread of its own, until the process ends."""
        threading.Thread(target=self._loop, name="report", daemon=True).start()

    def add(self, name: str, amount: int = 1) -> None:
        """Add to a count. Raises ``ValueError`` for what is no name of one, or one too many."""
        if not _name.fullmatch(name) or (name not in self._counts and len(self._counts) >= NAMES):
            raise ValueError(f"{name!r} cannot be counted: small letters, digits and _, at most {NAMES} names")
        with self._lock:
            self._counts[name] += amount

    def said(self, **words: Any) -> None:
        """Say something now."""
        self._write(words)

    def tell(self) -> None:
        """Say what was counted since it was said last."""
        with self._lock:
            fresh = {name: count for name, count in self._counts.items() if count}
            if fresh and self._write({"counts": fresh}):
                for name in fresh:
                    self._counts[name] = 0

    def _loop(self) -> None:
        pause = threading.Event()
        while not pause.wait(TELL_SECONDS):
            self.tell()

    def _write(self, words: dict[str, Any]) -> bool:
        line = json.dumps(words, default=str).encode() + b"\n"
        # A line that fits is written whole (pipe(7): up to 4096 bytes).
        with contextlib.suppress(OSError):
            return len(line) <= 4096 and os.write(self._descriptor, line) == len(line)
        return False
