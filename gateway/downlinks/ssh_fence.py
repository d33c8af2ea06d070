"""What a device may say on a connection without being asked, and how much: a device that floods is cut off.

A command's output is bounded where it is read, and a login by its time. What is left are messages about the connection
itself, such as wishes for another key exchange, which cost the gateway the most, at any time; and bytes of any kind
while nobody works over the connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import asyncssh
from asyncssh import SSHClientConnection
from asyncssh.packet import SSHPacket

IGNORE: Final = 2
KEXINIT: Final = 20
"""Numbers of messages (RFC 4253, section 12): one to be ignored, and the one that begins a key exchange."""

ANSWERS: Final = frozenset({81, 82, 91, 92})
"""Answers to our own requests and to the channels we open (RFC 4254, sections 4 and 5.1). One that nobody waits for
ends the connection as it is."""

MESSAGES: Final = 256.0
MESSAGES_PER_SECOND: Final = 8.0
KEXINIT_MESSAGES: Final = 32.0
"""A key exchange counts as so many messages: eight at once, then one in four seconds."""

IGNORED: Final = 65_536.0
IGNORED_PER_SECOND: Final = 8192.0
"""Some servers send a message to be ignored before each piece of data."""

MESSAGE_BYTES: Final = 4096
"""A message counts once more for each of these."""

IDLE_BYTES: Final = 1_048_576.0
IDLE_BYTES_PER_SECOND: Final = 16_384.0
"""More than the rest of a command that was given up, which is still under way, and any keepalive."""


class Flooding(asyncssh.ProtocolError):
    """The device says far more than it was asked for."""


class Bucket:
    """So much at once, and so much more each second."""

    def __init__(self, most: float, per_second: float, now: float) -> None:
        self._most = most
        self._per_second = per_second
        self._left = most
        self._at = now

    def take(self, amount: float, now: float) -> bool:
        """Whether there was as much left, which is used up now."""
        self._left = min(self._most, self._left + (now - self._at) * self._per_second) - amount
        self._at = now
        return self._left >= 0


class Fence:
    """Stands before one connection. While it is ``idle``, from its beginning on, its bytes are counted too."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.idle = True
        self.broken = ""
        """What the device has done; empty while it behaves."""
        self._monotonic = monotonic
        self._messages = Bucket(MESSAGES, MESSAGES_PER_SECOND, monotonic())
        self._ignored = Bucket(IGNORED, IGNORED_PER_SECOND, monotonic())
        self._bytes = Bucket(IDLE_BYTES, IDLE_BYTES_PER_SECOND, monotonic())

    def guard(self, connection: SSHClientConnection) -> None:
        """Count what comes on this connection from now on, and end it when that is too much."""
        # asyncssh makes its connections itself, so two methods that everything passes are replaced in the made one.
        whole: Any = connection
        process, receive = whole.process_packet, whole._recv_data  # noqa: SLF001 - data_received is held by uvloop already
        waiting = 0

        def process_packet(kind: int, number: int, packet: SSHPacket) -> bool | Awaitable[None]:
            self._message(kind, len(packet.get_full_payload()))
            answer: bool | Awaitable[None] = process(kind, number, packet)
            return answer

        def recv_data() -> None:
            nonlocal waiting
            if self._takes(len(whole._inpbuf) - waiting):  # noqa: SLF001 - asyncssh says nowhere else how much has come
                receive()
            else:
                connection.abort()
            waiting = len(whole._inpbuf)  # noqa: SLF001 - as above

        whole.process_packet, whole._recv_data = process_packet, recv_data  # noqa: SLF001 - as above

    def _message(self, kind: int, size: int) -> None:
        if kind in ANSWERS:
            return
        cost = (KEXINIT_MESSAGES if kind == KEXINIT else 1.0) + size // MESSAGE_BYTES
        bucket = self._ignored if kind == IGNORE else self._messages
        if not bucket.take(cost, self._monotonic()):
            what = "key exchanges" if kind == KEXINIT else "messages"
            self.broken = f"it floods the connection with {what} that nobody asked for"
            raise Flooding(self.broken)

    def _takes(self, size: int) -> bool:
        if self.idle and not self._bytes.take(size, self._monotonic()):
            self.broken = "it floods the connection while nobody asks it anything"
        return not self.broken
