"""Files that devices hand over with ``cp.push``: taken where that is allowed, bounded, judged by their hash.

What a device hands over lies under its name and the path it had there. A piece is taken when it is the next one, or the
first one anew; the last one has the file in place when its hash is right.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path
from typing import Final

from device_agent.errors import Refused
from device_agent.protocol.file_questions import PUSH, PushPiece, decode, sound_path
from gateway.answers import Answers
from gateway.files.settings import FilesSettings
from gateway.metrics import Metrics

MEGABYTE: Final = 1_000_000
FILES_MOST: Final = 1000
"""Files that are kept of one device."""

FOLDERS_DEEP: Final = 32
"""Folders that one of them may lie in: each is one more on the station's disk."""


class Received:
    """The folder of what was handed over."""

    def __init__(self, folder: Path, settings: FilesSettings, metrics: Metrics) -> None:
        self._folder = folder
        self._allowed = settings.receive
        self._most = settings.receive_megabytes * MEGABYTE
        self._metrics = metrics
        self._locks: dict[str, asyncio.Lock] = {}

    def answer(self, desk: Answers) -> None:
        """Take what devices hand over."""
        desk.about(PUSH, self._take)

    async def _take(self, asker: str, body: bytes) -> bytes:
        if not self._allowed:
            raise Refused("not_taken", "this station takes no files: files.receive is off")
        piece = decode(body, PushPiece)
        sound_path(piece.path)
        if asker in ("", ".", "..") or "/" in asker:
            raise Refused("bad_path", "a device of that name has no folder")
        if piece.size > self._most or piece.offset + len(piece.data) > piece.size:
            raise Refused("too_large", f"{piece.path}: {piece.size} bytes, at most {self._most}")
        if piece.path.count("/") > FOLDERS_DEEP:
            raise Refused("bad_path", f"{piece.path[:200]}: in more than {FOLDERS_DEEP} folders")
        lock = self._locks.setdefault(asker, asyncio.Lock())
        async with lock:
            await asyncio.to_thread(self._keep, asker, piece)
        self._metrics.add("files_received_bytes", len(piece.data))
        return b""

    def _keep(self, asker: str, piece: PushPiece) -> None:
        place, parts = self._folder / asker / "files", self._folder / asker / "parts"
        # There was room for this file, of this size, at this path: with another the part is not gone on with.
        part = parts / hashlib.sha256(f"{piece.sha256} {piece.size} {piece.path}".encode()).hexdigest()
        try:
            parts.mkdir(parents=True, exist_ok=True)
            if piece.offset == 0:
                for left in parts.iterdir():
                    # One at a time: what was begun before is not gone on with once another file is.
                    left.unlink()
                self._check_room(place, piece)
            with part.open("r+b" if piece.offset else "wb") as file:
                if file.seek(0, os.SEEK_END) < piece.offset:
                    raise Refused("out_of_order", f"{piece.path}: begin anew")
                file.truncate(piece.offset)
                file.seek(piece.offset)
                file.write(piece.data)
            if piece.offset + len(piece.data) == piece.size:
                self._finish(place / piece.path, part, piece)
        except FileNotFoundError:
            if not _is_there(place / piece.path, piece):
                raise Refused("out_of_order", f"{piece.path}: begin anew") from None
        except OSError as error:
            raise Refused("disk_failed", f"the station's disk: {error.strerror}") from None

    def _check_room(self, place: Path, piece: PushPiece) -> None:
        there = [path for path in place.rglob("*") if path.is_file()] if place.is_dir() else []
        others = [path.stat().st_size for path in there if path != place / piece.path]
        if sum(others) + piece.size > self._most or len(others) >= FILES_MOST:
            most = f"at most {self._most} bytes in {FILES_MOST} files"
            raise Refused("too_large", f"{sum(others)} bytes in {len(others)} files are here already, {most}")

    @staticmethod
    def _finish(target: Path, part: Path, piece: PushPiece) -> None:
        with part.open("rb") as file:
            right = hashlib.file_digest(file, "sha256").hexdigest() == piece.sha256
            os.fsync(file.fileno())
        if not right:
            part.unlink()
            raise Refused("corrupt", f"{piece.path} is not what was promised; it changed while it was read")
        target.parent.mkdir(parents=True, exist_ok=True)
        part.replace(target)


def _is_there(target: Path, piece: PushPiece) -> bool:
    """Whether the last piece comes again because its answer was lost: the file is in place already."""
    if piece.offset + len(piece.data) != piece.size:
        return False
    try:
        with target.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == piece.sha256
    except OSError:
        return False
