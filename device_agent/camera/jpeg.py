"""What a JPEG says of itself in its first segments."""

from __future__ import annotations

BEGIN = b"\xff\xd8"
END = b"\xff\xd9"
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of the segment that has the size."""


def is_jpeg(body: bytes) -> bool:
    """Whether this is one, from its beginning to its end; what hangs behind the end does no harm."""
    return body.startswith(BEGIN) and END in body[-64:]


def size(body: bytes) -> tuple[int, int]:
    """Width and height; zeros when they are not told."""
    place = 2
    while place + 9 <= len(body) and body[place] == 0xFF:
        marker = body[place + 1]
        if marker in _FRAMES:
            return int.from_bytes(body[place + 7 : place + 9]), int.from_bytes(body[place + 5 : place + 7])
        if marker == 0xFF:
            place += 1
        elif 0xD0 <= marker <= 0xD8 or marker == 0x01:
            place += 2
        else:
            place += 2 + int.from_bytes(body[place + 2 : place + 4])
    return 0, 0
