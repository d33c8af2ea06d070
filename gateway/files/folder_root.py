"""A root that is a folder: paths resolved inside it, files hashed once, and read only as they were when hashed.

Nothing outside is ever opened: a path is resolved first, and what was opened is looked at again by its own name, so
that neither a link nor somebody who moves folders about leads out.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, ParamSpec, TypeVar

from device_agent.clock import Clock
from device_agent.disk_threads import DiskBusy, DiskThreads
from device_agent.errors import Refused
from device_agent.protocol.file_questions import CHUNK_BYTES, FILE_BYTES, MARK_BYTES, PATH_CHARACTERS, FileEntry
from gateway.files.served import LISTED_MOST, Patterns
from gateway.files.store import disk_refusal

KNOWN_MOST: Final = 20_000
"""Files whose hash is kept."""

SETTLED_SECONDS: Final = 2.0
"""A file that was written less long ago may change again without its time telling so."""

TRUSTED_SECONDS: Final = 0.5
"""So long the hash of such a file is good for."""

LISTING_SECONDS: Final = 2.0
"""A listing is good for so long."""

Mark = tuple[int, int, int, int]

P = ParamSpec("P")
T = TypeVar("T")

THREADS: Final = DiskThreads()
"""A root may be on a network disk that does not answer; the rest of the station must not wait for it."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a file was when it was hashed, and until when that holds whatever its times say."""

    mark: Mark
    sha256: str
    marks: bytes
    settled: bool
    at: float


class FolderRoot:
    """Implements ``RootFiles``."""

    def __init__(self, folder: str, saltenv: str, patterns: Patterns, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._saltenv = saltenv
        self._patterns = patterns
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._hashing: dict[str, asyncio.Lock] = {}
        self._listing: tuple[float, list[str]] | None = None
        self._walking = asyncio.Lock()

    async def find(self, path: str) -> FileEntry | None:
        real = await self._call(self._served_at, path)
        if real is None:
            return None
        known = await self._looked_at(path, real)
        return None if known is None else FileEntry(path, self._saltenv, known.mark[2], known.sha256)

    async def listed(self) -> list[str]:
        # One walk for however many want to know.
        async with self._walking:
            if self._listing is None or self._clock.monotonic() - self._listing[0] > LISTING_SECONDS:
                found = await self._call(self._walked)
                self._listing = self._clock.monotonic(), found
            return self._listing[1]

    async def hashes(self, entry: FileEntry) -> bytes:
        real = await self._call(self._resolved, entry.path)
        known = await self._looked_at(entry.path, real) if real is not None else None
        if known is None or (known.sha256, known.mark[2]) != (entry.sha256, entry.size):
            raise changed(entry)
        return known.marks

    async def piece(self, entry: FileEntry, offset: int, length: int) -> bytes:
        real = await self._call(self._resolved, entry.path)
        known = await self._looked_at(entry.path, real) if real is not None else None
        if real is None or known is None or known.sha256 != entry.sha256:
            raise changed(entry)
        data = await self._call(self._read, real, known.mark, offset, length)
        if data is None:
            raise changed(entry)
        return data

    async def commit(self) -> str:
        return ""

    async def _looked_at(self, path: str, real: str) -> Known | None:
        """The hash of what is there, from memory while the file is the same."""
        lock = self._hashing.setdefault(path, asyncio.Lock())
        try:
            async with lock:
                found = await self._call(self._mark, real)
                known = self._known.get(path)
                now = self._clock.monotonic()
                if found is None:
                    self._known.pop(path, None)
                    return None
                good = known is not None and known.mark == found
                if known is not None and good and (known.settled or now - known.at < TRUSTED_SECONDS):
                    self._known.move_to_end(path)
                    return known
                known = await self._call(self._hashed, real)
                if known is None:
                    raise Refused("changed", f"{path} changes while it is read; ask again")
                self._known[path] = known
                while len(self._known) > KNOWN_MOST:
                    self._known.popitem(last=False)
                return known
        finally:
            if not lock.locked():
                self._hashing.pop(path, None)

    async def _call(self, what: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await THREADS.call(f"{self._folder}/", what, *args, **kwargs)
        except DiskBusy as busy:
            raise disk_refusal(busy) from None

    # --- in a thread ---------------------------------------------------------------------------------------------

    def _served_at(self, path: str) -> str | None:
        """The same where it is served. Many patterns and a path of many folders take a while."""
        real = self._resolved(path)
        return real if real is not None and self._patterns.serve(path) else None

    def _resolved(self, path: str) -> str | None:
        """Where a path leads, links and all; None when nothing is there. Raises ``Refused`` when it leads out."""
        folder = os.path.realpath(self._folder)
        try:
            real = os.path.realpath(os.path.join(folder, path), strict=True)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Refused("unreadable", f"{path}: {error.strerror}") from None
        if not _inside(real, folder):
            raise Refused("outside_root", f"{path} is a link that leaves its root")
        return real

    def _open(self, real: str) -> int | None:
        """A descriptor of a regular file that is inside; None when there is none."""
        try:
            handle = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Refused("unreadable", f"{error.strerror}") from None
        try:
            if not _inside(os.readlink(f"/proc/self/fd/{handle}"), os.path.realpath(self._folder)):
                raise Refused("outside_root", "it was moved out of its root")
            if stat.S_ISREG(os.fstat(handle).st_mode):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        return None

    def _mark(self, real: str) -> Mark | None:
        handle = self._open(real)
        if handle is None:
            return None
        try:
            return _mark_of(os.fstat(handle))
        finally:
            os.close(handle)

    def _hashed(self, real: str) -> Known | None:
        """Read it through; None when it changed meanwhile."""
        handle = self._open(real)
        if handle is None:
            return None
        try:
            before = os.fstat(handle)
            if before.st_size > FILE_BYTES:
                raise Refused("too_large", f"{before.st_size} bytes, at most {FILE_BYTES}")
            settled = self._clock.wall() - before.st_mtime > SETTLED_SECONDS
            whole, marks, size = hashlib.sha256(), bytearray(), 0
            while data := os.read(handle, CHUNK_BYTES):
                while len(data) < CHUNK_BYTES and (more := os.read(handle, CHUNK_BYTES - len(data))):
                    data += more
                whole.update(data)
                marks += hashlib.sha256(data).digest()[:MARK_BYTES]
                size += len(data)
                if size > before.st_size:
                    return None
            mark = _mark_of(before)
            if _mark_of(os.fstat(handle)) != mark or size != before.st_size:
                return None
            return Known(mark, whole.hexdigest(), bytes(marks), settled, self._clock.monotonic())
        except OSError as error:
            raise disk_refusal(error) from None
        finally:
            os.close(handle)

    def _read(self, real: str, mark: Mark, offset: int, length: int) -> bytes | None:
        """A piece; None when the file is not what it was, before or after."""
        handle = self._open(real)
        if handle is None:
            return None
        try:
            if _mark_of(os.fstat(handle)) != mark:
                return None
            data = os.pread(handle, length, offset)
            return data if _mark_of(os.fstat(handle)) == mark else None
        except OSError as error:
            raise disk_refusal(error) from None
        finally:
            os.close(handle)

    def _walked(self) -> list[str]:
        found: list[str] = []
        folder = os.path.realpath(self._folder)
        self._walk(folder, folder, "", found, frozenset())
        return found

    def _walk(self, root: str, folder: str, before: str, found: list[str], above: frozenset[tuple[int, int]]) -> None:
        """Everything below a folder; a link to a folder is followed where that is inside, and not into itself."""
        try:
            here = os.stat(folder)
            entries = list(os.scandir(folder))
        except OSError:
            return
        place = (here.st_dev, here.st_ino)
        if place in above:
            return
        count = len(found)
        for entry in entries:
            path = f"{before}{entry.name}"
            if self._patterns.ignores(path) or not _sayable(path):
                continue
            try:
                real = os.path.realpath(entry.path, strict=True) if entry.is_symlink() else entry.path
                if not _inside(real, root):
                    continue
                if entry.is_dir():
                    self._walk(root, real, f"{path}/", found, above | {place})
                elif entry.is_file() and self._patterns.takes(path):
                    found.append(path)
            except OSError:
                continue
            if len(found) > LISTED_MOST:
                raise Refused("too_many_files", f"more than {LISTED_MOST} files in environment {self._saltenv}")
        if len(found) == count and before:
            found.append(before)


def changed(entry: FileEntry) -> Refused:
    """What whoever asks for a file is told that is not what it was."""
    return Refused("changed", f"{entry.path} is not what it was; begin anew")


def _mark_of(found: os.stat_result) -> Mark:
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


def _inside(real: str, folder: str) -> bool:
    return real == folder or real.startswith(folder.rstrip("/") + "/")


def _sayable(path: str) -> bool:
    """Whether a path can be told: UTF-8, without control characters, and not longer than any path, as a folder too."""
    return len(path) < PATH_CHARACTERS and not any(
        ord(letter) < 32 or ord(letter) == 127 or 0xD800 <= ord(letter) < 0xE000 for letter in path
    )
