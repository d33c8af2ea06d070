"""The socket on which a Salt master's publishes are heard, which knows whether its line is up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from device_agent.errors import Refused
from device_agent.questions import Unanswered
from upstream.dealer import LinkLost
from upstream.salt.channel import dialled, opened
from upstream.salt.publishes import PUBLISH_BYTES, SUBSCRIPTIONS

log = logging.getLogger(__name__)

CONNECT_SECONDS: Final = 10.0
RECONNECT_MILLISECONDS: Final = 500
RECONNECT_CEILING_MILLISECONDS: Final = 10_000
QUEUED: Final = 8
"""Publishes in the socket, 32 MiB at the most. What it does not take waits at the master, which drops soon."""

WAITING_BYTES: Final = 32 * 1024 * 1024
WAITING: Final = 10_000
"""Publishes that have come and wait to be read, while an order before them is written or a sign-in is under way."""

FRAMES: Final = 2
"""A topic, where the master filters, and the publish."""

MESSAGE_CEILING_BYTES: Final = PUBLISH_BYTES + 64 * 1024
"""Over this libzmq drops the line, and we dial again; between the two we refuse and count."""

REDIAL_SECONDS: Final = 1.0
"""libzmq says within a moment whether it will dial again itself."""


class Subscription:
    """Hears from one master. Raises ``Unanswered`` for an address that is none, and when there is no socket left."""

    def __init__(self, context: zmq.asyncio.Context, endpoint: str) -> None:
        self.connected = False
        self._endpoint = endpoint
        self._waiting: deque[list[bytes]] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._up = asyncio.Event()
        self._socket = opened(context, zmq.SUB)
        self._socket.reconnect_ivl = RECONNECT_MILLISECONDS
        self._socket.reconnect_ivl_max = RECONNECT_CEILING_MILLISECONDS
        for beginning in SUBSCRIPTIONS:
            self._socket.subscribe(beginning)
        events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CONNECT_RETRIED
        try:
            self._monitor: zmq.asyncio.Socket = self._socket.get_monitor_socket(events)
        except zmq.ZMQError as error:
            self._socket.close(linger=0)
            raise Unanswered(f"no connection can be made: {error}") from None
        dialled(self._socket, endpoint, most_bytes=MESSAGE_CEILING_BYTES, queued=QUEUED)

    async def watch(self, lost: Callable[[], None]) -> None:
        """Know whether the line is up, until cancelled; ``lost`` is called when it goes down."""
        dropped = False
        while True:
            try:
                async with asyncio.timeout(REDIAL_SECONDS if dropped else None):
                    event = (await recv_monitor_message(self._monitor))["event"]
            except TimeoutError:
                dropped = False
                self._dial_again()
                continue
            dropped = event == zmq.EVENT_DISCONNECTED
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self.connected = True
                self._up.set()
            elif dropped:
                self.connected = False
                log.info(
                    "the line of a salt master's publishes is down and is dialled again endpoint=%s: that end has"
                    " closed it, or a message was larger than %d bytes",
                    self._endpoint,
                    MESSAGE_CEILING_BYTES,
                )
                lost()

    def _dial_again(self) -> None:
        """After a message that breaks its rules libzmq leaves it to us; after all else it does so itself, at once."""
        with contextlib.suppress(zmq.ZMQError):
            self._socket.disconnect(self._endpoint)
        with contextlib.suppress(zmq.ZMQError):
            self._socket.connect(self._endpoint)

    async def heard(self) -> None:
        """Return when the line is up for the first time. Raises ``LinkLost``."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._up.wait()
        except TimeoutError:
            raise LinkLost(
                f"{self._endpoint}, where it publishes, could not be reached in {CONNECT_SECONDS:.0f} s"
            ) from None

    async def take_in(self, refused: Callable[[Refused], None]) -> None:
        """Take in what is published, whoever reads it and when, until cancelled.

        ``refused`` is told of each for which there is no room (``publishes_full``).
        """
        while True:
            frames = await self._socket.recv_multipart()
            size = sum(map(len, frames))
            if len(frames) > FRAMES:
                refused(Refused("malformed", f"{len(frames)} frames, at most {FRAMES}"))
            elif len(self._waiting) >= WAITING or self._bytes + size > WAITING_BYTES:
                refused(Refused("publishes_full", f"{len(self._waiting)} publishes wait to be read"))
            else:
                self._waiting.append(frames)
                self._bytes += size
                self._news.set()
            # What has come is given without a pause; the others get their turn all the same.
            await asyncio.sleep(0)

    async def next(self) -> list[bytes]:
        """The frames of the next publish that was taken in."""
        while not self._waiting:
            self._news.clear()
            await self._news.wait()
        frames = self._waiting.popleft()
        self._bytes -= sum(map(len, frames))
        return frames

    def close(self) -> None:
        """Free the sockets."""
        with contextlib.suppress(zmq.ZMQError):
            self._socket.disable_monitor()
        self._socket.close(linger=0)
