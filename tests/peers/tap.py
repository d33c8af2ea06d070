"""A client of a broker that says anything and keeps what it hears; it blocks, so that a test can use it in between.

What waits while nobody reads the kernel and the broker keep: it asks for no keep-alive, so that it may rest.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from device_agent.lean_mqtt import (
    DISCONNECT,
    PINGREQ,
    Connack,
    Packet,
    Parser,
    Pingresp,
    Publish,
    Suback,
    encode_connect,
    encode_publish,
    encode_subscribe,
)
from gateway.broker.rules import ENROLL_PASSWORD, ENROLL_USER

SECONDS = 60.0

Message = tuple[str, bytes]


class Tap:
    """One connection, and what was heard on it."""

    def __init__(
        self,
        port: int,
        *filters: str,
        client_id: str = "",
        username: str | None = None,
        password: str | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self._socket = socket.create_connection((host, port), SECONDS)
        self._parser = Parser()
        self._heard: list[Message] = []
        self.gone = False
        self.granted = b""
        # Of two with one name the broker keeps the later.
        name = client_id or f"tap-{os.urandom(8).hex()}"
        self._send(encode_connect(name, 0, None, username, password))
        greeting = self._until(Connack)
        self.code = greeting.code if isinstance(greeting, Connack) else None
        if filters:
            self.subscribe(*filters)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._send(DISCONNECT)
        self._socket.close()

    @property
    def inside(self) -> bool:
        """Whether it was let in and is still there."""
        return self.code == 0 and not self.gone

    def subscribe(self, *filters: str) -> None:
        """Hear these as well, and what is retained on them."""
        self._send(encode_subscribe(1, filters))
        answer = self._until(Suback)
        self.granted = answer.codes if isinstance(answer, Suback) else b""

    def heard(self) -> list[Message]:
        """Everything that the broker has passed on until now."""
        self._settle()
        return list(self._heard)

    def say(self, messages: Iterable[Message], *, retain: bool = False) -> int:
        """Say all of this in order; returns how much it was, when the broker has dealt with it."""
        count = 0
        for topic, payload in messages:
            self._send(_published(topic, payload, retain))
            count += 1
        self._settle()
        assert self.inside, "the broker has thrown it out"
        return count

    def try_to_say(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Say what may be forbidden: the broker ends a connection for it, or forgets it."""
        self._send(_published(topic, payload, retain))
        self._settle()

    def _settle(self) -> None:
        self._send(PINGREQ)
        self._until(Pingresp)

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError:
            self.gone = True

    def _until(self, kind: type[Packet]) -> Packet | None:
        """Read up to a packet of this kind; None when the broker has ended the connection."""
        while not self.gone:
            try:
                data = self._socket.recv(262_144)
            except ConnectionError:
                data = b""
            if not data:
                self.gone = True
                break
            packets: Sequence[Packet] = self._parser.feed(data)
            self._heard += [(packet.topic, packet.payload) for packet in packets if isinstance(packet, Publish)]
            for packet in packets:
                if isinstance(packet, kind):
                    return packet
        return None


def _published(topic: str, payload: bytes, retain: bool) -> bytes:
    packet = encode_publish(topic, payload)
    return bytes((packet[0] | retain,)) + packet[1:]


def lets_in(port: int, *, client_id: str = "", username: str | None = None, password: str | None = None) -> bool:
    """Whether a door opens to somebody."""
    with Tap(port, client_id=client_id, username=username, password=password) as visitor:
        return visitor.inside


def lets_ask(enroll_port: int) -> bool:
    """Whether the door for joining is open."""
    return lets_in(enroll_port, username=ENROLL_USER, password=ENROLL_PASSWORD)
