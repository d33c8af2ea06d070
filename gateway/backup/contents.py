"""What is in a backup: a list at its beginning, then the files one after the other, all inside the encryption."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from device_agent.errors import Refused
from device_agent.trust import codec
from device_agent.trust.codec import encode
from gateway.backup.archive import SealedReader
from gateway.backup.refusals import BackupRefused

FORMAT: Final = 1
LIST_BYTES: Final = 256 * 1024
PIECE_BYTES: Final = 1024 * 1024
SMALL_BYTES: Final = 16 * 1024 * 1024
"""Most of any file but the store; together they are held in memory."""

SMALL_BYTES_TOGETHER: Final = 64 * 1024 * 1024

STORE: Final = "station.sqlite"
CERTIFICATE: Final = "site-certificate"
KEYS: Final = ("trust.keys", "curve.key")
"""The private keys that make this gateway the one its master accepted."""

SALT_KEY: Final = "salt/gateway.pem"
"""The key pair that Salt masters accepted, where they are above; it goes with the others."""

SALT_MASTERS: Final = ("salt/masters", "salt")
"""The folders with public keys of Salt masters: those that were kept, and the one that vouches for others."""

SALT_MASTERS_MOST: Final = 256

TRUST: Final = ("root-lists", "revocations", "masters", "time-floor", CERTIFICATE, "broker-authority.pem")
"""What is copied as it is. The last one is a key as well; see docs/backup.md why it always goes along."""

SETTINGS: Final = "settings/main.yaml"
SETTINGS_PIECES: Final = "settings/pieces/"
POLICY: Final = "policy/main.yaml"
POLICY_PIECES: Final = "policy/pieces/"

_salt_master = re.compile(rf"({'|'.join(SALT_MASTERS)})/[A-Za-z0-9%_~-][A-Za-z0-9%._~-]{{0,250}}\.pub")
_piece = re.compile(r"[^/.][^/]{0,120}\.yaml")


@dataclass(frozen=True, slots=True)
class Entry:
    """One file: under which name, and how long."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Contents:
    """The list. ``taken`` is wall seconds; ``devices`` counts them by state; ``schema`` is that of the store.

    The store is the last file: all others are read before it.
    """

    site: str
    taken: int
    release: str
    schema: int
    has_keys: bool
    devices: Mapping[str, int]
    files: tuple[Entry, ...] = field(repr=False)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files)


def written(contents: Contents) -> bytes:
    """The list as bytes, with its length before it."""
    body = encode(
        {
            "format": FORMAT,
            "site": contents.site,
            "taken": contents.taken,
            "release": contents.release,
            "schema": contents.schema,
            "keys": contents.has_keys,
            "devices": dict(contents.devices),
            "files": [[entry.name, entry.size] for entry in contents.files],
        }
    )
    assert len(body) <= LIST_BYTES, "bounded by what is listed"
    return len(body).to_bytes(4, "big") + body


def read_contents(archive: SealedReader, name: str) -> Contents:
    """The list at the beginning of a backup. Raises ``BackupRefused``.

    Who wrote it knew the passphrase, so what is wrong here is of another release; names are held to what they may be
    all the same.
    """
    length = int.from_bytes(archive.exactly(4), "big")
    if length > LIST_BYTES:
        raise BackupRefused("malformed", name, f"a list of {length:,} bytes")
    try:
        fields = codec.decode(archive.exactly(length), LIST_BYTES)
    except Refused as refusal:
        raise BackupRefused("malformed", name, str(refusal)) from None
    if type(fields) is dict and type(fields.get("format")) is int and fields["format"] > FORMAT:
        raise BackupRefused("newer", name, f"contents {fields['format']}, this release knows {FORMAT}")
    contents = _contents(fields)
    if contents is None:
        raise BackupRefused("malformed", name, "another list of contents")
    return contents


def _contents(fields: Any) -> Contents | None:
    """The list from its fields; None when it is none."""
    kinds = {"site": str, "taken": int, "release": str, "schema": int, "keys": bool, "devices": dict, "files": list}
    if type(fields) is not dict or fields.keys() != {"format", *kinds}:
        return None
    if any(type(fields[key]) is not kind for key, kind in kinds.items()):
        return None
    files = []
    for entry in fields["files"]:
        if type(entry) is not list or [type(part) for part in entry] != [str, int]:
            return None
        files.append(Entry(*entry))
    names = [entry.name for entry in files]
    if len(set(names)) != len(names) or not all(_is_sound(entry) for entry in files) or names[-1:] != [STORE]:
        return None
    if sum(entry.size for entry in files[:-1]) > SMALL_BYTES_TOGETHER:
        return None
    if fields["keys"] != set(KEYS).issubset(names) or any(
        type(count) is not int for count in fields["devices"].values()
    ):
        return None
    return Contents(
        site=fields["site"],
        taken=fields["taken"],
        release=fields["release"],
        schema=fields["schema"],
        has_keys=fields["keys"],
        devices=fields["devices"],
        files=tuple(files),
    )


def _is_sound(entry: Entry) -> bool:
    """Whether a file may have this name and this size: no name leads anywhere else."""
    if entry.name == STORE:
        return entry.size > 0
    if not 0 <= entry.size <= SMALL_BYTES:
        return False
    return (
        entry.name in (*KEYS, SALT_KEY, *TRUST, SETTINGS, POLICY) or is_piece(entry.name) or is_salt_master(entry.name)
    )


def is_salt_master(name: str) -> bool:
    """Whether this is the name of a public key of a Salt master."""
    return _salt_master.fullmatch(name) is not None


def is_piece(name: str) -> bool:
    """Whether this is the name of a piece of the settings or of the policy."""
    return any(
        name.startswith(folder) and name.isprintable() and _piece.fullmatch(name.removeprefix(folder)) is not None
        for folder in (SETTINGS_PIECES, POLICY_PIECES)
    )


def copy(
    read: Callable[[int], bytes], write: Callable[[bytes], object], size: int, told: Callable[[float], None]
) -> int:
    """Copy so many bytes in pieces, and tell which part is done; how many there were."""
    left = size
    while left > 0 and (piece := read(min(left, PIECE_BYTES))):
        write(piece)
        left -= len(piece)
        told(1 - left / size)
    return size - left
