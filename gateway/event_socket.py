"""Events for other processes of this machine: ZeroMQ PUB on a unix socket, in Salt's form.

A message is the tag, two newlines and the data in msgpack, so that a reader subscribes to the beginning of tags. The
socket says who subscribes to what: while nobody does, nothing is made. Each reader has a bounded queue; what finds no
room in it is not sent to that reader, who sees it by the numbers in ``_sequence``: one for each subscription.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import ClassVar

import zmq

from device_agent.parts import Part
from device_agent.protocol.messages import Event, encode_value
from device_agent.start_errors import start_error
from gateway.bus import Bus, Subscriber
from gateway.event_shape import salt_data
from gateway.metrics import Metrics
from gateway.site_event import origin_of
from gateway.socket_file import PATH_BYTES, own_socket, user_at
from upstream.connection_watch import ConnectionWatch

log = logging.getLogger(__name__)

END_OF_TAG = "\n\n"
BACKLOG = 64
SUBSCRIPTION_BYTES = 1024
PREFIXES = 64
"""Subscriptions that have a number of their own at once; what is more is heard all the same."""

HEARD_AT_ONCE = 1000
SENT_AT_ONCE = 500
LINGER_MILLISECONDS = 200
DOOR = "events"
READERS = 256
"""Readers at once. Fewer where the station may open few files: a sixteenth of those."""

SHARE_OF_FILES = 16


def beside(api: Path) -> Path | None:
    """Where the socket is when the settings do not say it; None where the API's own path leaves no room for it."""
    path = api.with_name(f"{api.stem}-events.sock")
    return path if len(str(path).encode()) <= PATH_BYTES else None


class EventSocket(Part):
    """Publishes what is on the bus."""

    name: ClassVar[str] = "event-socket"
    drain_seconds: ClassVar[float] = 1.0

    def __init__(self, path: Path, *, bus: Bus, metrics: Metrics, queue: int, setting: str = "events.socket") -> None:
        self._path = path
        self._setting = setting
        self._bus = bus
        self._metrics = metrics
        self._queue = queue
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._socket: zmq.Socket[bytes] | None = None
        self._claimed = False
        self._readers = ConnectionWatch(
            DOOR,
            most=_readers_now,
            holder_of=lambda connection: user_at(connection)[0],
            refused=partial(metrics.refused, DOOR),
            accept_failed=metrics.accept_failed,
            newest=True,
        )
        self._listening = ExitStack()
        self._subscriber: Subscriber | None = None
        self._begun = asyncio.Event()
        self._subscriptions = 0
        self._numbers: dict[bytes, int] = {b"": 0}
        self._missed = 0

    async def open(self) -> None:
        """Listen. Raises ``ConfigInvalid`` when the socket cannot be made, or another station answers there."""
        # One that is beside the API's has no setting of its own: what is wrong with it is wrong there.
        what = "the API's socket" if self._setting == "socket" else "the socket for events"
        bound = own_socket(self._path, what=what, setting=self._setting)
        self._claimed = True
        bound.setblocking(False)
        bound.listen(BACKLOG)
        self._context = zmq.Context()
        socket = self._socket = self._context.socket(zmq.XPUB)
        socket.linger = LINGER_MILLISECONDS
        socket.sndhwm = self._queue
        socket.maxmsgsize = SUBSCRIPTION_BYTES
        # The file is made here and not by the library, so that it never has another mode than it shall.
        socket.setsockopt(zmq.USE_FD, bound.detach())
        self._readers.start(self._context, socket)
        try:
            socket.bind(f"ipc://{self._path}")
        except zmq.ZMQError as error:
            raise start_error(
                OSError(error.errno, str(error)),
                "the socket for events cannot be made",
                where="events.socket",
                found=f"{self._path}: {error}",
                allowed=f"a path of at most {PATH_BYTES} bytes in a folder that this user may write",
                hint="set events.socket: in the settings",
            ) from None
        asyncio.get_running_loop().add_reader(socket.fileno(), self._hear)
        self._hear()
        self.spawn(self._publish(), "publish")
        self.spawn(self._readers.run(), "readers")
        log.info("events are published socket=%s", self._path)

    async def drain(self) -> None:
        """Send what has happened until now."""
        while self._send_some():
            pass

    async def close(self) -> None:
        """Remove the socket, unless it is another station's."""
        self._listening.close()
        self._subscriber = None
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._readers.stop()
        if self._context is not None:
            self._context.destroy(linger=LINGER_MILLISECONDS)
        if self._claimed:
            self._path.unlink(missing_ok=True)

    # --- who listens -----------------------------------------------------------------------------------------------

    def _hear(self) -> None:
        """Take note of who subscribes to what. To be called after each sending: the library signals only once."""
        socket = self._socket
        if socket is None or socket.closed:
            return
        for _ in range(HEARD_AT_ONCE):
            try:
                said = socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                break
            self._heard(said[:1], said[1:])
        else:
            asyncio.get_running_loop().call_soon(self._hear)
        if self._subscriptions and self._subscriber is None:
            self._missed = 0
            self._subscriber = self._listening.enter_context(self._bus.subscribe("*"))
            self._begun.set()
        elif not self._subscriptions and self._subscriber is not None:
            self._listening.close()
            self._subscriber.heard.set()
            self._subscriber = None

    def _heard(self, word: bytes, prefix: bytes) -> None:
        """The socket tells the first subscription to a prefix, and the end of the last."""
        if word == b"\x01":
            self._subscriptions += 1
            if prefix in self._numbers:
                return
            if len(self._numbers) <= PREFIXES:
                self._numbers[prefix] = 0
            else:
                self._metrics.refused("events", "too_many_subscriptions", "socket", repr(prefix[:40]))
        elif word == b"\x00":
            self._subscriptions = max(0, self._subscriptions - 1)
            if prefix:
                self._numbers.pop(prefix, None)

    # --- what is told ----------------------------------------------------------------------------------------------

    async def _publish(self) -> None:
        while True:
            await self._begun.wait()
            self._begun.clear()
            while (subscriber := self._subscriber) is not None:
                await subscriber.heard.wait()
                subscriber.heard.clear()
                while self._send_some():  # noqa: ASYNC110 - nothing is waited for: others have their turn in between
                    await asyncio.sleep(0)

    def _send_some(self) -> bool:
        """Send a bounded number of events; whether more wait."""
        for _ in range(SENT_AT_ONCE):
            subscriber = self._subscriber
            if subscriber is None or subscriber.queue.empty():
                break
            self._send(subscriber.queue.get_nowait())
        subscriber = self._subscriber
        if subscriber is not None and subscriber.missed > self._missed:
            # Nobody knows their tags any more, so each reader must think that it missed them.
            more, self._missed = subscriber.missed - self._missed, subscriber.missed
            self._numbers = {prefix: number + more for prefix, number in self._numbers.items()}
        self._hear()
        return self._subscriber is not None and not self._subscriber.queue.empty()

    def _send(self, event: Event) -> None:
        assert self._socket is not None
        head = f"{event.tag}{END_OF_TAG}".encode()
        sequence: dict[str, int] = {}
        for prefix, number in self._numbers.items():
            if head.startswith(prefix):
                self._numbers[prefix] = number + 1
                sequence[prefix.decode(errors="replace")] = number + 1
        origin = {"_origin": named} if (named := origin_of(event)) else {}
        body = encode_value({**salt_data(event), "_site": event.site, "_sequence": sequence, **origin})
        try:
            self._socket.send(head + body, zmq.NOBLOCK)
            self._metrics.add("events_published")
        except zmq.Again:
            self._metrics.add("events_not_published")


def _readers_now() -> int:
    """How many there may be, as many files as the process may open now."""
    return min(READERS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // SHARE_OF_FILES)
