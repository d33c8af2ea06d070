"""Several readers behind one target: the first byte of an input says which of them reads the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from device_agent.errors import Refused
from device_agent.protocol import limits

Reader = Callable[[bytes], object]
"""Gives a value, or raises ``Refused``; whatever else it raises is a find."""


def reader_of(target: str) -> Reader:
    """What a target reads any bytes with."""
    reader: Reader = import_module(f"tests.fuzz.{target}").read
    return reader


def chosen(readers: Mapping[str, Reader], body: bytes) -> object:
    """Read with the reader that the first byte chooses."""
    if not body:
        raise Refused("malformed", "nothing at all")
    return list(readers.values())[body[0] % len(readers)](body[1:])


def for_reader(readers: Mapping[str, Reader], name: str, body: bytes) -> bytes:
    """The input by which this reader gets these bytes."""
    return bytes([list(readers).index(name)]) + body


class Narrowed(AssertionError):
    """What one end accepted the next one refuses."""


def accepted_again(read: Reader, body: bytes, most: int | None = limits.MESSAGE_BYTES) -> None:
    """What was accepted and written again must be accepted, unless it has grown beyond what may be sent."""
    if most is not None and len(body) > most:
        return
    try:
        read(body)
    except Refused as refused:
        raise Narrowed(str(refused)) from refused


def read_or_refused(read: Reader, body: bytes) -> None:
    """What a target promises of any bytes."""
    try:
        read(body)
    except Refused:
        return
