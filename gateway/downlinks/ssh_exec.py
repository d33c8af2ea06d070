"""One command over an SSH connection: a session that feeds it, keeps the start of what it says, and counts the rest."""

from __future__ import annotations

import asyncio
import re
from typing import Final, cast

import asyncssh

from device_agent.host import HostLost
from gateway.downlinks.ssh_texts import tolerate_requests

WINDOW_BYTES: Final = 262_144
"""What a device may send before it must wait for us; the memory that one command can take beside what is kept."""

CHUNK_BYTES: Final = 32_768
FLOOD_BYTES: Final = 1_048_576
FLOOD_SECONDS: Final = 0.1
"""Of what is thrown away, so much is read before a pause of this length: a flood must not keep the others waiting."""

BEFORE_BYTES: Final = 4096
"""What is kept of a device's words from before the command began, to show them when it never does."""

TAIL_BYTES: Final = 4096
UNNAMED_SIGNAL: Final = -99
"""The return code where the server has no name for the signal that ended a command; asyncssh has the same."""


class Kept:
    """One stream: what came before ``mark`` apart, then the first ``limit`` bytes, the last few, and a count."""

    def __init__(self, mark: re.Pattern[bytes] | None, limit: int) -> None:
        self.marked = mark is None
        self.found: re.Match[bytes] | None = None
        self.before = bytearray()
        self.head = bytearray()
        self.tail = b""
        self.discarded = 0
        self._mark = mark
        self._limit = limit

    def take(self, data: bytes) -> None:
        """Bytes as they come, in pieces of any size."""
        if self._mark is not None and not self.marked:
            self.before += data
            self.found = self._mark.search(self.before)
            if self.found is None:
                loose = max(0, len(self.before) - BEFORE_BYTES)
                del self.before[:loose]
                self.discarded += loose
                return
            self.marked = True
            self.discarded = 0
            data = bytes(self.before[self.found.end() :])
        room = max(0, self._limit - len(self.head))
        self.head += data[:room]
        self.discarded += max(0, len(data) - room)
        self.tail = (self.tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]


class Exec(asyncssh.SSHClientSession[bytes]):
    """A command under way in a session of a connection. ``start`` returns at once; the events tell the rest."""

    def __init__(self, stdin: bytes | None, stdout: Kept, stderr: Kept) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None
        self.lost: HostLost | None = None
        self.sent = False
        """The command is under way to the device, which may have begun it."""
        self.begun = asyncio.Event()
        """Its mark has come, or it is over."""
        self.exited = asyncio.Event()
        """Its end was told, or will not be."""
        self.drained = asyncio.Event()
        """Nothing more will be said."""
        self._input = memoryview(stdin or b"")
        self._mute = stdin is None
        """Nothing is sent, not even the end: the command does not read it."""

        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._paused = False
        self._flood = 0
        self._abandoned = False

    def start(self, connection: asyncssh.SSHClientConnection, command: bytes) -> None:
        """Ask for it. The opening belongs to the connection, so that a caller who leaves cannot leave it half open."""
        connection.create_task(self._open(connection, command))

    def abandon(self) -> None:
        """Close the session, whatever runs in it."""
        self._abandoned = True
        if self._channel is not None:
            self._channel.abort()

    def signal_kill(self) -> None:
        """Ask the server itself to kill it; not every server does."""
        if self._channel is not None:
            try:
                self._channel.send_signal("KILL")
            except OSError:
                return

    async def _open(self, connection: asyncssh.SSHClientConnection, command: bytes) -> None:
        reason = "the connection is gone"
        opened = False
        try:
            # The type says text; bytes are sent as they are, which a name that is no UTF-8 needs.
            await connection.create_session(
                lambda: self, cast("str", command), encoding=None, window=WINDOW_BYTES, env=(), request_pty=False
            )
            opened = True
        except (asyncssh.Error, OSError) as error:
            reason = str(error)
        finally:
            if not opened:
                # A refusal is certain; a connection that breaks while the command is under way to it is not.
                self._over(
                    HostLost(
                        f"the device did not open a session: {reason}", started=self.sent and connection.is_closed()
                    )
                )
            if self._abandoned:
                self.abandon()

    # What asyncssh calls.

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self._channel = chan
        tolerate_requests(chan)
        self.sent = True

    def session_started(self) -> None:
        self._feed()

    def data_received(self, data: bytes, datatype: int | None) -> None:
        kept = self.stdout if datatype is None else self.stderr
        discarded = kept.discarded
        kept.take(data)
        self._flood += max(0, kept.discarded - discarded)
        if self.stdout.marked and self.stderr.marked:
            self.begun.set()
        if self._flood > FLOOD_BYTES and self._channel is not None:
            self._flood = 0
            self._channel.pause_reading()
            asyncio.get_running_loop().call_later(FLOOD_SECONDS, self._read_on)

    def eof_received(self) -> bool:
        self.drained.set()
        return True  # It may still read its input.

    def exit_status_received(self, status: int) -> None:
        self.returncode = status
        self.exited.set()

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:  # noqa: ARG002 - the signature is asyncssh's
        if self._channel is not None:
            self.returncode = self._channel.get_returncode()
        self.exited.set()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._feed()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._over(HostLost(f"the connection broke under a command: {exc}"))
        else:
            self._over(None)

    def _over(self, lost: HostLost | None) -> None:
        self.lost = self.lost or lost
        for event in (self.begun, self.exited, self.drained):
            event.set()

    def _read_on(self) -> None:
        if self._channel is not None and not self._abandoned:
            self._channel.resume_reading()

    def _feed(self) -> None:
        channel = self._channel
        if channel is None or self._mute:
            return
        try:
            while self._input and not self._paused:
                # What is left is taken off first: writing may call this again.
                chunk, self._input = self._input[:CHUNK_BYTES], self._input[CHUNK_BYTES:]
                channel.write(bytes(chunk))
            if not self._input and channel.can_write_eof():
                channel.write_eof()
        except OSError:
            self._input = memoryview(b"")  # A command that does not read its input loses it.
