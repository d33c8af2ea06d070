"""Which host keys an SSH server has, asked without logging in: one handshake for each kind of key.

It proves nothing: whoever sits between answers as well. Somebody who knows the device compares what comes out.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Any, Final

import asyncssh
from msgspec import Struct

from device_agent.dial import first_connected
from device_agent.errors import StationFailed
from device_agent.host_port import host_port
from device_agent.name_lookup import Address, NameLookup
from gateway.devices.ssh_device import host_key_fingerprint
from gateway.downlinks.ssh_algorithms import HOST_KEYS, KEX, algorithms_of
from gateway.downlinks.ssh_texts import DECODE_ERRORS, TolerantClient

SCAN_SECONDS: Final = 10.0
KINDS: Final[tuple[tuple[str, ...], ...]] = tuple(HOST_KEYS.values())
"""Kinds of host keys, the one to prefer first. A key is the same by whichever algorithm of its kind it signs."""

FOUND_CHARACTERS: Final = 200


class ScanFailed(StationFailed):
    """No host key was heard from there."""

    default_id = "ssh.scan_failed"


class HostKey(Struct, frozen=True):
    """One host key: as OpenSSH writes it, and as people compare it."""

    line: str
    fingerprint: str

    @property
    def kind(self) -> str:
        """The kind of key, as OpenSSH calls it."""
        return self.line.partition(" ")[0]


async def scan(
    host: str,
    port: int,
    *,
    tunnel: asyncssh.SSHClientConnection | None = None,
    seconds: float = SCAN_SECONDS,
    kinds: Sequence[Sequence[str]] = KINDS,
) -> list[HostKey]:
    """Every host key of a server, the preferred kind first; ``tunnel`` leads there. Raises ``ScanFailed``.

    It takes ``seconds`` at most, whatever answers; asyncssh bounds what is read before a handshake is over.
    """
    where = host_port(host, port)
    found: dict[str, HostKey] = {}
    last: Exception | None = None
    try:
        async with asyncio.timeout(seconds):
            # Behind a jump host the name is that host's to look up.
            addresses = await NameLookup().addresses(host, port, seconds) if tunnel is None else []
            for kind in kinds:
                try:
                    key = await _host_key(host, port, kind, tunnel, addresses)
                except (asyncssh.Error, ConnectionResetError) as error:
                    # It has no key of this kind; many a server says so by ending the connection.
                    last = last or error
                    continue
                if key is not None:
                    found[key.fingerprint] = key
    except TimeoutError:
        last = TimeoutError(f"it did not finish a handshake within {seconds:g} seconds")
    except (OSError, UnicodeError) as error:
        last = last or error
    # Some let only so many in at once, or slow down whoever comes again: what was heard counts.
    if found:
        return list(found.values())
    raise ScanFailed(
        "no host key was heard from there",
        where=where,
        found=_words(last),
        allowed="an SSH server that answers",
        hint=f"ssh-keyscan -p {port} {host}   or give its fingerprint: --fingerprint SHA256:…",
    )


async def _host_key(
    host: str,
    port: int,
    kind: Sequence[str],
    tunnel: asyncssh.SSHClientConnection | None,
    addresses: Sequence[Address],
) -> HostKey | None:
    client = TolerantClient()
    tolerant = asyncssh.SSHClientConnectionOptions(
        client_factory=lambda: client, utf8_decode_errors=DECODE_ERRORS, config=None
    )
    algorithms: dict[str, Any] = {
        "server_host_key_algs": list(kind),
        "kex_algs": KEX,
        "config": None,
        "options": tolerant,
    }
    sock = await first_connected(addresses) if tunnel is None else None
    way: dict[str, Any] = {"tunnel": tunnel} if sock is None else {"tunnel": (), "sock": sock}
    try:
        key = await asyncssh.get_server_host_key(host, port, **way, **algorithms)
    except (asyncssh.Error, ConnectionError):
        why = client.offer.problem(algorithms_of(HOST_KEYS))
        if not why:
            raise
        raise asyncssh.KeyExchangeFailed(why) from None
    finally:
        if sock is not None:
            sock.close()
    if key is None:
        return None
    line = " ".join(key.export_public_key("openssh").decode("ascii").split()[:2])
    return HostKey(line, host_key_fingerprint(line))


def _words(error: Exception | None) -> str:
    """What went wrong, in words; what a server says is cut, and has no control characters in it."""
    match error:
        case None:
            words = "it showed no host key"
        case socket.gaierror():
            words = f"this name has no address: {error.strerror or error}"
        case ConnectionRefusedError():
            words = "connection refused: nothing listens there"
        case asyncssh.ConnectionLost() | ConnectionResetError():
            words = "the connection ended before the handshake did"
        case asyncssh.KeyExchangeFailed():
            words = error.reason
        case asyncssh.Error():
            words = f"it does not speak SSH as it should: {error.reason}"
        case OSError() if error.strerror:
            words = error.strerror.lower()
        case _:
            words = str(error) or type(error).__name__
    return "".join(each if each.isprintable() else "?" for each in words)[:FOUND_CHARACTERS]
