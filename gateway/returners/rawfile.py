"""The returner ``rawfile_json``, as Salt's: each return is a line of JSON at the end of a file."""

from __future__ import annotations

import fcntl
import json
import os
from functools import partial
from typing import Final

from gateway.returners.own_thread import OwnThread
from gateway.returners.returned import NotReturned, Returned
from gateway.returners.settings import RawfileSettings

MODE: Final = 0o640


class RawfileReturner:
    """Adds lines, and has them on disk before it says so."""

    most: int = 200

    def __init__(self, settings: RawfileSettings) -> None:
        self._place = settings.filename
        self._thread = OwnThread()

    async def send(self, returns: list[Returned]) -> None:
        """Raises ``NotReturned``."""
        lines = "".join(json.dumps(each.fields(), default=str) + "\n" for each in returns)
        try:
            await self._thread.call(partial(self._add, lines.encode()))
        except OSError as error:
            raise NotReturned(f"{self._place}: {error.strerror or error}") from None

    def _add(self, lines: bytes) -> None:
        descriptor = os.open(self._place, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)
        try:
            # Others who write to it, as several of Salt's processes do, wait for their turn the same way.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            before = os.fstat(descriptor).st_size
            try:
                while lines:
                    lines = lines[os.write(descriptor, lines) :]
                os.fsync(descriptor)
            except OSError:
                # Nothing half written stays where a full disk has ended it.
                os.ftruncate(descriptor, before)
                raise
        finally:
            os.close(descriptor)
