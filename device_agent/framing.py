"""Frames in a file that is appended to: length and CRC-32 of the body (both u32, little endian), body (msgpack)."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import TypeVar

import msgspec

_FRAME = struct.Struct("<II")

T = TypeVar("T")


def framed(body: bytes) -> bytes:
    """A body as a frame."""
    return _FRAME.pack(len(body), zlib.crc32(body)) + body


def read_frames(
    content: bytes, magic: bytes, decoder: msgspec.msgpack.Decoder[T], most: int
) -> tuple[list[T], int, bool]:
    """All records that read; where the unbroken run of them from the start ends; whether good ones lie behind that.

    A body is at most ``most`` bytes. What does not begin with ``magic`` is damaged, unless it is shorter.
    """
    records: list[T] = []
    place = len(magic) if content.startswith(magic) else 0
    damaged = place == 0 and len(content) > len(magic)
    good_end = place
    broken = damaged
    while place < len(content):
        found = _record_at(content, place, decoder, most)
        if found is None:
            broken = True
            place += 1
            continue
        record, place = found
        records.append(record)
        if broken:
            damaged = True
        else:
            good_end = place
    return records, good_end, damaged


def free_name(path: Path) -> Path:
    """Where a damaged file is set aside: a name beside it that nobody has."""
    number = 1
    while (candidate := path.with_name(f"{path.name}.corrupt-{number}")).exists():
        number += 1
    return candidate


def _record_at(content: bytes, start: int, decoder: msgspec.msgpack.Decoder[T], most: int) -> tuple[T, int] | None:
    if start + _FRAME.size > len(content):
        return None
    length, checksum = _FRAME.unpack_from(content, start)
    end = start + _FRAME.size + length
    if not 0 < length <= most or end > len(content):
        return None
    body = content[start + _FRAME.size : end]
    if zlib.crc32(body) != checksum:
        return None
    try:
        return decoder.decode(body), end
    except msgspec.MsgspecError:
        return None
