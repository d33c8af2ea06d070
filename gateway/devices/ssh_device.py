"""One device that is reached over SSH, what opens its door, and both as a row of the store."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any, Final, Literal, get_args

from msgspec import Struct

from device_agent.errors import Refused
from device_agent.trust import codec
from gateway.devices.ssh_secrets import COLUMNS, Sealed, Secret
from gateway.store.writer import Statement

__all__ = ["Entry", "Login", "Secret", "SshDevice"]

LINK: Final = "ssh"
PORT: Final = 22
POLL_SECONDS: Final = 60.0

Login = Literal["password", "key", "agent", "certificate"]
LOGINS: Final = get_args(Login)

LOAD = (
    "SELECT name, user, host, port, fingerprints, host_keys, login, jump, poll_seconds, enabled, added, added_by,"
    " nonce, password, private_key, passphrase, certificate FROM ssh_devices ORDER BY name"
)
_PUT = (
    "INSERT INTO ssh_devices (name, user, host, port, fingerprints, host_keys, login, jump, poll_seconds, enabled,"
    " added, added_by, nonce, password, private_key, passphrase, certificate)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (name) DO UPDATE SET user=excluded.user, host=excluded.host, port=excluded.port,"
    " fingerprints=excluded.fingerprints, host_keys=excluded.host_keys, login=excluded.login, jump=excluded.jump,"
    " poll_seconds=excluded.poll_seconds, enabled=excluded.enabled, nonce=excluded.nonce, password=excluded.password,"
    " private_key=excluded.private_key, passphrase=excluded.passphrase, certificate=excluded.certificate"
)
_WIPE = (
    "UPDATE ssh_devices SET password=zeroblob(length(password)), private_key=zeroblob(length(private_key)),"
    " passphrase=zeroblob(length(passphrase)), certificate=zeroblob(length(certificate)) WHERE name = ?"
)
_DELETE = "DELETE FROM ssh_devices WHERE name = ?"


class SshDevice(Struct, frozen=True):
    """Where a device is reached over SSH, as whom, and by which host keys it is known.

    ``host_keys`` are as OpenSSH writes them, ``type base64``; ``fingerprints`` (``SHA256:…``) are what is pinned. A pin
    that was given as a fingerprint has no host key until the device is met: whoever meets it calls ``SshBook.met``.
    ``jump`` is the name of the SSH device through which it is reached, or ``""``.
    """

    name: str
    user: str
    host: str
    port: int = PORT
    host_keys: tuple[str, ...] = ()
    login: Login = "password"
    jump: str = ""
    poll_seconds: float = POLL_SECONDS
    enabled: bool = True
    fingerprints: tuple[str, ...] = ()
    added: float = 0.0
    added_by: str = ""

    @property
    def address(self) -> str:
        """Where it is, for people."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}:{self.port}"

    def view(self) -> dict[str, Any]:
        """As the API shows it; no secret is in it."""
        return {
            "name": self.name,
            "user": self.user,
            "host": self.host,
            "port": self.port,
            "login": self.login,
            "jump": self.jump,
            "fingerprints": list(self.fingerprints),
            "host_keys": list(self.host_keys),
            "poll_seconds": self.poll_seconds,
            "enabled": self.enabled,
            "added": self.added,
            "added_by": self.added_by,
        }


class Entry(Struct, frozen=True):
    """A device with its sealed secrets. ``nonce`` is made anew with each pin."""

    device: SshDevice
    nonce: bytes
    sealed: Sealed


def from_row(row: Sequence[Any]) -> Entry:
    """An entry from a row of ``LOAD``."""
    name, user, host, port, fingerprints, host_keys, login, jump, poll, enabled, added, by, nonce, *sealed = row
    device = SshDevice(
        name=name,
        user=user,
        host=host,
        port=port,
        host_keys=tuple(host_keys.splitlines()),
        login=login,
        jump=jump,
        poll_seconds=poll,
        enabled=bool(enabled),
        fingerprints=tuple(fingerprints.splitlines()),
        added=added,
        added_by=by,
    )
    return Entry(device, nonce, Sealed(*sealed))


def putting(entries: Sequence[Entry]) -> Statement:
    """The statement that puts entries on disk as they are."""
    return (_PUT, [_row(entry) for entry in entries])


def dropping(names: Sequence[str]) -> list[Statement]:
    """The statements that overwrite what is secret, and let the rows go."""
    rows = [(name,) for name in names]
    return [(_WIPE, rows), (_DELETE, rows)]


def _row(entry: Entry) -> tuple[Any, ...]:
    device = entry.device
    return (
        device.name,
        device.user,
        device.host,
        device.port,
        "\n".join(device.fingerprints),
        "\n".join(device.host_keys),
        device.login,
        device.jump,
        device.poll_seconds,
        int(device.enabled),
        device.added,
        device.added_by,
        entry.nonce,
        *(getattr(entry.sealed, column) for column in COLUMNS),
    )


def identity(site: str, name: str, nonce: bytes, fingerprints: Sequence[str]) -> bytes:
    """What stands for a device's key in its certificate: 32 bytes that bind the pinned host keys to its name.

    A host key itself cannot stand there: it may be of any kind, and whole batches of cameras leave the factory with the
    same one. Nobody has a private key to this digest, so nothing is ever signed in this device's name.
    """
    bound = codec.encode([site, name, nonce, sorted(fingerprints)])
    return hashlib.sha256(b"os1 ssh host\0" + bound).digest()


def host_key_fingerprint(line: str) -> str:
    """The fingerprint of a host key as OpenSSH shows it. Raises ``Refused`` for what is no host key."""
    parts = line.split()
    try:
        blob = base64.b64decode(parts[1], validate=True)
        size = int.from_bytes(blob[:4], "big")
        if blob[4 : 4 + size].decode("ascii") != parts[0]:
            raise ValueError(parts[0])
    except (IndexError, ValueError):
        raise Refused("bad_host_key", line[:60]) from None
    digest = hashlib.sha256(blob).digest()
    return "SHA256:" + base64.b64encode(digest).decode("ascii").rstrip("=")
