"""Follows a text file as ``tail -F`` does: what is added to it, also after it was rotated or cut. Bounded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

READ_BYTES: Final = 1024 * 1024
LINE_BYTES: Final = 8192


class Tail:
    """One file. A line is told when its end is there; one that is too long is cut, and counted in ``cut``."""

    def __init__(self, place: Path, *, from_start: bool = False) -> None:
        self.place = place
        self.cut = 0
        self._descriptor: int | None = None
        self._inode = 0
        self._at = 0
        self._rest = b""
        self._skipping = False
        self._from_start = from_start

    def lines(self) -> list[str]:
        """What came since the last call, at most ``READ_BYTES`` of it. A file that is not there has no lines."""
        if self._descriptor is None and not self._open():
            return []
        found = self._read()
        if not found and self._moved():
            # What was written to the old one until now is read before it is let go.
            found = self._read()
            self.close()
            self._from_start = True
        return found

    def close(self) -> None:
        """Let the file go."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor, self._rest, self._skipping = None, b"", False

    def _open(self) -> bool:
        try:
            descriptor = os.open(self.place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            # One that comes later is new in the whole.
            self._from_start = True
            return False
        told = os.fstat(descriptor)
        self._descriptor, self._inode = descriptor, told.st_ino
        self._at = 0 if self._from_start else told.st_size
        return True

    def _moved(self) -> bool:
        assert self._descriptor is not None
        try:
            told = self.place.stat()
        except OSError:
            return True
        if told.st_ino != self._inode:
            return True
        if told.st_size < self._at:
            self._at, self._rest = 0, b""
        return False

    def _read(self) -> list[str]:
        assert self._descriptor is not None
        piece = os.pread(self._descriptor, READ_BYTES, self._at)
        self._at += len(piece)
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if lines and self._skipping:
            del lines[0]
            self._skipping = False
        if len(self._rest) > LINE_BYTES:
            # Its beginning is told now, and the rest of it never.
            if not self._skipping:
                lines.append(self._rest)
            self._rest, self._skipping = b"", True
        self.cut += sum(len(line) > LINE_BYTES for line in lines)
        return [line[:LINE_BYTES].decode("utf-8", "replace") for line in lines]
