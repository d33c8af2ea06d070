"""Somebody on a device's network: every byte between it and its broker passes through him, and he keeps it."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

SECONDS = 60.0
PIECE = 65_536
CONNECT, PUBLISH = 0x10, 0x30


class Sniffer:
    """Listens where the device believes its broker to be, and passes everything on, unchanged.

    ``host`` is another address of this machine than the broker's, so that both use the same ports.
    """

    def __init__(self, host: str, ports: Sequence[int], *, beyond: str = "127.0.0.1") -> None:
        self.host = host
        self._beyond = beyond
        self._ports = ports
        self._lock = threading.Lock()
        self._streams: list[bytearray] = []
        self._sockets = ExitStack()
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._closed = False

    def __enter__(self) -> Self:
        for port in self._ports:
            listener = self._sockets.enter_context(socket.create_server((self.host, port)))
            self._spawn(self._accept, listener, port)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        for port in self._ports:
            # Whoever waits for the next connection gets it, and sees that it is over.
            with suppress(OSError), socket.create_connection((self.host, port), SECONDS):
                pass
        with self._lock:
            threads = list(self._threads)
        for thread in threads[: len(self._ports)]:
            thread.join(SECONDS)
        with self._lock:
            ends, threads = list(self._ends), list(self._threads)
        for end in ends:
            _shut(end)
        for thread in threads:
            thread.join(SECONDS)
        self._sockets.close()

    @property
    def captured(self) -> list[bytes]:
        """What went through each connection so far, each direction for itself."""
        with self._lock:
            return [bytes(stream) for stream in self._streams]

    def logins(self) -> dict[str, str]:
        """User names and passwords that were said in the open."""
        found = {}
        for stream in self.captured:
            for header, body in packets(stream):
                if header == CONNECT:
                    _, _, name, password = _greeting(body)
                    found[name] = password
        return found

    def said(self) -> list[tuple[str, bytes]]:
        """Topics and payloads that were said in either direction, last wills among them."""
        found = []
        for stream in self.captured:
            for header, body in packets(stream):
                if header & 0xF0 == PUBLISH:
                    topic, place = _field(body, 0)
                    found.append((topic.decode(), body[place:]))
                elif header == CONNECT:
                    topic, will, *_ = _greeting(body)
                    found += [(topic.decode(), will)] if topic else []
        return found

    def _accept(self, listener: socket.socket, port: int) -> None:
        while True:
            near, _ = listener.accept()
            with self._lock:
                if self._closed:
                    near.close()
                    return
                self._sockets.enter_context(near)
                far = self._sockets.enter_context(socket.create_connection((self._beyond, port), SECONDS))
                far.settimeout(None)
                self._ends += [near, far]
            for source, sink in ((near, far), (far, near)):
                stream = bytearray()
                with self._lock:
                    self._streams.append(stream)
                self._spawn(self._pass_on, source, sink, stream)

    def _pass_on(self, source: socket.socket, sink: socket.socket, stream: bytearray) -> None:
        with suppress(OSError):
            while data := source.recv(PIECE):
                with self._lock:
                    stream += data
                sink.sendall(data)
        for end in (source, sink):
            _shut(end)

    def _spawn(self, target: Callable[..., None], *given: object) -> None:
        thread = threading.Thread(target=target, args=given, daemon=True)
        with self._lock:
            self._threads.append(thread)
        thread.start()


def _shut(end: socket.socket) -> None:
    """End it for both sides, and for a thread that reads from it."""
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


def packets(stream: bytes) -> list[tuple[int, bytes]]:
    """First byte and body of each whole packet (MQTT 3.1.1, 2.2)."""
    found, place = [], 0
    while place + 2 <= len(stream):
        header, length, shift = stream[place], 0, 0
        place += 1
        while place < len(stream):
            digit = stream[place]
            length |= (digit & 0x7F) << shift
            place, shift = place + 1, shift + 7
            if digit < 0x80:
                break
        if place + length > len(stream):
            break
        found.append((header, stream[place : place + length]))
        place += length
    return found


def _greeting(body: bytes) -> tuple[bytes, bytes, str, str]:
    """Topic and payload of the last will, user name and password of a CONNECT (3.1); empty where there are none."""
    protocol, place = _field(body, 0)
    assert protocol == b"MQTT"
    flags = body[place + 1]
    _, place = _field(body, place + 4)
    fields = []
    for flag in (0x04, 0x04, 0x80, 0x40):
        field = b""
        if flags & flag:
            field, place = _field(body, place)
        fields.append(field)
    topic, will, name, password = fields
    return topic, will, name.decode(), password.decode()


def _field(body: bytes, place: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(">H", body, place)
    return body[place + 2 : place + 2 + length], place + 2 + length
