"""Target: what is asked about files, and the answers. What was accepted can be written again, and is accepted again."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from device_agent.protocol.file_questions import (
    AskChunk,
    AskHashes,
    FileEntry,
    FindFile,
    ListFiles,
    Listing,
    PushPiece,
    decode,
    encode,
    sound_path,
)
from tests.fuzz.choosing import Reader, accepted_again, chosen, for_reader

ENTRY: Final = FileEntry("camera/fw.bin", "base", 300_000, "ab" * 32, "cd" * 20)
REAL: Final = (
    FindFile("camera/fw.bin", "next"),
    ListFiles("base", "camera", "camera/a"),
    Listing(["camera/fw.bin", "empty/"], more=True),
    ENTRY,
    AskHashes(ENTRY, 1),
    AskChunk(ENTRY, 131_072, 4096),
    PushPiece("var/log/a", 3, "ab" * 32, 0, b"log"),
)


def _read(kind: type[Any], body: bytes) -> object:
    message = decode(body, kind)
    accepted_again(partial(decode, kind=kind), encode(message), most=None)
    if isinstance(message, FindFile | PushPiece):
        path = sound_path(message.path)
        assert not path.startswith("/")
        assert ".." not in path.split("/")
    return message


READERS: dict[str, Reader] = {type(each).__name__.lower(): partial(_read, type(each)) for each in REAL}


def made() -> dict[str, bytes]:
    """One of each kind."""
    return {name: for_reader(READERS, name, encode(each)) for name, each in zip(READERS, REAL, strict=True)}


def read(body: bytes) -> object:
    """Any bytes."""
    return chosen(READERS, body)
