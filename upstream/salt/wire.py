"""Salt's MessagePack: text and bytes both as raw (the format before ``bin`` and ``str`` were told apart).

A reader that tells them apart refuses what is not UTF-8, and Salt's ciphertexts are not: hence one of our own, for this
wire alone. It reads to raw bytes; ``texts`` then makes text of whatever is UTF-8. Fields that are known to be binary
are taken before that. Source of the format: https://github.com/msgpack/msgpack/blob/master/spec.md
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Any, Final

from device_agent.errors import Refused

MOST_BYTES: Final = 16 * 1024 * 1024
"""Largest message that is read: a chunk of a file or a pillar; a publish has a bound of its own."""

MOST_DEPTH: Final = 48
WRITTEN_DEPTH: Final = 2 * MOST_DEPTH
"""What was read stands deeper in what is answered, and has to be answered all the same."""

MOST_VALUES: Final = 1_000_000

VALUES_AFTER: Final = 100_000
"""Of the fields after the one that had too many: the target among them may name every device of a site."""

ENVELOPE_VALUES: Final = 16
ENVELOPE_DEPTH: Final = 2
"""What is read before a signature or a MAC was looked at may be made by anybody: a few fields, and no tree."""

MOST_STEPS: Final = 2_000_000
"""To skip a field takes at most so many steps, about a second: as many texts as the largest publish can hold."""

_TEXT_OF_TIME: Final = 78
_CONSTANT: Final = 79

_FLOATS: Final = {0xCA: struct.Struct(">f"), 0xCB: struct.Struct(">d")}
_INTEGERS: Final = {
    0xCC: struct.Struct(">B"),
    0xCD: struct.Struct(">H"),
    0xCE: struct.Struct(">I"),
    0xCF: struct.Struct(">Q"),
    0xD0: struct.Struct(">b"),
    0xD1: struct.Struct(">h"),
    0xD2: struct.Struct(">i"),
    0xD3: struct.Struct(">q"),
}
_NUMBERS: Final = _FLOATS | _INTEGERS
_RAW_SIZES: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_ARRAY_SIZES: Final = {0xDC: 2, 0xDD: 4}
_MAP_SIZES: Final = {0xDE: 2, 0xDF: 4}
_EXTENSION_SIZES: Final = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXED_EXTENSIONS: Final = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_NIL, _FALSE, _TRUE = 0xC0, 0xC2, 0xC3
_ONE_BYTE: Final = re.compile(rb"[\x00-\x80\x90\xa0\xc0\xc2\xc3\xe0-\xff]+")
"""Values that are one byte: small numbers, what is empty, nil and the two of bool."""
_SIMPLE: Final[dict[int, bool | None]] = {_NIL: None, _FALSE: False, _TRUE: True}


def unpack(
    body: bytes, most_bytes: int = MOST_BYTES, *, most_values: int = MOST_VALUES, most_depth: int = MOST_DEPTH
) -> Any:
    """The one value in a message, text as bytes. Raises ``Refused``: ``too_large``, ``too_deep``, ``malformed``."""
    if len(body) > most_bytes:
        raise Refused("too_large", f"{len(body)} bytes, at most {most_bytes}")
    reader = _Reader(body, most_values, most_depth)
    value = reader.value(0)
    if reader.place != len(body):
        raise Refused("malformed", f"{len(body) - reader.place} bytes after the value")
    return value


def envelope(body: bytes, most_bytes: int = MOST_BYTES, *, most_values: int = ENVELOPE_VALUES) -> Any:
    """The same for what nobody vouches for yet. Raises ``Refused``."""
    return unpack(body, most_bytes, most_values=most_values, most_depth=ENVELOPE_DEPTH)


def texts(value: Any) -> Any:
    """The same with text for all bytes that are UTF-8, keys too."""
    match value:
        case bytes():
            try:
                return value.decode("utf-8")
            except UnicodeDecodeError:
                return value
        case list():
            return [texts(entry) for entry in value]
        case dict():
            return {texts(key): texts(entry) for key, entry in value.items()}
        case _:
            return value


def fields_of(body: bytes, most_bytes: int = MOST_BYTES) -> dict[Any, Any]:
    """The map in a message, raw. Raises ``Refused``."""
    return as_fields(unpack(body, most_bytes))


@dataclass(frozen=True)
class Unreadable:
    """Stands in the place of a field that breaks the rules of this reader."""

    why: str


def readable_fields(body: bytes, most_bytes: int = MOST_BYTES) -> dict[Any, Any]:
    """The map in a message, raw, with ``Unreadable`` for each field that is too large, too deep or has an odd value.

    The caller can then answer the message, because it knows who sent it. Raises ``Refused`` where the map itself, or
    the place at which a field ends, cannot be read.
    """
    if len(body) > most_bytes:
        raise Refused("too_large", f"{len(body)} bytes, at most {most_bytes}")
    reader = _Reader(body, MOST_VALUES, MOST_DEPTH)
    found: dict[Any, Any] = {}
    for _ in range(reader.map_size()):
        name = reader.value(MOST_DEPTH)
        if not isinstance(name, bytes):
            raise Refused("malformed", "a field whose name is no text")
        place = reader.place
        try:
            found[name] = reader.value(1)
        except Refused as refusal:
            if refusal.reason == "too_large":
                reader.allow(VALUES_AFTER)
            reader.place = place
            reader.skip()
            found[name] = Unreadable(refusal.detail)
    if reader.place != len(body):
        raise Refused("malformed", f"{len(body) - reader.place} bytes after the value")
    return found


def as_fields(value: Any) -> dict[Any, Any]:
    """A value that must be a map. Raises ``Refused``."""
    if not isinstance(value, dict):
        raise Refused("malformed", f"{type(value).__name__} instead of a map")
    return value


def binary(fields: dict[Any, Any], name: str) -> bytes:
    """A field that must be there and hold bytes. Raises ``Refused``."""
    value = fields.get(name.encode())
    if not isinstance(value, bytes):
        raise Refused("malformed", f"no bytes in the field {name}")
    return value


def text(fields: dict[Any, Any], name: str) -> str:
    """A field that must be there and hold text. Raises ``Refused``."""
    try:
        return binary(fields, name).decode("utf-8")
    except UnicodeDecodeError:
        raise Refused("malformed", f"no text in the field {name}") from None


class Packed(bytes):
    """A value that is packed already: it is written as it is."""


def pack(value: Any) -> bytes:
    """A value as a Salt master reads it. What MessagePack has no form for goes as its text."""
    out = bytearray()
    _write(out, value, 0)
    return bytes(out)


class _Reader:
    """One pass over a message. Nothing is allocated for a size that the bytes which are there cannot have."""

    def __init__(self, body: bytes, most_values: int, most_depth: int) -> None:
        self._body = body
        self._left = self._most_values = most_values
        self._most_depth = most_depth
        self.place = 0

    def value(self, depth: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise Refused("too_large", f"more than {self._most_values} values")
        if depth > self._most_depth:
            raise Refused("too_deep", f"deeper than {self._most_depth}")
        head = self._take(1)[0]
        if head < 0x80:
            return head
        if head >= 0xE0:
            return head - 0x100
        if head < 0x90:
            return self._map(head & 0x0F, depth)
        if head < 0xA0:
            return self._array(head & 0x0F, depth)
        if head < 0xC0:
            return self._take(head & 0x1F)
        if head in _SIMPLE:
            return _SIMPLE[head]
        if (number := _NUMBERS.get(head)) is not None:
            return number.unpack(self._take(number.size))[0]
        return self._sized(head, depth)

    def map_size(self) -> int:
        """How many fields the map has that begins here. Raises ``Refused``."""
        head = self._take(1)[0]
        if 0x80 <= head < 0x90:
            return head & 0x0F
        if head not in _MAP_SIZES:
            raise Refused("malformed", "no map")
        return self._size(_MAP_SIZES[head])

    def allow(self, values: int) -> None:
        """How many values may be read from now on, in place of what was left."""
        self._left = values

    def skip(self) -> None:
        """Go past one value that may be too deep or too large to read. Raises ``Refused``."""
        to_skip, steps = 1, 0
        while to_skip:
            steps += 1
            if steps > MOST_STEPS:
                raise Refused("too_large", f"more than {self._most_values} values")
            before = self.place
            to_skip += self._skip_head() - 1
            # The rest of many small values at once: a byte each, so a search counts them as well.
            if self.place == before + 1 and (run := _ONE_BYTE.match(self._body, self.place, self.place + to_skip)):
                to_skip -= run.end() - self.place
                self.place = run.end()

    def _skip_head(self) -> int:
        """Go past the beginning of a value; how many values it holds."""
        head = self._take(1)[0]
        if 0x80 <= head < 0x90:
            return 2 * (head & 0x0F)
        if 0x90 <= head < 0xA0:
            return head & 0x0F
        if head in _ARRAY_SIZES:
            return self._size(_ARRAY_SIZES[head])
        if head in _MAP_SIZES:
            return 2 * self._size(_MAP_SIZES[head])
        if 0xA0 <= head < 0xC0:
            self._take(head & 0x1F)
        elif (number := _NUMBERS.get(head)) is not None:
            self._take(number.size)
        elif head in _RAW_SIZES:
            self._take(self._size(_RAW_SIZES[head]))
        elif head in _EXTENSION_SIZES:
            self._take(self._size(_EXTENSION_SIZES[head]) + 1)
        elif head in _FIXED_EXTENSIONS:
            self._take(_FIXED_EXTENSIONS[head] + 1)
        elif 0x80 <= head < 0xE0 and head not in _SIMPLE:
            raise Refused("malformed", f"a byte that begins nothing: {head:02x}")
        return 0

    def _sized(self, head: int, depth: int) -> Any:
        if head in _RAW_SIZES:
            return self._take(self._size(_RAW_SIZES[head]))
        if head in _ARRAY_SIZES:
            return self._array(self._size(_ARRAY_SIZES[head]), depth)
        if head in _MAP_SIZES:
            return self._map(self._size(_MAP_SIZES[head]), depth)
        if head in _EXTENSION_SIZES:
            return self._extension(self._size(_EXTENSION_SIZES[head]), depth)
        if head in _FIXED_EXTENSIONS:
            return self._extension(_FIXED_EXTENSIONS[head], depth)
        raise Refused("malformed", f"a byte that begins nothing: {head:02x}")

    def _size(self, width: int) -> int:
        return int.from_bytes(self._take(width), "big")

    def _take(self, count: int) -> bytes:
        end = self.place + count
        if end > len(self._body):
            raise Refused("malformed", "it ends in the middle")
        taken = self._body[self.place : end]
        self.place = end
        return taken

    def _array(self, count: int, depth: int) -> list[Any]:
        self._room_for(count)
        return [self.value(depth + 1) for _ in range(count)]

    def _map(self, count: int, depth: int) -> dict[Any, Any]:
        self._room_for(count * 2)
        found: dict[Any, Any] = {}
        for _ in range(count):
            key = self.value(depth + 1)
            if isinstance(key, (list, dict)):
                raise Refused("malformed", "a key that is no plain value")
            found[key] = self.value(depth + 1)
        return found

    def _room_for(self, values: int) -> None:
        if values > len(self._body) - self.place:
            raise Refused("malformed", "it ends in the middle")

    def _extension(self, size: int, depth: int) -> Any:
        kind = self._take(1)[0]
        body = self._take(size)
        if kind == _TEXT_OF_TIME:
            return body
        if kind == _CONSTANT:
            inner = _Reader(body, self._left, self._most_depth)
            pair = inner.value(depth + 1)
            self._left = inner._left
            if isinstance(pair, list) and len(pair) == 2 and inner.place == len(body):
                return pair[1]
        raise Refused("malformed", f"an extension of kind {kind}")


def _write(out: bytearray, value: Any, depth: int) -> None:
    if depth > WRITTEN_DEPTH:
        raise Refused("too_deep", f"deeper than {WRITTEN_DEPTH}")
    match value:
        case None:
            out.append(_NIL)
        case bool():
            out.append(_TRUE if value else _FALSE)
        case int():
            _write_integer(out, value)
        case float():
            out.append(0xCB)
            out += struct.pack(">d", value)
        case Packed():
            out += value
        case bytes() | bytearray():
            _write_raw(out, bytes(value))
        case dict():
            _write_head(out, len(value), 0x80, 0xDE)
            for key, entry in value.items():
                _write(out, key, depth + 1)
                _write(out, entry, depth + 1)
        case list() | tuple() | set() | frozenset():
            _write_head(out, len(value), 0x90, 0xDC)
            for entry in value:
                _write(out, entry, depth + 1)
        case _:
            _write_raw(out, str(value).encode("utf-8", "replace"))


def _write_integer(out: bytearray, value: int) -> None:
    if -32 <= value < 128:
        out.append(value & 0xFF)
    elif 0 <= value < 1 << 64:
        width = next(width for width in (1, 2, 4, 8) if value < 1 << (8 * width))
        out.append({1: 0xCC, 2: 0xCD, 4: 0xCE, 8: 0xCF}[width])
        out += value.to_bytes(width, "big")
    elif -(1 << 63) <= value < 0:
        width = next(width for width in (1, 2, 4, 8) if value >= -(1 << (8 * width - 1)))
        out.append({1: 0xD0, 2: 0xD1, 4: 0xD2, 8: 0xD3}[width])
        out += value.to_bytes(width, "big", signed=True)
    else:
        _write_raw(out, str(value).encode("ascii"))


def _write_raw(out: bytearray, raw: bytes) -> None:
    if len(raw) < 32:
        out.append(0xA0 | len(raw))
    elif len(raw) < 1 << 16:
        out.append(0xDA)
        out += len(raw).to_bytes(2, "big")
    else:
        out.append(0xDB)
        out += len(raw).to_bytes(4, "big")
    out += raw


def _write_head(out: bytearray, count: int, short: int, long: int) -> None:
    if count < 16:
        out.append(short | count)
    elif count < 1 << 16:
        out.append(long)
        out += count.to_bytes(2, "big")
    else:
        out.append(long + 1)
        out += count.to_bytes(4, "big")
