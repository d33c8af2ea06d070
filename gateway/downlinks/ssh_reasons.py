"""Why a device was not reached over SSH, in one word for programs and one sentence for people."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from typing import Final

import asyncssh

from device_agent.errors import OutstationError
from gateway.devices.ssh_secrets import SecretLost

DETAIL_CHARACTERS: Final = 300

_BY_ERRNO: Final = {
    errno.ECONNREFUSED: "connection_refused",
    errno.ENETUNREACH: "no_route",
    errno.EHOSTUNREACH: "no_route",
    errno.EADDRNOTAVAIL: "no_route",
    errno.ENETDOWN: "no_route",
    errno.ETIMEDOUT: "timed_out",
    errno.ECONNRESET: "connection_lost",
    errno.EPIPE: "connection_lost",
    errno.EMFILE: "busy",
    errno.ENFILE: "busy",
}
DROPPED: Final = frozenset({"timed_out", "connection_lost"})
"""What a device that has too many at its door does."""


class Unreached(OutstationError):
    """A device was not reached; ``reason`` is one word, ``detail`` the rest of the sentence."""

    default_id = "ssh.unreached"

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class KeyChanged(Unreached):
    """What answers shows a host key that is not pinned. ``others`` are kinds of keys that it may show instead."""

    def __init__(self, detail: str, others: Sequence[str] = ()) -> None:
        super().__init__("host_key_changed", detail)
        self.others = others


def unreached(error: BaseException, what: str, seconds: float) -> Unreached:
    """What an error means that came while ``what`` was done, which had so many seconds."""
    if isinstance(error, KeyChanged):
        return KeyChanged(_cut(error.detail), error.others)
    reason, detail = _meaning(error, what, seconds)
    return Unreached(reason, _cut(detail))


def _cut(detail: str) -> str:
    return " ".join(detail.split())[:DETAIL_CHARACTERS]


def _meaning(error: BaseException, what: str, seconds: float) -> tuple[str, str]:
    if isinstance(error, Unreached):
        return error.reason, error.detail
    if isinstance(error, SecretLost):
        return "login_unusable", error.what
    if isinstance(error, TimeoutError):
        return "timed_out", f"no answer within {seconds:g} s while {what}"
    if isinstance(error, asyncssh.PermissionDenied):
        return "login_refused", error.reason or "the device does not take this login"
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return "host_key_changed", error.reason
    if isinstance(error, asyncssh.KeyExchangeFailed):
        return "no_common_algorithm", error.reason
    if isinstance(error, asyncssh.ConnectionLost):
        return "connection_lost", f"the device hung up while {what}"
    if isinstance(error, (asyncssh.ProtocolError, asyncssh.ProtocolNotSupported, asyncssh.MACError)):
        return "not_ssh", f"what answers there does not speak SSH: {error.reason}"
    if isinstance(error, asyncssh.ChannelOpenError):
        return "no_route", f"the jump host does not get through to it: {error.reason}"
    if isinstance(error, asyncssh.DisconnectError):
        return "connection_lost", f"the device ended the connection while {what}: {error.reason}"
    if isinstance(error, (asyncssh.KeyImportError, asyncssh.KeyEncryptionError)):
        return "login_unusable", f"the private key or its passphrase is not usable: {error}"
    if isinstance(error, socket.gaierror):
        return "name_unknown", f"its host name has no address: {error.strerror}"
    if isinstance(error, OSError):
        # The words of asyncio name the address, which is known.
        words = os.strerror(error.errno) if error.errno in _BY_ERRNO else str(error.strerror or error)
        return _BY_ERRNO.get(error.errno or 0, "no_route"), words
    return "not_ssh", f"{type(error).__name__} while {what}: {error}"
