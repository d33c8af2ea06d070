"""A TCP connection that a device makes for us, through its SSH server."""

from __future__ import annotations

import asyncio

import asyncssh

from device_agent.host import HostLost

BUFFER_BYTES = 65_536
WINDOW_BYTES = 262_144


class Tunnel(asyncssh.SSHTCPSession[bytes]):
    """Both halves of the stream: ``reader`` for what comes, and itself the ``Writer``."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader(limit=BUFFER_BYTES)
        self._channel: asyncssh.SSHTCPChannel[bytes] | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._closed = asyncio.Event()
        self._lost: HostLost | None = None

    # What asyncssh calls.

    def connection_made(self, chan: asyncssh.SSHTCPChannel[bytes]) -> None:
        self._channel = chan
        self.reader.set_transport(_Pausing(chan))

    def data_received(self, data: bytes, datatype: int | None) -> None:  # noqa: ARG002 - the signature is asyncssh's
        self.reader.feed_data(data)

    def eof_received(self) -> bool:
        self.reader.feed_eof()
        return True  # The other half may go on.

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._lost = HostLost(f"the connection broke under a stream: {exc}")
            self.reader.set_exception(self._lost)
        else:
            self.reader.feed_eof()
        self._room.set()
        self._closed.set()

    # What a function calls.

    def write(self, data: bytes, /) -> None:
        self._open_channel().write(data)

    def write_eof(self) -> None:
        self._open_channel().write_eof()

    async def drain(self) -> None:
        await self._room.wait()
        if self._lost is not None:
            raise self._lost
        if self._closed.is_set():
            raise ConnectionResetError("Connection lost")

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()

    async def wait_closed(self) -> None:
        await self._closed.wait()

    def _open_channel(self) -> asyncssh.SSHTCPChannel[bytes]:
        if self._lost is not None:
            raise self._lost
        if self._channel is None or self._channel.is_closing():
            raise ConnectionResetError("Connection lost")
        return self._channel


class _Pausing(asyncio.Transport):
    """What a StreamReader needs of a transport: to have it wait."""

    def __init__(self, channel: asyncssh.SSHTCPChannel[bytes]) -> None:
        super().__init__()
        self._channel = channel

    def pause_reading(self) -> None:
        self._channel.pause_reading()

    def resume_reading(self) -> None:
        self._channel.resume_reading()
