"""Text from an SSH server that is not UTF-8: it is made readable before asyncssh decodes it, and costs no connection.

RFC 4251 (section 5) asks for UTF-8. Devices send banners, prompts and reasons in the encoding of their firmware, and
asyncssh ends the connection at the first such byte. Its option ``utf8_decode_errors`` covers some of
these messages; prompts, language tags and the version line are left to this file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from asyncssh import SSHClient, SSHClientConnection
from asyncssh.packet import Boolean, PacketDecodeError, SSHPacket, String, UInt32

from gateway.downlinks.ssh_algorithms import Offer, offer_in

DECODE_ERRORS: Final = "backslashreplace"
"""How bytes that are not UTF-8 are shown."""

DISCONNECT: Final = 1
DEBUG: Final = 4
KEXINIT: Final = 20
BANNER: Final = 53
ASKED: Final = 60
"""A question during the login: prompts (RFC 4256), or the wish for a new password (RFC 4252, section 8)."""
OPEN_FAILURE: Final = 92
CHANNEL_REQUEST: Final = 98
"""Numbers of messages (RFC 4250, section 4.1.2)."""

_LAYOUTS: Final[Mapping[int, str]] = {DISCONNECT: "utl", DEBUG: "btl", BANNER: "tl", OPEN_FAILURE: "uutl"}
"""The fields of a message: a number, a flag, a text, a language tag."""

Process = Callable[[int, int, SSHPacket], bool | Awaitable[None]]


def readable(text: bytes) -> bytes:
    """A text as UTF-8. Text that is UTF-8 already is unchanged."""
    return text.decode("utf-8", DECODE_ERRORS).encode()


def tolerate(connection: SSHClientConnection) -> None:
    """Make the texts of a connection readable, and a version line that is not ASCII, from now on."""
    whole: Any = connection
    _rewrite(whole, _LAYOUTS)
    receive = whole._recv_version  # noqa: SLF001 - asyncssh has no hook for the version line

    def recv_version() -> bool:
        line, end, rest = whole._inpbuf.partition(b"\n")  # noqa: SLF001 - as above
        if not end or line.isascii() or not line.startswith(b"SSH-"):
            return bool(receive())
        whole._inpbuf = b"%b\n%b" % (line.decode("ascii", "replace").encode("ascii", "replace"), rest)  # noqa: SLF001 - as above
        more = bool(receive())
        # Both sides sign the line as it was sent (RFC 4253, section 8).
        whole._server_version = line.removesuffix(b"\r")  # noqa: SLF001 - as above
        return more

    whole._recv_handler = recv_version  # noqa: SLF001 - as above


def tolerate_questions(connection: SSHClientConnection | None) -> None:
    """Make the questions of the login method readable that has just begun on a connection."""
    auth: Any = None if connection is None else connection.auth
    if auth is not None:
        method = auth._method  # noqa: SLF001 - asyncssh shows the method nowhere else
        layout = "ttlp" if method == b"keyboard-interactive" else "tl" if method == b"password" else ""
        _rewrite(auth, {ASKED: layout})


def tolerate_requests(channel: Any) -> None:
    """Make what a server says of the end of a command readable (RFC 4254, section 6.10)."""
    _rewrite(channel, {CHANNEL_REQUEST: "sblbtl"}, String("exit-signal"))


def _rewrite(handler: Any, layouts: Mapping[int, str], begin: bytes = b"") -> None:
    """Rewrite the messages that a handler is given, those alone that begin so."""
    # asyncssh makes its handlers itself, so the method that every message passes is replaced in the made one.
    process: Process = handler.process_packet

    def process_packet(kind: int, number: int, packet: SSHPacket) -> bool | Awaitable[None]:
        layout = layouts.get(kind, "")
        meant = layout and packet.get_remaining_payload().startswith(begin)
        return process(kind, number, _rewritten(packet, layout) if meant else packet)

    handler.process_packet = process_packet


def _rewritten(packet: SSHPacket, layout: str) -> SSHPacket:
    """The same packet with readable texts; as it was when it is malformed, which asyncssh reports."""
    begin = packet.get_consumed_payload()
    copy = SSHPacket(packet.get_remaining_payload())
    fields = []
    try:
        for kind in layout:
            fields += _fields(copy, kind)
    except PacketDecodeError:
        return packet
    whole = SSHPacket(begin + b"".join(fields) + copy.get_remaining_payload())
    whole.get_bytes(len(begin))
    return whole


def _fields(packet: SSHPacket, kind: str) -> list[bytes]:
    match kind:
        case "u":
            return [UInt32(packet.get_uint32())]
        case "b":
            return [Boolean(packet.get_boolean())]
        case "s":
            return [String(packet.get_string())]
        case "t":
            return [String(readable(packet.get_string()))]
        case "l":
            tag = packet.get_string()
            return [String(tag if tag.isascii() else b"")]
        case _:
            prompts = packet.get_uint32()
            found = [UInt32(prompts)]
            for _ in range(prompts):
                found += [*_fields(packet, "t"), *_fields(packet, "b")]
            return found


class TolerantClient(SSHClient):
    """A client whose server may say anything in any encoding."""

    connection: SSHClientConnection | None = None
    offer = Offer()
    """The algorithms that the server offers, once it has said so."""

    def connection_made(self, conn: SSHClientConnection) -> None:
        """Nothing has been received yet."""
        self.connection = conn
        tolerate(conn)
        whole: Any = conn
        process: Process = whole.process_packet

        def process_packet(kind: int, number: int, packet: SSHPacket) -> bool | Awaitable[None]:
            if kind == KEXINIT and not self.offer.kex:
                self.offer = offer_in(packet)
            return process(kind, number, packet)

        whole.process_packet = process_packet
