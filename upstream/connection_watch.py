"""How many connections of strangers a bound ZeroMQ socket has: libzmq accepts all of them and has no bound.

libzmq tells of each connection on a monitor (zmq_socket_monitor(3)), with its descriptor. A thread of its own reads
that, so that a busy event loop delays nothing, and ends a connection by shutting its descriptor down. A message says on
which descriptor it came (``zmq.SRCFD``), and so the owner of the socket can tell which connections are known.

While this thread is behind, libzmq waits for it, since the monitor holds a limited number of events.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import zmq
from zmq.utils.monitor import parse_monitor_message

log = logging.getLogger(__name__)

LOOK_MILLISECONDS = 1000
HOLDERS_NAMED = 256
"""Holders whose ended connections are counted by name, in one second."""

EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_ACCEPT_FAILED | zmq.EVENT_DISCONNECTED | zmq.EVENT_MONITOR_STOPPED


Found = TypeVar("Found")
Ends = tuple[object, object]
"""Both addresses of a connection."""


@dataclass(eq=False)
class _Stranger:
    ends: Ends | None
    """None when it was gone at once."""
    holder: str
    since: float


class ConnectionWatch:
    """Bounds the strangers of one socket; a connection that is ``known`` is not counted.

    When there are too many, one of the holder that has most of them is ended. It is the oldest one, since a client that
    is let in is known within a few round trips, or the ``newest``. ``holder_of`` says to whom a connection belongs.
    """

    def __init__(
        self,
        door: str,
        *,
        most: Callable[[], int],
        holder_of: Callable[[socket.socket], str],
        refused: Callable[[str, str], None],
        accept_failed: Callable[[str, int], None],
        patience_seconds: float | None = None,
        newest: bool = False,
    ) -> None:
        self._door = door
        self._most = most
        self._holder_of = holder_of
        self._refused = refused
        self._accept_failed = accept_failed
        self._patience_seconds = patience_seconds
        self._newest = newest
        self._lock = threading.Lock()
        self._strangers: dict[int, _Stranger] = {}
        """By descriptor, in the order in which they came."""
        self._of_holder: dict[str, dict[int, None]] = {}
        self._known: dict[int, Ends | None] = {}
        """By descriptor; events about it may still come, and those of the connection that had it before."""
        self._socket: zmq.Socket[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._broken = False
        self._spare = self._nothing = -1
        self._ended: Counter[tuple[str, str]] = Counter()
        self._failed: Counter[int] = Counter()

    def start(self, context: zmq.Context[Any], watched: zmq.Socket[Any]) -> None:
        """Watch a socket that is not bound yet."""
        self._socket = watched
        address = f"inproc://connections-{self._door}-{id(self)}"
        watched.monitor(address, EVENTS)
        monitor: zmq.Socket[bytes] = zmq.Context.shadow(context).socket(zmq.PAIR)
        monitor.linger = 0
        monitor.connect(address)
        # A descriptor that is looked at is copied to the spare one, so that looking takes no other.
        self._nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._thread = threading.Thread(
            target=self._run, args=(monitor,), name=f"{self._door}-connections", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Watch no more. To be called before the socket is closed."""
        if self._socket is not None and self._thread is not None:
            with contextlib.suppress(zmq.ZMQError):
                # Raised for a socket that was closed already, with which the thread has ended.
                self._socket.monitor(None, 0)
            # Not before: libzmq waits for this thread to read.
            self._stopping = True
            self._thread.join()
            self._thread = None
            os.close(self._spare)
            os.close(self._nothing)
            self._spare = self._nothing = -1

    async def run(self) -> None:
        """Tell what the thread has done, until cancelled. Raises ``RuntimeError`` when the thread watches no more."""
        while not self._broken:
            await asyncio.sleep(LOOK_MILLISECONDS / 1000)
            with self._lock:
                ended, self._ended = self._ended, Counter()
                failed, self._failed = self._failed, Counter()
            for (reason, holder), times in ended.items():
                for _ in range(times):
                    self._refused(reason, holder)
            for code, times in failed.items():
                for _ in range(times):
                    self._accept_failed(self._door, code)
        raise RuntimeError(f"nothing watches the connections of {self._door} any more")

    def known(self, descriptor: int) -> None:
        """The connection is let in."""
        with self._lock:
            self._forget(descriptor)
            self._known[descriptor] = self._look(descriptor, _ends_of)

    def unknown(self, descriptor: int) -> None:
        """It is a stranger's again."""
        with self._lock:
            if self._is_known(descriptor):
                self._add(descriptor)
            self._known.pop(descriptor, None)

    @property
    def strangers(self) -> int:
        """How many there are."""
        return len(self._strangers)

    def _run(self, monitor: zmq.Socket[bytes]) -> None:
        try:
            self._watch(monitor)
        except zmq.ContextTerminated:
            # Its owner ended without a word, and nothing is left to watch.
            self._broken = True
        except Exception:
            # libzmq waits for whoever reads the monitor, and the station could not even stop.
            log.exception("the connections are watched no more door=%s", self._door)
            self._broken = True
            with contextlib.suppress(zmq.ContextTerminated):
                while not self._stopping:
                    if monitor.poll(LOOK_MILLISECONDS):
                        monitor.recv_multipart()
        finally:
            monitor.close(linger=0)

    def _watch(self, monitor: zmq.Socket[bytes]) -> None:
        while not self._stopping:
            if monitor.poll(LOOK_MILLISECONDS):
                event = parse_monitor_message(monitor.recv_multipart())
                if event["event"] == zmq.EVENT_MONITOR_STOPPED:
                    return
                self._heard(event["event"], event["value"])
            self._end_late()

    def _heard(self, event: int, value: int) -> None:
        with self._lock:
            if event == zmq.EVENT_ACCEPT_FAILED:
                self._failed[value] += 1
                return
            if self._is_known(value):
                # The hello on this connection was read before this event, which is late.
                return
            # An event of this descriptor means that what had it before is gone.
            self._forget(value)
            self._known.pop(value, None)
            if event == zmq.EVENT_ACCEPTED:
                self._add(value)
                while len(self._strangers) > max(1, self._most()):
                    crowded = max(self._of_holder.values(), key=len)
                    descriptor = next(reversed(crowded) if self._newest else iter(crowded))
                    self._end(descriptor, "too_many_connections")

    def _end_late(self) -> None:
        if self._patience_seconds is None:
            return
        before = time.monotonic() - self._patience_seconds
        with self._lock:
            while self._strangers:
                descriptor, oldest = next(iter(self._strangers.items()))
                if oldest.since > before:
                    break
                self._end(descriptor, "said_nothing")

    # --- under the lock --------------------------------------------------------------------------------------------

    def _is_known(self, descriptor: int) -> bool:
        """Whether the connection that has the descriptor now is a known one."""
        ends = self._known.get(descriptor)
        return ends is not None and self._look(descriptor, _ends_of) == ends

    def _add(self, descriptor: int) -> None:
        found = self._look(descriptor, lambda one: (_ends_of(one), self._holder_of(one)))
        ends, holder = found or (None, "gone")
        self._strangers[descriptor] = _Stranger(ends, holder, time.monotonic())
        self._of_holder.setdefault(holder, {})[descriptor] = None

    def _forget(self, descriptor: int) -> None:
        stranger = self._strangers.pop(descriptor, None)
        if stranger is not None:
            of_holder = self._of_holder[stranger.holder]
            of_holder.pop(descriptor, None)
            if not of_holder:
                del self._of_holder[stranger.holder]

    def _end(self, descriptor: int, reason: str) -> None:
        stranger = self._strangers[descriptor]
        self._forget(descriptor)

        def shut(one: socket.socket) -> None:
            # Another connection may have got the descriptor.
            if _ends_of(one) == stranger.ends:
                one.shutdown(socket.SHUT_RDWR)

        self._look(descriptor, shut)
        named = len(self._ended) < HOLDERS_NAMED
        self._ended[reason, stranger.holder if named else "others"] += 1

    def _look(self, descriptor: int, at: Callable[[socket.socket], Found]) -> Found | None:
        """Do something with a connection that libzmq may close meanwhile; None when it has."""
        try:
            os.dup2(descriptor, self._spare, inheritable=False)
        except OSError:
            return None
        try:
            one = socket.socket(fileno=self._spare)
        except OSError:
            self._rest()
            return None
        try:
            return at(one)
        except OSError:
            return None
        finally:
            one.detach()
            self._rest()

    def _rest(self) -> None:
        """Let go of what was looked at, and keep the spare descriptor."""
        os.dup2(self._nothing, self._spare, inheritable=False)


def _ends_of(connection: socket.socket) -> Ends:
    return connection.getpeername(), connection.getsockname()
