"""A site's own broker in the hands of somebody else: the station starts it as ever, and it has one door more.

Behind that door nobody is asked for a name, and everything may be heard and said. Rules, users and reloads are those of
the product: the program that the station finds writes itself the station's settings with one listener more.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self
from unittest.mock import patch

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
from gateway.rehearsal import free_port
from tests.peers.broker import mosquitto

SECONDS = 60.0

PROGRAM = """\
#!/bin/sh
for settings; do :; done
{{ cat "$settings"; printf 'listener {port} 127.0.0.1\\nallow_anonymous true\\n'; }} > "$settings.hacked"
exec {mosquitto} -c "$settings.hacked"
"""

Message = tuple[str, bytes]


@contextmanager
def hacked_broker(folder: Path) -> Iterator[int]:
    """Who starts mosquitto inside this block starts the attacker's; the port of his door."""
    port = free_port()
    place = folder / f"hacked-{port}"
    place.mkdir(mode=0o755)
    program = place / "mosquitto"
    program.write_text(PROGRAM.format(port=port, mosquitto=mosquitto()))
    program.chmod(0o755)
    with patch.dict(os.environ, PATH=f"{place}:{os.environ['PATH']}"):
        yield port


class Tap:
    """A client that says anything, and keeps what it heard until it is asked; what waits meanwhile the kernel keeps.

    It blocks, so that a test can use it between commands, and asks for no keep-alive, so that it may rest.
    """

    def __init__(
        self,
        port: int,
        *filters: str,
        client_id: str = "tap",
        username: str | None = None,
        password: str | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self._socket = socket.create_connection((host, port), SECONDS)
        self._parser = Parser()
        self._heard: list[Message] = []
        self.gone = False
        self.granted = b""
        self._send(encode_connect(client_id, 0, None, username, password))
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
            packet = encode_publish(topic, payload)
            self._send(bytes((packet[0] | retain,)) + packet[1:])
            count += 1
        self._settle()
        return count

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


def tapped(port: int, *filters: str) -> Tap:
    """A tap at the attacker's door, which hears these; everything of every site if none is named."""
    return Tap(port, *(filters or ("os/#",)))


def lets_in(port: int, *, client_id: str = "visitor", username: str | None = None, password: str | None = None) -> bool:
    """Whether a door opens to somebody."""
    with Tap(port, client_id=client_id, username=username, password=password) as visitor:
        return visitor.inside
