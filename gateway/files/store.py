"""Contents by their SHA-256 on this disk: whole ones, and parts of those that are being fetched.

A content lies under its hash with the marks of its chunks beside it, so that whatever is read is known to be right
when it is handed out. A part has its full size from the beginning; which of its chunks are there is known by their
marks, so a process that is killed in the middle loses nothing but what it had not written. What it may take of the disk
is limited: the content that was used least lately gives way, unless somebody needs it.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from device_agent.clock import Clock
from device_agent.errors import Refused
from device_agent.protocol.file_questions import CHUNK_BYTES, MARK_BYTES, chunks_of
from device_agent.write_health import WriteHealth
from gateway.metrics import Metrics

BUSY_SECONDS: Final = 60.0
"""A content that somebody read so lately does not give way: he reads on."""

CHUNKS_IN_MEMORY: Final = 64
TOUCH_SECONDS: Final = 60.0
MARKS: Final = ".marks"


@dataclass(slots=True)
class Content:
    """A content, whole or not. ``used`` is monotonic."""

    size: int
    whole: bool
    used: float
    touched: float


def nobody() -> set[str]:
    """Until somebody says what is needed."""
    return set()


class ContentStore:
    """The folder. What may wait for the disk does so in a thread."""

    def __init__(self, folder: Path, most_bytes: int, metrics: Metrics, clock: Clock) -> None:
        self._whole = folder / "whole"
        self._parts = folder / "parts"
        self._most = most_bytes
        self._metrics = metrics
        self._clock = clock
        self._contents: dict[str, Content] = {}
        self._chunks: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self.health = WriteHealth("the cache of files", folder / "whole", clock)
        self.full = ""
        """Why the last content for which room was wanted had none; empty when it had."""
        self.needed: Callable[[], set[str]] = nobody
        """The hashes that an open job needs."""

    async def open(self) -> None:
        """Look what is there."""
        await asyncio.to_thread(self._scan)

    @property
    def used_bytes(self) -> int:
        """How much of the disk it takes, with what is still to come of parts."""
        return sum(content.size for content in self._contents.values())

    @property
    def most_bytes(self) -> int:
        """How much it may take."""
        return self._most

    def views(self) -> list[tuple[str, Content]]:
        """Every content, the one used last first."""
        return sorted(self._contents.items(), key=lambda item: -item[1].used)

    def has(self, sha256: str) -> bool:
        """Whether a content is here, whole."""
        found = self._contents.get(sha256)
        return found is not None and found.whole

    def size(self, sha256: str) -> int | None:
        """How large a content is that is here, whole or not; None for one that is not."""
        found = self._contents.get(sha256)
        return None if found is None else found.size

    async def marks(self, sha256: str) -> bytes | None:
        """The marks of its chunks; None when it is not here, or they are not."""
        found = self._contents.get(sha256)
        if found is None:
            return None
        path = self._path(sha256, whole=found.whole)
        marks = await asyncio.to_thread(_read_whole, path.with_name(path.name + MARKS))
        return marks if marks is not None and len(marks) == chunks_of(found.size) * MARK_BYTES else None

    async def piece(self, sha256: str, offset: int, length: int) -> bytes | None:
        """Bytes from an offset to at most the end of a chunk, right for sure. None when the disk has them wrong.

        None as well when the content has given way.
        """
        content = self._contents.get(sha256)
        if content is None:
            return None
        number, inside = divmod(offset, CHUNK_BYTES)
        if offset >= content.size:
            return b""
        self._use(sha256, content)
        chunk = self._chunks.get((sha256, number))
        if chunk is None:
            chunk = await asyncio.to_thread(self._right_chunk, sha256, content, number)
            if chunk is None:
                self._metrics.refused("files", "damaged", sha256[:16], f"chunk {number} on this disk")
                return None
            self._remember(sha256, number, chunk)
        else:
            self._chunks.move_to_end((sha256, number))
        return chunk[inside : inside + length]

    # --- taking something in -------------------------------------------------------------------------------------

    async def begin(self, sha256: str, size: int, marks: bytes) -> set[int]:
        """Make room for a content, and say which of its chunks are here already. Raises ``Refused`` (``cache_full``).

        A content that is here whole is looked through again: it becomes a part, with what is right of it.
        """
        found = self._contents.get(sha256)
        self.make_room(size if found is None else size - found.size)
        now = self._clock.monotonic()
        self._contents[sha256] = Content(size, whole=False, used=now, touched=now)
        self._forget_chunks(sha256)
        try:
            return await asyncio.to_thread(self._begun, sha256, size, marks)
        except OSError as error:
            self.health.failed(error)
            self.drop(sha256)
            raise disk_refusal(error) from None

    async def put(self, sha256: str, number: int, chunk: bytes) -> None:
        """A chunk that was found right. Raises ``Refused`` (``disk_full``)."""
        try:
            await asyncio.to_thread(_write_at, self._path(sha256, whole=False), number * CHUNK_BYTES, chunk)
        except OSError as error:
            self.health.failed(error)
            raise disk_refusal(error) from None
        self.health.wrote()
        self._remember(sha256, number, chunk)

    async def demote(self, sha256: str) -> None:
        """Something of a whole content is wrong: it is a part from now on. ``begin`` finds what is right of it."""
        content = self._contents.get(sha256)
        if content is None or not content.whole:
            return
        content.whole = False
        self._forget_chunks(sha256)
        with suppress(OSError):
            await asyncio.to_thread(self._demoted, sha256)

    async def finish(self, sha256: str) -> bool:
        """All chunks are here: judge the whole, and keep it for good. False when it is another content."""
        try:
            right = await asyncio.to_thread(self._finished, sha256)
        except OSError as error:
            self.health.failed(error)
            raise disk_refusal(error) from None
        content = self._contents.get(sha256)
        if right and content is not None:
            content.whole = True
            return True
        self.drop(sha256)
        return False

    async def adopt(self, path: Path, sha256: str, size: int, marks: bytes) -> None:
        """Take over a file that was written here, for which there is room. Raises ``Refused``."""

        def moved() -> None:
            target = self._path(sha256, whole=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.with_name(target.name + MARKS).write_bytes(marks)
            path.replace(target)
            # What was a part until now is whole in another place.
            part = self._path(sha256, whole=False)
            part.unlink(missing_ok=True)
            part.with_name(part.name + MARKS).unlink(missing_ok=True)

        try:
            await asyncio.to_thread(moved)
        except OSError as error:
            raise disk_refusal(error) from None
        now = self._clock.monotonic()
        self._contents[sha256] = Content(size, whole=True, used=now, touched=now)

    def draft(self) -> Path:
        """A name for a file that is to be adopted; what is left of one is gone at the next start."""
        return self._parts / f"draft-{os.urandom(8).hex()}"

    def make_room(self, size: int) -> None:
        """Let what was used least give way until so much more has room. Raises ``Refused`` (``cache_full``)."""
        over = self.used_bytes + size - self._most
        if over <= 0:
            self.full = self.full if size <= 0 else ""
            return
        needed, now = self.needed(), self._clock.monotonic()
        may_go = [
            (sha256, content)
            for sha256, content in reversed(self.views())
            if sha256 not in needed and now - content.used > BUSY_SECONDS
        ]
        if sum(content.size for _, content in may_go) < over:
            kept = len(self._contents) - len(may_go)
            why = f"{size} bytes have no room in {self._most}; {kept} of {len(self._contents)} files in it are in use"
            self._metrics.add("files_cache_full")
            self.full = why
            raise Refused("cache_full", f"{why}; files.cache_megabytes is the limit")
        self.full = ""
        for sha256, content in may_go:
            self.drop(sha256)
            self._metrics.add("files_evicted")
            over -= content.size
            if over <= 0:
                return

    def drop(self, sha256: str) -> None:
        """Forget a content, with its files."""
        self._contents.pop(sha256, None)
        self._forget_chunks(sha256)
        for path in (self._path(sha256, whole=True), self._path(sha256, whole=False)):
            path.unlink(missing_ok=True)
            path.with_name(path.name + MARKS).unlink(missing_ok=True)

    def forget_marks(self, sha256: str) -> None:
        """The marks of a part may be wrong themselves: they are asked for anew, and what is here is judged by those."""
        path = self._path(sha256, whole=False)
        path.with_name(path.name + MARKS).unlink(missing_ok=True)

    def in_use(self, sha256s: Iterable[str]) -> None:
        """These are being fetched: nobody may take their room."""
        now = self._clock.monotonic()
        for sha256 in sha256s:
            if (content := self._contents.get(sha256)) is not None:
                content.used = now

    def _use(self, sha256: str, content: Content) -> None:
        content.used = now = self._clock.monotonic()
        if content.whole and now - content.touched > TOUCH_SECONDS:
            content.touched = now
            with suppress(OSError):
                os.utime(self._path(sha256, whole=True))

    def _remember(self, sha256: str, number: int, chunk: bytes) -> None:
        self._chunks[sha256, number] = chunk
        if len(self._chunks) > CHUNKS_IN_MEMORY:
            self._chunks.popitem(last=False)

    def _forget_chunks(self, sha256: str) -> None:
        for key in [key for key in self._chunks if key[0] == sha256]:
            del self._chunks[key]

    def _path(self, sha256: str, *, whole: bool) -> Path:
        return self._whole / sha256[:2] / sha256 if whole else self._parts / sha256

    # --- in a thread ---------------------------------------------------------------------------------------------

    def _scan(self) -> None:
        """Contents in the order of their last use, as far as their files tell."""
        self._whole.mkdir(parents=True, exist_ok=True)
        self._parts.mkdir(parents=True, exist_ok=True)
        for draft in self._parts.glob("draft-*"):
            draft.unlink()
        # What this process used counts from now on; before that, the order in which the last one did.
        whole = [path for path in self._whole.glob("??/*") if not path.name.endswith(MARKS)]
        parts = [path for path in self._parts.iterdir() if not path.name.endswith(MARKS)]
        found = sorted((path.stat().st_mtime, path) for path in [*whole, *parts])
        oldest = self._clock.monotonic() - BUSY_SECONDS - len(found)
        for place, (_, path) in enumerate(found):
            size = path.stat().st_size
            self._contents[path.name] = Content(size, path.parent != self._parts, oldest + place - 1.0, 0.0)

    def _right_chunk(self, sha256: str, content: Content, number: int) -> bytes | None:
        # Somebody may move it to the other place just now.
        places = [self._path(sha256, whole=whole) for whole in (content.whole, not content.whole, content.whole)]
        marks = [path.with_name(path.name + MARKS) for path in places]
        wanted = min(CHUNK_BYTES, content.size - number * CHUNK_BYTES)
        chunk = _read_at(places, number * CHUNK_BYTES, wanted)
        mark = _read_at(marks, number * MARK_BYTES, MARK_BYTES)
        return chunk if len(chunk) == wanted and mark_of(chunk) == mark else None

    def _begun(self, sha256: str, size: int, marks: bytes) -> set[int]:
        path, whole = self._path(sha256, whole=False), self._path(sha256, whole=True)
        if whole.exists():
            self._demoted(sha256)
        fresh = not path.exists()
        path.with_name(path.name + MARKS).write_bytes(marks)
        with path.open("ab") as part:
            part.truncate(size)
        if shutil.disk_usage(self._parts).free < size - path.stat().st_blocks * 512:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        right: set[int] = set()
        if fresh:
            return right
        with path.open("rb") as part:
            for number in range(chunks_of(size)):
                mark = marks[number * MARK_BYTES : (number + 1) * MARK_BYTES]
                if mark_of(part.read(CHUNK_BYTES)) == mark:
                    right.add(number)
        return right

    def _demoted(self, sha256: str) -> None:
        path, whole = self._path(sha256, whole=False), self._path(sha256, whole=True)
        with suppress(FileNotFoundError):
            whole.with_name(whole.name + MARKS).replace(path.with_name(path.name + MARKS))
        whole.replace(path)

    def _finished(self, sha256: str) -> bool:
        path, target = self._path(sha256, whole=False), self._path(sha256, whole=True)
        with path.open("rb") as part:
            if hashlib.file_digest(part, "sha256").hexdigest() != sha256:
                return False
            os.fsync(part.fileno())
        marks = path.with_name(path.name + MARKS)
        with marks.open("rb") as kept:
            os.fsync(kept.fileno())
        target.parent.mkdir(parents=True, exist_ok=True)
        marks.replace(target.with_name(target.name + MARKS))
        path.replace(target)
        return True


def mark_of(chunk: bytes) -> bytes:
    """What a chunk is known by."""
    return hashlib.sha256(chunk).digest()[:MARK_BYTES]


def disk_refusal(error: OSError) -> Refused:
    """What this disk says, as whoever asked for a file hears it."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return Refused("disk_full" if full else "disk_failed", f"the station's disk: {error.strerror}")


def _read_whole(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _read_at(places: Sequence[Path], offset: int, length: int) -> bytes:
    """What is in the first of these files that is there; nothing when it cannot be read."""
    for path in places:
        try:
            with path.open("rb") as file:
                file.seek(offset)
                return file.read(length)
        except FileNotFoundError:
            continue
        except OSError:
            return b""
    return b""


def _write_at(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)
