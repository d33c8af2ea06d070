"""Files of a Salt master, as the station's file room asks for them.

Salt knows the hash of a whole file and no marks of its chunks. So a file comes down once, into a part beside the
contents; when it is whole and right it goes into the cache of the site, and its marks are told. Whoever asks for them
before that is told to ask again, and a part that is there is gone on with, whatever was cut or killed meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from device_agent.clock import Clock
from device_agent.errors import Refused
from device_agent.protocol.file_questions import (
    CHUNK_BYTES,
    MARK_BYTES,
    MARKS_AT_ONCE,
    AskChunk,
    AskHashes,
    FileEntry,
    FindFile,
    ListFiles,
    chunks_of,
    decode,
    encode,
    page_of,
    sound_path,
)
from gateway.files.served import LISTED_MOST
from gateway.files.store import ContentStore, disk_refusal
from gateway.metrics import Metrics
from gateway.salt.file_parts import FileParts
from upstream.link_budget import LinkBudget
from upstream.salt.ports import SaltAbove

TURN_SECONDS: Final = 3.0
"""So long one question goes on with a file; then whoever asked hears that it is not here yet."""

PIECE_BYTES: Final = 8 * 1024 * 1024
"""More than any master is told to hand out at once (``file_buffer_size``)."""

T = TypeVar("T")

LISTED_SECONDS: Final = 10.0
SIZE_IN_STAT: Final = 6
"""Where a list of ``os.stat`` has the size."""


class SaltFiles:
    """Answers with what a master has. ``store`` is the cache of the site, set once it is there."""

    def __init__(self, folder: Path, max_bytes_per_second: int, metrics: Metrics, clock: Clock) -> None:
        self.store: ContentStore | None = None
        self._parts = FileParts(folder, clock)
        self._budget = LinkBudget(max_bytes_per_second, clock)
        self._metrics = metrics
        self._clock = clock
        self._coming = asyncio.Lock()
        self._listed: tuple[str, float, list[str]] | None = None
        self._listing = asyncio.Lock()

    async def find(self, above: SaltAbove, body: bytes, patience: float) -> bytes:
        """Which file stands at a path. Raises ``Refused`` and ``Unanswered``."""
        wanted = decode(body, FindFile)
        place = {"path": sound_path(wanted.path), "saltenv": wanted.saltenv}
        told = await above.request("_file_hash_and_stat", place, patience=patience)
        hashed, looked = (told[0], told[1]) if isinstance(told, list) and len(told) == 2 else (told, None)
        if not isinstance(hashed, dict) or not hashed.get("hsum"):
            raise Refused("not_found", f"the Salt master has no {wanted.path} in environment {wanted.saltenv}")
        if hashed.get("hash_type") != "sha256":
            kind = str(hashed.get("hash_type"))[:20]
            raise Refused("not_sha256", f"the Salt master's hash_type is {kind}; set hash_type: sha256 there")
        size = looked[SIZE_IN_STAT] if isinstance(looked, list) and len(looked) > SIZE_IN_STAT else None
        try:
            return encode(msgspec.convert({**place, "size": size, "sha256": hashed["hsum"]}, FileEntry))
        except msgspec.ValidationError as error:
            raise Refused("malformed", f"what the Salt master says of {wanted.path}: {error}") from None

    async def listed(self, above: SaltAbove, body: bytes, patience: float) -> bytes:
        """The files under a folder; those of folders without any are not told by a Salt master."""
        wanted = decode(body, ListFiles)
        async with self._listing:
            known = self._listed
            if known is None or known[0] != wanted.saltenv or self._clock.monotonic() - known[1] > LISTED_SECONDS:
                fields = {"saltenv": wanted.saltenv, "prefix": ""}
                told = await above.request("_file_list", fields, patience=patience)
                known = self._listed = (wanted.saltenv, self._clock.monotonic(), _sound(told))
        under = f"{wanted.under.strip('/')}/" if wanted.under.strip("/") else ""
        return encode(page_of([path for path in known[2] if path.startswith(under)], wanted.after))

    async def hashes(self, above: SaltAbove, body: bytes, patience: float) -> bytes:
        """The marks of a file's chunks; nothing while it is still coming."""
        asked = decode(body, AskHashes)
        store, entry = self.store, asked.entry
        if store is None:
            raise Refused("busy", "the cache of the site is not open yet")
        # One after another: each goes on for a moment, and whoever asks comes again.
        async with self._coming:
            marks = await store.marks(entry.sha256)
            if marks is None:
                marks = await self._come(above, store, entry, patience)
        return marks[asked.first * MARK_BYTES : (asked.first + MARKS_AT_ONCE) * MARK_BYTES]

    async def chunk(self, above: SaltAbove, body: bytes, patience: float) -> bytes:
        """A piece of a file, for a chunk that has become wrong in the cache."""
        asked = decode(body, AskChunk)
        piece = await self._piece(above, asked.entry, asked.offset, patience)
        return piece[: min(asked.length, CHUNK_BYTES - asked.offset % CHUNK_BYTES)]

    async def _come(self, above: SaltAbove, store: ContentStore, entry: FileEntry, patience: float) -> bytes:
        """Go on with a file; its marks when it is whole, and nothing before."""
        parts, sha256 = self._parts, entry.sha256
        ends = self._clock.monotonic() + min(TURN_SECONDS, patience)
        try:
            if parts.is_new(sha256) and store.size(sha256) is None:
                # What the cache would have no room for in the end does not come down first.
                store.make_room(entry.size)
            size = await _to_its_end(partial(parts.begun, entry, store.most_bytes, store.needed()))
            while size < entry.size:
                await self._budget.room()
                piece = await self._piece(above, entry, size, patience)
                if size + len(piece) > entry.size:
                    raise Refused("changed", f"{entry.path} is longer than it was said to be")
                await _to_its_end(partial(parts.add, sha256, size, piece))
                self._budget.spend(len(piece))
                self._metrics.add("files_fetched_bytes", len(piece))
                size += len(piece)
                store.in_use([sha256])
                if size < entry.size and self._clock.monotonic() >= ends:
                    return b""
            marks, right = await _to_its_end(partial(parts.judged, sha256))
            if not right:
                raise Refused("changed", f"{entry.path} is another file than the one that was found")
            there = await store.begin(sha256, entry.size, marks)
            for number in range(chunks_of(entry.size)):
                if number not in there:
                    await store.put(sha256, number, await _to_its_end(partial(parts.chunk, sha256, number)))
            await _to_its_end(partial(parts.drop, sha256))
        except OSError as error:
            raise disk_refusal(error) from None
        except Refused as refusal:
            if refusal.reason == "changed":
                await _to_its_end(partial(parts.drop, sha256))
            raise
        return marks

    async def _piece(self, above: SaltAbove, entry: FileEntry, offset: int, patience: float) -> bytes:
        fields = {"path": entry.path, "saltenv": entry.saltenv, "loc": offset}
        told = await above.request("_serve_file", fields, patience=patience)
        data: Any = told.get("data") if isinstance(told, dict) else None
        # What is UTF-8 was taken for text on the way, and is the same bytes.
        piece = data.encode() if isinstance(data, str) else data
        if not isinstance(piece, bytes) or len(piece) > PIECE_BYTES:
            raise Refused("malformed", f"the Salt master's piece of {entry.path} is none")
        if not piece and offset < entry.size:
            raise Refused("changed", f"{entry.path} is shorter than it was said to be, or gone")
        return piece


async def _to_its_end(work: Callable[[], T]) -> T:
    """What works on the parts, in a thread. No cancel ends a thread, so who comes next would find two of them there."""
    ending = asyncio.get_running_loop().run_in_executor(None, work)
    cancelled: asyncio.CancelledError | None = None
    while not ending.done():
        try:
            await asyncio.wait({ending})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        # What became of it, who comes next will see.
        ending.exception()
        raise cancelled
    return ending.result()


def _sound(told: Any) -> list[str]:
    if not isinstance(told, list) or len(told) > LISTED_MOST:
        raise Refused("malformed", f"the Salt master's listing is none, or has over {LISTED_MOST} files")
    found = set()
    for path in told:
        with suppress(Refused):
            found.add(sound_path(path) if isinstance(path, str) else "")
    return sorted(found - {""})
