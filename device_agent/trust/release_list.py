"""The release list: which files of code a fleet has released, by their hashes, signed by one of its release keys.

A file that is code runs only when its SHA-256 stands in the newest list, under its own path. So whoever may order a
device, or carries bytes to it, brings no code: for that it takes a key that the root list names among the release keys,
and which is kept apart from every master.

Versions count upward: whoever knows one takes no older one. When the key that signed the newest list counts no more,
that list counts no more either, and a list of another key may begin at a lower version, so that a thief's last number
does not lock out his successor; but no key is believed with a version that was seen of it before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from device_agent.errors import Refused
from device_agent.trust import claims as c
from device_agent.trust import codec, cose
from device_agent.trust.keys import SigningKey
from device_agent.trust.keys import kid as kid_of
from device_agent.trust.reach import CLASSES, Reach
from device_agent.trust.root_list import KEYS_MAX, RootList

TYP: Final = "os-rls"
FILES_MAX: Final = 2048
FUNCTIONS_MAX: Final = 256
PATH_CHARACTERS: Final = 160
VERSION_MAX: Final = 2**53 - 1
HASH_BYTES: Final = 32
STATE_BYTES: Final = 512 * 1024

PATH_PATTERN: Final = r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*"
FUNCTION_PATTERN: Final = r"[a-z][a-z0-9_]{0,63}"

_path = re.compile(PATH_PATTERN)
_function = re.compile(FUNCTION_PATTERN)


@dataclass(frozen=True, slots=True)
class Released:
    """A file in a list. ``reaches`` is the class of each of its functions that is not as good as a root shell."""

    path: str
    sha256: bytes
    reaches: Mapping[str, Reach] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReleaseList:
    """A list as it was read; nothing of it is known to be true before it was opened. ``files`` are sorted."""

    version: int
    issued: int
    files: tuple[Released, ...]
    kid: bytes
    body: bytes = field(repr=False)
    _proof: cose.Unverified = field(repr=False)

    def verify(self, public: bytes) -> None:
        """Check the signature with the key that ``kid`` stands for. Raises ``Refused``."""
        self._proof.verified(public)

    def of(self, path: str) -> tuple[Released, ...]:
        """What was released under a path: one file, or one for each environment."""
        return tuple(each for each in self.files if each.path == path)


def sign_release_list(key: SigningKey, *, version: int, issued: int, files: Iterable[Released]) -> bytes:
    """A list of these files. Raises ``Refused`` for one that nobody would read."""
    ordered = sorted(files, key=lambda each: (each.path, each.sha256))
    entries = [[each.path, each.sha256, dict(sorted(each.reaches.items()))] for each in ordered]
    body = cose.sign(key, TYP, {c.VER: version, c.IAT: issued, c.FILES: entries})
    read_release_list(body)
    return body


def read_release_list(body: bytes) -> ReleaseList:
    """Read a list without believing it. Raises ``Refused``."""
    proof = cose.read(body, TYP)
    c.only(proof.claims, c.VER, c.IAT, c.FILES)
    files = tuple(_released(each) for each in c.take(proof.claims, c.FILES, list, most=FILES_MAX))
    places = [(each.path, each.sha256) for each in files]
    if places != sorted(set(places)):
        raise Refused("claim_invalid", "released files are sorted and named once")
    version = c.take(proof.claims, c.VER, int, most=VERSION_MAX)
    if not version:
        raise Refused("claim_invalid", "versions begin with 1")
    return ReleaseList(version, c.take_time(proof.claims, c.IAT), files, proof.kid, body, proof)


def release_key(kid: bytes, root: RootList | None) -> bytes:
    """The release key that a kid stands for, by the root list alone. Raises ``Refused``."""
    if root is None or not (root.releases or kid in root.revoked):
        raise Refused("no_release_key", "the root list of this fleet names no release key")
    if kid in root.revoked:
        raise Refused("release_key_revoked", kid.hex())
    for public in root.releases:
        if kid_of(public) == kid:
            return public
    raise Refused("unknown_release_key", f"{kid.hex()} is not in version {root.version} of the root list")


def open_release_list(body: bytes, root: RootList | None) -> ReleaseList:
    """A list by a release key that counts. Raises ``Refused``."""
    read = read_release_list(body)
    read.verify(release_key(read.kid, root))
    return read


class Releases:
    """The newest list that one party knows, and the highest version it has seen of each key.

    It holds no clock and touches no disk; ``export`` is its whole state as bytes.
    """

    def __init__(self) -> None:
        self._newest: ReleaseList | None = None
        self._marks: dict[bytes, int] = {}
        self._proven_by = b""

    def take(self, body: bytes, root: RootList | None) -> bool:
        """A list from anywhere, as it proves itself; whether it is news. Raises ``Refused``."""
        fresh = open_release_list(body, root)
        least = self._marks.get(fresh.kid, 0)
        try:
            known = self.current(root)
        except Refused as refused:
            if refused.reason == "bad_signature" and self._newest is not None and self._newest.kid == fresh.kid:
                # What was kept was damaged: the same list mends it.
                least -= 1
        else:
            if known.body == body:
                return False
            least = max(least, known.version)
        if fresh.version <= least:
            raise Refused("rollback", f"version {fresh.version} of the release list, known is {least}")
        standing = {kid_of(public) for public in root.releases} if root is not None else set()
        self._marks = {kid: mark for kid, mark in self._marks.items() if kid in standing}
        self._marks[fresh.kid] = fresh.version
        self._newest, self._proven_by = fresh, b""
        return True

    def current(self, root: RootList | None) -> ReleaseList:
        """The newest list, if its key counts now. Raises ``Refused``."""
        if self._newest is None:
            raise Refused("no_release_list", "no list of released files was brought here yet")
        public = release_key(self._newest.kid, root)
        if self._proven_by != public:
            # It may come from a disk where somebody else could write.
            self._newest.verify(public)
            self._proven_by = public
        return self._newest

    def export(self) -> bytes:
        """Everything that was taken, for a file."""
        body = self._newest.body if self._newest is not None else b""
        return codec.encode([body, [[kid, mark] for kid, mark in sorted(self._marks.items())]])

    @classmethod
    def restored(cls, state: bytes) -> Releases:
        """From its state; nothing of it is believed before it was verified. Raises ``Refused`` for other bytes."""
        parts = codec.decode(state, limit=STATE_BYTES)
        if type(parts) is not list or len(parts) != 2 or type(parts[0]) is not bytes or type(parts[1]) is not list:
            raise Refused("malformed", "not the state of a release list")
        body, marks = parts
        if len(marks) > KEYS_MAX or not all(_is_mark(each) for each in marks):
            raise Refused("malformed", "the marks of a release list are keys and versions")
        releases = cls()
        releases._marks = dict(marks)
        releases._newest = read_release_list(body) if body else None
        return releases


def _is_mark(value: Any) -> bool:
    return type(value) is list and len(value) == 2 and type(value[0]) is bytes and type(value[1]) is int


def _released(value: Any) -> Released:
    if type(value) is not list or len(value) != 3:
        raise Refused("claim_invalid", "a released file is a path, a hash and classes of functions")
    path, sha256, reaches = value
    if type(path) is not str or len(path) > PATH_CHARACTERS or not _path.fullmatch(path):
        raise Refused("claim_invalid", f"{str(path)[:40]!r} is no path of a released file")
    if type(sha256) is not bytes or len(sha256) != HASH_BYTES:
        raise Refused("claim_invalid", f"the hash of {path} has another length")
    if type(reaches) is not dict or len(reaches) > FUNCTIONS_MAX or list(reaches) != sorted(map(str, reaches)):
        raise Refused("claim_invalid", f"the classes of {path} are no sorted map")
    for function, reach in reaches.items():
        if type(function) is not str or not _function.fullmatch(function):
            raise Refused("claim_invalid", f"{str(function)[:40]!r} in {path} is no function")
        if reach not in CLASSES:
            raise Refused("claim_invalid", f"{function} in {path} is of the class {str(reach)[:40]!r}")
    return Released(path, sha256, reaches)
