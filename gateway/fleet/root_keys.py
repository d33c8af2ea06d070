"""Root keys, each in a file of its own, which belongs on a medium of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from device_agent.errors import UsageInvalid
from device_agent.trust.keys import PUBLIC_BYTES, SigningKey, fingerprint, new_private
from gateway.fleet.private_file import read_private, write_private

FIRST_LINE = "outstation root key"
FILE_BYTES = 64 * 1024


@dataclass(frozen=True)
class RootKey:
    """A root key and the file it came from."""

    name: str
    key: SigningKey
    path: Path


def make_root_key(folder: Path, name: str) -> RootKey:
    """A new root key in a file of mode 0600. Raises ``UsageInvalid`` for a file that is there: none is overwritten."""
    path = folder / f"{name}.key"
    if path.exists():
        raise UsageInvalid(
            "there is a root key of this name",
            error_id="fleet.key_exists",
            where=str(path),
            allowed="a folder without it",
            hint="outstation fleet init --folder OTHER, or move the key to its medium",
        )
    key = SigningKey(new_private())
    text = f"{FIRST_LINE}\nname {name}\npublic {key.public.hex()}\nsecret {key.private.hex()}\n"
    write_private(path, text.encode())
    return RootKey(name, key, path)


def read_root_key(path: Path) -> RootKey:
    """The root key in a file. Raises ``UsageInvalid``."""
    if not path.is_file():
        raise UsageInvalid(
            "there is no such key file",
            error_id="fleet.no_key",
            where=str(path),
            allowed="a file that `outstation fleet init` made, such as root-1.key",
            hint="mount the medium it is on, and give its path: --key /media/…/root-1.key",
        )
    lines = (read_private(path, FILE_BYTES) or b"").decode("utf-8", "replace").splitlines()
    fields = dict(line.split(" ", 1) for line in lines[1:] if " " in line)
    try:
        public, secret = bytes.fromhex(fields.get("public", "")), bytes.fromhex(fields.get("secret", ""))
    except ValueError:
        public, secret = b"", b""
    if lines[:1] != [FIRST_LINE] or len(secret) != PUBLIC_BYTES or SigningKey(secret).public != public:
        raise UsageInvalid(
            "this is no root key, or it is damaged",
            error_id="fleet.bad_key",
            where=str(path),
            found=lines[0][:60] if lines else "an empty file",
            allowed=f"a file that begins with {FIRST_LINE!r}, with its public and its secret half",
            hint="use the copy of it, or go on with two others: outstation fleet rotate --replace NAME",
        )
    return RootKey(fields.get("name", path.stem), SigningKey(secret), path)


def root_keys_in(folder: Path) -> list[RootKey]:
    """The root keys that lie in a folder."""
    return [read_root_key(path) for path in sorted(folder.glob("root-*.key"))]


def described(key: RootKey) -> str:
    """A key as people compare it."""
    return f"{key.name} ({fingerprint(key.key.public)})"
