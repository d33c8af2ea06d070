"""Accepts the connections of one door of the API, each only while there is a place for it.

asyncio and uvloop accept every connection first, and hide it until its TLS handshake is done: a client that never
finishes one would hold a descriptor that is counted nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from gateway.accept_failures import OUT_OF_RESOURCES, AcceptFailures
from gateway.api.places import Place, Places

BACKLOG = 2048
AT_ONCE = 64
RETRY_SECONDS = 0.5
SPARE_FILES = 4
"""Descriptors that are kept for connections that come when there are no others."""

SHUTDOWN_SECONDS = 2.0
"""How long the end of a TLS connection waits for the word of the other side."""

Classify = Callable[[socket.socket, Any, Callable[[], None]], Place | None]
"""Takes a place for a connection (its socket, its address, how to end it); None when there is none at all."""

MakeProtocol = Callable[[Place], asyncio.Protocol]


class Acceptor:
    """One listening socket. It is to uvicorn what ``asyncio.Server`` is."""

    def __init__(
        self,
        door: str,
        listening: socket.socket,
        *,
        places: Places,
        classify: Classify,
        make: MakeProtocol,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        failures: AcceptFailures | None,
        context: ssl.SSLContext | None,
        handshake_seconds: float,
    ) -> None:
        self._door = door
        self._listening = listening
        self._places = places
        self._classify = classify
        self._make = make
        self._spawn = spawn
        self._failures = failures
        self._context = context
        self._handshake_seconds = handshake_seconds
        self._retry: asyncio.TimerHandle | None = None
        self._spare: list[int] = []
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Listen."""
        self._listening.setblocking(False)
        self._listening.listen(BACKLOG)
        self._keep_spare()
        self._loop.add_reader(self._listening, self._accept)

    def close(self) -> None:
        """Listen no more. Connections that are there go on."""
        if self._retry is not None:
            self._retry.cancel()
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening)
            self._listening.close()
        self._give_spare()

    async def wait_closed(self) -> None:
        """Nothing is left to wait for after ``close``."""

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                connection, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._cannot_accept(error)
                return
            self._admit(connection, address)

    def _admit(self, connection: socket.socket, address: Any) -> None:
        connection.setblocking(False)
        ended = partial(_shut, connection)
        try:
            place = self._classify(connection, address, ended)
        except OSError:
            place = None
        if place is None:
            connection.close()
            return
        self._spawn(self._greet(connection, place), "greet")

    async def _greet(self, connection: socket.socket, place: Place) -> None:
        secured: dict[str, Any] = {}
        if self._context is not None:
            secured = {
                "ssl": self._context,
                "ssl_handshake_timeout": self._handshake_seconds,
                "ssl_shutdown_timeout": SHUTDOWN_SECONDS,
            }
        try:
            await self._loop.connect_accepted_socket(lambda: self._make(place), connection, **secured)
        except (OSError, RuntimeError):
            # No TLS, or it has gone: ssl.SSLError is an OSError; uvloop raises RuntimeError for a closed transport.
            connection.close()
            self._places.free(place)
        except asyncio.CancelledError:
            connection.close()
            raise

    def _cannot_accept(self, error: OSError) -> None:
        if error.errno not in OUT_OF_RESOURCES:
            # An error of that one connection, which the kernel passes on (accept(2)).
            return
        if self._failures is not None:
            self._failures.failed(self._door, error.errno or 0)
        if self._spare:
            # The connections that wait are accepted with the descriptors that were kept for them.
            self._give_spare()
        else:
            self._loop.remove_reader(self._listening)
        if self._retry is None:
            self._retry = self._loop.call_later(RETRY_SECONDS, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self._keep_spare()
        self._loop.add_reader(self._listening, self._accept)

    def _keep_spare(self) -> None:
        with contextlib.suppress(OSError):
            while len(self._spare) < SPARE_FILES:
                self._spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def _give_spare(self) -> None:
        while self._spare:
            os.close(self._spare.pop())


def _shut(connection: socket.socket) -> None:
    """End a connection at once, whatever it is in the middle of."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
