"""The client of one MQTT connection (aiomqtt 2.5 over paho): its bounded queue, and what it leaves behind ended.

It drops on a full incoming queue, which is counted here; and it leaves its socket behind when connecting fails or a
callback raised, which ``Client.drop`` mends.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

import aiomqtt

INCOMING_BYTES = 64 * 1024 * 1024
"""Payloads that wait to be handled, beside the bound on their number."""


def counting_queue(count: Callable[[str], None]) -> type[asyncio.Queue[aiomqtt.Message]]:
    """The client's incoming queue, bounded in bytes too, which counts what it has no room for.

    The client itself would only log it. What is dropped here is sent again by whoever sent it.
    """

    class CountingQueue(asyncio.Queue[aiomqtt.Message]):
        _held_bytes = 0

        def put_nowait(self, item: aiomqtt.Message) -> None:
            if self.full() or self._held_bytes > INCOMING_BYTES:
                count("mqtt_incoming_dropped")
            else:
                self._held_bytes += len(item.payload)
                super().put_nowait(item)

        def get_nowait(self) -> aiomqtt.Message:
            item = super().get_nowait()
            self._held_bytes -= len(item.payload)
            return item

    return CountingQueue


class Client(aiomqtt.Client):
    """The client for one connection, with the things it does not offer. It knows the insides of aiomqtt 2.5."""

    _dropped = False
    connection: socket.socket | None = None
    """The connection to use; None for one that the client opens itself, which looks names up in a shared thread."""

    @property
    def queued(self) -> int:
        """How many messages are here already."""
        return self._queue.qsize()

    def next_queued(self) -> aiomqtt.Message | None:
        """A message that is here already."""
        try:
            return self._queue.get_nowait()
        except asyncio.QueueEmpty:
            return None

    def drop(self) -> None:
        """End whatever is left of the connection, without a goodbye; does nothing when nothing is left."""
        self._dropped = True
        if self._connected.cancelled():
            # A connect that took too long. The client would ask this future for its exception, which raises.
            self._connected = self._loop.create_future()
        connection = self._client.socket()
        if isinstance(connection, socket.socket):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            self._client.loop_read()
        if self.connection is not None:
            self.connection.close()
        for future in (self._connected, self._disconnected):
            if future.done() and not future.cancelled():
                # Looked at, or asyncio complains of an exception nobody retrieved.
                future.exception()

    def _on_socket_register_write(self, client: Any, _userdata: Any, sock: Any) -> None:
        """As the client does, which keeps the number: when its turn comes, that is nobody's or another connection's."""

        def write() -> None:
            try:
                client.loop_write()
            except (OSError, ValueError) as error:
                if not self._disconnected.done():
                    self._disconnected.set_exception(error)

        def register() -> None:
            if sock.fileno() >= 0:
                self._loop.add_writer(sock.fileno(), write)

        self._loop.call_soon_threadsafe(register)

    def _client_connect(self) -> None:
        """Runs in a thread, which a cancelled connect leaves behind: what it still opens must be dropped as well."""
        if self.connection is not None:
            # paho offers no other way to give it a connection.
            vars(self._client)["_create_socket_connection"] = lambda: self.connection
        super()._client_connect()
        if self._dropped:
            self._loop.call_soon_threadsafe(self.drop)
