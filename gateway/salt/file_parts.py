"""Files of a Salt master on their way: the part that is here of each, and what of the disk they may take together.

What somebody asks for keeps its room until it is whole, so one more has to wait where there is none. What nobody asks
for, such as what a crash left behind, gives way.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from device_agent.clock import Clock
from device_agent.errors import Refused
from device_agent.protocol.file_questions import CHUNK_BYTES, FileEntry
from gateway.files.store import mark_of

ASKED_SECONDS: Final = 60.0
"""Whoever had a part gone on with so lately asks again, also where nothing says that it is needed."""

IDLE: Final = 8
"""Most parts that are kept of what nobody asks for."""


class FileParts:
    """The folder. Whatever it does waits for the disk: it is called in a thread, by one at a time that ends there."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._asked: dict[str, tuple[int, float]] = {}
        """How large each becomes of which this process knows, and when it was asked for last."""

    def path(self, sha256: str) -> Path:
        """Where the part of a content is, or would be."""
        return self._folder / sha256

    def is_new(self, sha256: str) -> bool:
        """Whether this process has not begun with it."""
        return sha256 not in self._asked

    def begun(self, entry: FileEntry, most: int, needed: set[str]) -> int:
        """How much of a file is here. Raises ``Refused`` (``busy``) when there is no room for one more.

        ``most`` is what all of them may take when they are whole; those that are ``needed`` give way to none.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self.path(entry.sha256)
        size = part.stat().st_size if part.exists() else 0
        if size > entry.size:
            part.unlink()
            size = 0
        if self.is_new(entry.sha256):
            self._make_room(entry, most, needed)
        self._asked[entry.sha256] = entry.size, self._clock.monotonic()
        return size

    def add(self, sha256: str, offset: int, piece: bytes) -> None:
        """The next piece of a part."""
        with self.path(sha256).open("r+b" if offset else "wb") as file:
            file.seek(offset)
            file.write(piece)

    def judged(self, sha256: str) -> tuple[bytes, bool]:
        """The marks of the chunks, and whether the whole is this content."""
        whole, marks = hashlib.sha256(), []
        with self.path(sha256).open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                whole.update(chunk)
                marks.append(mark_of(chunk))
        return b"".join(marks), whole.hexdigest() == sha256

    def chunk(self, sha256: str, number: int) -> bytes:
        """One of them."""
        with self.path(sha256).open("rb") as file:
            file.seek(number * CHUNK_BYTES)
            return file.read(CHUNK_BYTES)

    def drop(self, sha256: str) -> None:
        """Nobody goes on with it: it is whole, or can never be."""
        self._asked.pop(sha256, None)
        self.path(sha256).unlink(missing_ok=True)

    def _make_room(self, entry: FileEntry, most: int, needed: set[str]) -> None:
        lately = self._clock.monotonic() - ASKED_SECONDS
        kept = needed | {sha256 for sha256, (_, asked) in self._asked.items() if asked > lately}
        here = {part.name: part.stat() for part in self._folder.iterdir() if part.name != entry.sha256}
        # Of what this process has begun, all that is still to come has its room too.
        sizes = {name: found.st_size for name, found in here.items()} | {
            sha256: size for sha256, (size, _) in self._asked.items()
        }
        idle = sorted(sizes.keys() - kept, key=lambda name: here[name].st_mtime if name in here else 0.0)
        over = entry.size + sum(sizes.values()) - most
        for place, name in enumerate(idle):
            if over <= 0 and len(idle) - place <= IDLE:
                break
            self.drop(name)
            over -= sizes[name]
        if over > 0:
            raise Refused("busy", f"{entry.path} has no room beside what is coming already: {over} bytes too many")
