"""What is asked about files that a station serves, and what the answers are. Pure.

A file is known by an environment and a path in it, and what is in it by its SHA-256. It travels in pieces; a station
that fetches one asks for the hash of every chunk first, so that a piece that is wrong is known as soon as it is there.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import parse_qs

import msgspec
from msgspec import Meta, Struct

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.protocol.messages import decode_bounded
from device_agent.protocol.questions import QUESTION_BYTES

FIND: Final = "file.find"
LIST: Final = "file.list"
HASHES: Final = "file.hashes"
CHUNK: Final = "file.chunk"
PUSH: Final = "file.push"

SCHEME: Final = "salt://"
FIRST_ENVIRONMENT: Final = "base"
"""The environment where none is named."""

CHUNK_BYTES: Final = 128 * 1024
"""Each of them has a hash, and a piece never reaches over the end of one."""

MARK_BYTES: Final = 16
"""So much of a chunk's SHA-256 is its mark; the whole file has the whole one."""

PATH_CHARACTERS: Final = 1024
FILE_BYTES: Final = 64 * 2**30
LISTED_AT_ONCE: Final = 1000
LISTED_BYTES: Final = 200_000
"""A listing is cut at whichever comes first."""

MARKS_AT_ONCE: Final = 8192

Path = Annotated[str, Meta(min_length=1, max_length=PATH_CHARACTERS)]
Environment = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}$(?!\n)")]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]
Size = Annotated[int, Meta(ge=0, le=FILE_BYTES)]
Commit = Annotated[str, Meta(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})?$(?!\n)")]


class FileEntry(Struct, frozen=True):
    """One file as it is now. ``commit`` is that of the git repository it was read from; empty without one."""

    path: Path
    saltenv: Environment
    size: Size
    sha256: Sha256
    commit: Commit = ""


class FindFile(Struct, frozen=True):
    """Which file stands here. Answered with a ``FileEntry``, or ``not_found``."""

    path: Path
    saltenv: Environment = FIRST_ENVIRONMENT


class ListFiles(Struct, frozen=True):
    """Which files stand under a folder, in the order of their paths, from behind ``after`` on."""

    saltenv: Environment = FIRST_ENVIRONMENT
    under: Annotated[str, Meta(max_length=PATH_CHARACTERS)] = ""
    after: Annotated[str, Meta(max_length=PATH_CHARACTERS)] = ""


class Listing(Struct, frozen=True):
    """Files, or the first of them when there are ``more``. Nobody has read them, so nothing is said of what is in them.

    A folder without any file is there with a ``/`` behind it; the others are known by their files.
    """

    paths: Annotated[list[Path], Meta(max_length=LISTED_AT_ONCE)]
    more: bool = False


class AskHashes(Struct, frozen=True):
    """The marks of the chunks of a file, from the one with this number on."""

    entry: FileEntry
    first: Annotated[int, Meta(ge=0, le=FILE_BYTES // CHUNK_BYTES)] = 0


class AskChunk(Struct, frozen=True):
    """A piece of a file from here on. Answered with its bytes, fewer where a chunk ends.

    No bytes at all, where there must be some: it is not here yet, so ask again.
    """

    entry: FileEntry
    offset: Size
    length: Annotated[int, Meta(ge=1, le=CHUNK_BYTES)] = CHUNK_BYTES


class PushPiece(Struct, frozen=True):
    """A piece of a file that a device hands over. The last one makes it whole, and is judged by its hash."""

    path: Path
    size: Size
    sha256: Sha256
    offset: Size
    data: Annotated[bytes, Meta(max_length=CHUNK_BYTES)]


Asked = TypeVar("Asked", FindFile, ListFiles, AskHashes, AskChunk, PushPiece, FileEntry, Listing)
_readers: dict[Any, msgspec.msgpack.Decoder[Any]] = {}
_writer = msgspec.msgpack.Encoder()


def encode(message: Struct) -> bytes:
    """The body of a question or an answer."""
    return _writer.encode(message)


def decode(body: bytes, kind: type[Asked]) -> Asked:
    """The other way. Raises ``Refused``."""
    reader = _readers.get(kind)
    if reader is None:
        reader = _readers[kind] = msgspec.msgpack.Decoder(kind)
    found: Asked = decode_bounded(reader, body, max(QUESTION_BYTES, limits.MESSAGE_BYTES))
    return found


def chunks_of(size: int) -> int:
    """How many chunks a file of this size has."""
    return -(-size // CHUNK_BYTES)


def sound_path(path: str) -> str:
    """The path of a served file, which is one word after another with a ``/`` between. Raises ``Refused``."""
    if len(path) > PATH_CHARACTERS:
        raise Refused("bad_path", f"{len(path)} characters, at most {PATH_CHARACTERS}")
    if any(word in ("", ".", "..") for word in path.split("/")):
        raise Refused("bad_path", f"{path[:200]!r}: a path has no empty word, no '.' and no '..'")
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in path):
        raise Refused("bad_path", f"{path[:200]!r}: a path has no control characters")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise Refused("bad_path", f"{path[:200]!r} is not UTF-8") from None
    return path


def page_of(paths: list[str], after: str) -> Listing:
    """As many of these sorted paths as one answer takes, from behind ``after`` on."""
    page: list[str] = []
    size = 0
    for path in paths[bisect_right(paths, after) if after else 0 :]:
        size += len(path.encode()) + 5
        if len(page) == LISTED_AT_ONCE or size > LISTED_BYTES:
            return Listing(page, more=True)
        page.append(path)
    return Listing(page)


def sound_folder(path: str) -> str:
    """The same for a folder; empty for the root."""
    path = path.strip("/")
    return sound_path(path) if path else ""


_environment = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}")


def url_parts(url: str, saltenv: str | None = None) -> tuple[str, str]:
    """Path and environment of ``salt://PATH?saltenv=ENV``; the one in the address wins. Raises ``Refused``."""
    if not url.startswith(SCHEME):
        raise Refused("bad_path", f"{url[:200]!r} does not begin with {SCHEME}")
    path, _, query = url.removeprefix(SCHEME).partition("?")
    named = parse_qs(query).get("saltenv", [saltenv or FIRST_ENVIRONMENT])[0]
    if not _environment.fullmatch(named):
        raise Refused("bad_environment", f"{named[:80]!r}: letters, digits, '_', '.' and '-'")
    return path.strip("/"), named
