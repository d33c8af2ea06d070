"""SQLite's write-ahead log, read without SQLite (https://www.sqlite.org/fileformat2.html#walformat).

SQLite takes a log as far as its checksums hold and says nothing of the rest. After a power cut that is right: the rest
is one commit that nobody was told of. When more commits follow, the log is damaged and they are lost.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from device_agent.durable import open_regular

HEADER_BYTES: Final = 32
FRAME_BYTES: Final = 24
MAGICS: Final = (0x377F0682, 0x377F0683)
MOST_FRAMES: Final = 1_000_000
PAGE_BYTES: Final = 4096
"""Of a page where the header does not say it: SQLite's default, which stores are made with."""
TORN_COMMITS: Final = 1
"""Commits that may be there in part after a power cut: the writer makes the next one when the last is on disk."""


def has_header(log: Path) -> bool:
    """Whether a log begins as one; an empty one, and none, do."""
    if not log.exists() or not log.stat().st_size:
        return True
    with open_regular(log) as file:
        header = file.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return True
    if not any(header):
        # A new log whose first sector was not on disk yet when power was cut, though a later one was.
        return _commits_without_header(log) <= TORN_COMMITS
    magic, version, _, _, _, _, first, second = struct.unpack(">8I", header)
    return magic in MAGICS and version == 3_007_000 and (first, second) == _sum(header[:24], (0, 0), magic)


def _commits_without_header(log: Path) -> int:
    with open_regular(log) as file:
        found = 0
        for number in range(MOST_FRAMES):
            file.seek(HEADER_BYTES + number * (FRAME_BYTES + PAGE_BYTES))
            head = file.read(FRAME_BYTES)
            if len(head) < FRAME_BYTES:
                break
            found += any(head[4:8]) and any(head[8:16])
    return found


def commits_after(log: Path, frames: int) -> int:
    """How many commits of this log follow its first frames: those that SQLite took."""
    if not log.exists():
        return 0
    with open_regular(log) as file:
        header = file.read(HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            return 0
        size, salts = struct.unpack(">I", header[8:12])[0], header[16:24]
        found = 0
        for number in range(frames, frames + MOST_FRAMES):
            file.seek(HEADER_BYTES + number * (FRAME_BYTES + size))
            head = file.read(FRAME_BYTES)
            if len(head) < FRAME_BYTES:
                break
            found += head[8:16] == salts and head[4:8] != b"\0\0\0\0"
        return found


def committed(log: Path) -> Iterator[tuple[int, bytes]]:
    """Pages as they were committed, in order: number and content."""
    with open_regular(log) as file:
        header = file.read(HEADER_BYTES)
        if len(header) < HEADER_BYTES or not has_header(log):
            return
        magic, _, size, _, _, _, *sums = struct.unpack(">8I", header)
        running, waiting = (sums[0], sums[1]), []
        while len(head := file.read(FRAME_BYTES)) == FRAME_BYTES:
            body = file.read(size)
            running = _sum(head[:8] + body, running, magic)
            page, after, *rest = struct.unpack(">6I", head)
            if head[8:16] != header[16:24] or tuple(rest[2:]) != running or len(body) < size:
                return
            # A place in the log and not the page: a commit may be larger than memory.
            waiting.append((page, file.tell() - size))
            if after:
                for number, place in waiting:
                    file.seek(place)
                    yield number, file.read(size)
                file.seek(waiting[-1][1] + size)
                waiting.clear()


def is_cut(log: Path) -> bool:
    """Whether there are commits in it that cannot be read, found without SQLite."""
    if not log.exists() or not log.stat().st_size:
        return False
    return not has_header(log) or commits_after(log, sum(1 for _ in committed(log))) > TORN_COMMITS


def _sum(body: bytes, start: tuple[int, int], magic: int) -> tuple[int, int]:
    first, second = start
    order = ">" if magic & 1 else "<"
    words = struct.unpack(f"{order}{len(body) // 4}I", body)
    for place in range(0, len(words) - 1, 2):
        first = (first + words[place] + second) & 0xFFFFFFFF
        second = (second + words[place + 1] + first) & 0xFFFFFFFF
    return first, second
