"""What a station keeps of its fleet in its state folder: its own keys, and whom it was told to believe.

    trust.keys        its signing and its sealing key, made at first use
    root-lists        the fleet's root lists, oldest first
    site-certificate  what a master says this gateway may do
    revocations       lists of keys that count no more
    masters           where to find a fleet, from the join token
    time-floor        a time that has certainly passed

Every file is read as it is on disk and believed by nobody before ``Authority`` has checked it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from device_agent.errors import ConfigInvalid, Refused
from device_agent.trust import codec
from device_agent.trust.keys import PUBLIC_BYTES, KemKey, SigningKey, new_private
from gateway.fleet.join_words import JOIN
from gateway.fleet.private_file import read_private, write_private
from upstream.curve import is_key

FILE_BYTES = 16 * 1024 * 1024
FINGERPRINT_HEX = 32


@dataclass(frozen=True)
class KnownMaster:
    """Where a master listens and its CURVE key in Z85."""

    address: str
    key: str


@dataclass(frozen=True)
class Joined:
    """What a join left: the fingerprint of the root keys, and the masters to ask first."""

    root: bytes
    masters: tuple[KnownMaster, ...] = ()


class StationFiles:
    """The files in one state folder. Each method does one file; nothing is kept in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keys(self) -> tuple[SigningKey, KemKey]:
        """The station's own keys, made at first use. Raises ``ConfigInvalid`` for a damaged file."""
        return load_or_make_keys(self.folder / "trust.keys")

    def root_lists(self) -> list[bytes]:
        """The root lists, oldest first. Raises ``ConfigInvalid``."""
        return self._bodies("root-lists")

    def write_root_lists(self, bodies: Sequence[bytes]) -> None:
        """Replace the root lists."""
        write_private(self.folder / "root-lists", codec.encode(list(bodies)))

    def certificate(self) -> bytes:
        """The site certificate; empty for none."""
        return read_private(self.folder / "site-certificate", FILE_BYTES) or b""

    def write_certificate(self, body: bytes) -> None:
        """Replace the site certificate."""
        write_private(self.folder / "site-certificate", body)

    def revocations(self) -> list[bytes]:
        """The lists of revoked keys. Raises ``ConfigInvalid``."""
        return self._bodies("revocations")

    def write_revocations(self, bodies: Sequence[bytes]) -> None:
        """Replace the lists of revoked keys."""
        write_private(self.folder / "revocations", codec.encode(list(bodies)))

    def joined(self) -> Joined | None:
        """What a join left. Raises ``ConfigInvalid``."""
        path = self.folder / "masters"
        body = read_private(path, FILE_BYTES)
        if body is None:
            return None
        try:
            found = json.loads(body)
            root = bytes.fromhex(found["root"])
            masters = tuple(KnownMaster(str(entry["address"]), str(entry["key"])) for entry in found["masters"])
        except (ValueError, KeyError, TypeError, RecursionError):
            root, masters = b"", ()
        if len(root) * 2 != FINGERPRINT_HEX or not all(is_key(master.key) for master in masters):
            raise _damaged(
                path,
                'JSON: {"root": 32 hexadecimal digits, "masters": [{"address": …, "key": …}]}',
                f"move it away and join again: {JOIN}",
            )
        return Joined(root, masters)

    def write_joined(self, joined: Joined) -> None:
        """Replace what a join left."""
        entries = [{"address": master.address, "key": master.key} for master in joined.masters]
        text = json.dumps({"root": joined.root.hex(), "masters": entries}, indent=2)
        write_private(self.folder / "masters", text.encode() + b"\n")

    def floor(self) -> int:
        """A time that has certainly passed; 0 when none was kept."""
        text = (read_private(self.folder / "time-floor", FILE_BYTES) or b"").strip()
        return int(text) if text.isdigit() and len(text) <= 12 else 0

    def write_floor(self, seconds: int) -> None:
        """Replace the time."""
        write_private(self.folder / "time-floor", b"%d\n" % seconds)

    def _bodies(self, name: str) -> list[bytes]:
        path = self.folder / name
        body = read_private(path, FILE_BYTES)
        if body is None:
            return []
        return read_bodies(body, str(path))


def load_or_make_keys(path: Path) -> tuple[SigningKey, KemKey]:
    """A signing and a sealing key in one file, made at first use. Raises ``ConfigInvalid`` for a damaged one."""
    body = read_private(path, FILE_BYTES)
    if body is None:
        fresh = {"sig": new_private(), "kem": new_private()}
        write_private(path, codec.encode(fresh))
        return SigningKey(fresh["sig"]), KemKey(fresh["kem"])
    fields = _decoded(path, body, "the file that was made at first use")
    if type(fields) is dict and set(fields) == {"sig", "kem"}:
        sig, kem = fields["sig"], fields["kem"]
        if all(type(key) is bytes and len(key) == PUBLIC_BYTES for key in (sig, kem)):
            return SigningKey(sig), KemKey(kem)
    raise _damaged(path, "two private keys, sig and kem", "restore it from a backup, or move it away and join anew")


def read_bodies(body: bytes, where: str) -> list[bytes]:
    """A list of proofs as a file carries them. Raises ``ConfigInvalid``."""
    allowed = "a file that `outstation fleet` or this station wrote"
    found = _decoded(Path(where), body, allowed)
    if type(found) is not list or not all(type(each) is bytes for each in found):
        raise _damaged(Path(where), allowed, "restore it from where it was made")
    return found


def _decoded(path: Path, body: bytes, allowed: str) -> Any:
    try:
        return codec.decode(body, FILE_BYTES)
    except Refused as refusal:
        raise ConfigInvalid(
            "a file is damaged, or is another one than it should be",
            where=str(path),
            found=str(refusal),
            allowed=allowed,
            hint="restore it from where it was made",
        ) from None


def _damaged(path: Path, allowed: str, hint: str) -> ConfigInvalid:
    return ConfigInvalid(
        "a file is damaged, or is another one than it should be",
        where=str(path),
        found="something else",
        allowed=allowed,
        hint=hint,
    )
