"""A minimal MQTT 3.1.1 client at QoS 0, for ten thousand connections in one process: the swarm's, and nobody else's.

Section numbers are those of the OASIS standard "MQTT Version 3.1.1". The codec is pure; ``LeanConnection`` is the
asyncio protocol around it. It has no reconnect and no timers: its owner calls ``tick`` and connects again.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from device_agent.errors import Refused
from device_agent.protocol import limits

PACKET_BYTES = limits.MESSAGE_BYTES + 1024
"""Largest packet taken: the largest message with its topic."""

UNSENT_BYTES = 1024 * 1024
"""Bytes waiting for the socket beyond which messages are dropped; what matters is sent again."""

CLOSED_HERE = "closed here"
LOGIN_REFUSED = "refused by the broker: "
"""How the reason begins when the broker answered CONNECT with a refusal."""

PINGREQ = b"\xc0\x00"
DISCONNECT = b"\xe0\x00"

_CONNACK_WORDS = {
    1: "unacceptable protocol version",
    2: "identifier rejected",
    3: "server unavailable",
    4: "bad user name or password",
    5: "not authorized",
}


class Connack(NamedTuple):
    """The broker's answer to CONNECT; 0 is accepted (3.2.2.3)."""

    code: int


class Suback(NamedTuple):
    """The broker's answer to SUBSCRIBE: per filter the granted QoS, or 0x80 for refused (3.9.3)."""

    packet_id: int
    codes: bytes


class Publish(NamedTuple):
    """A message (3.3)."""

    topic: str
    payload: bytes


class Pingresp(NamedTuple):
    """The broker is alive (3.13)."""


Packet = Connack | Suback | Publish | Pingresp


def _length(count: int) -> bytes:
    """Remaining length, seven bits a byte, lowest first (2.2.3)."""
    if count < 128:
        return bytes((count,))
    coded = bytearray()
    while True:
        count, low = divmod(count, 128)
        if not count:
            coded.append(low)
            return bytes(coded)
        coded.append(low | 0x80)


def _field(content: bytes) -> bytes:
    return struct.pack(">H", len(content)) + content


def encode_connect(
    client_id: str,
    keepalive_seconds: int,
    will: tuple[str, bytes] | None = None,
    username: str | None = None,
    password: str | None = None,
) -> bytes:
    """CONNECT with a clean session (3.1); the will is QoS 0, not retained."""
    flags = 0x02
    rest = _field(client_id.encode())
    if will is not None:
        flags |= 0x04
        rest += _field(will[0].encode()) + _field(will[1])
    if username is not None:
        flags |= 0x80
        rest += _field(username.encode())
        if password is not None:
            flags |= 0x40
            rest += _field(password.encode())
    body = b"\x00\x04MQTT\x04" + struct.pack(">BH", flags, keepalive_seconds) + rest
    return b"\x10" + _length(len(body)) + body


def encode_subscribe(packet_id: int, filters: Sequence[str]) -> bytes:
    """SUBSCRIBE at QoS 0 (3.8)."""
    body = struct.pack(">H", packet_id) + b"".join(_field(one.encode()) + b"\x00" for one in filters)
    return b"\x82" + _length(len(body)) + body


def encode_publish(topic: str, payload: bytes) -> bytes:
    """PUBLISH at QoS 0, not retained (3.3): no packet identifier."""
    name = topic.encode()
    return b"".join((b"\x30", _length(2 + len(name) + len(payload)), struct.pack(">H", len(name)), name, payload))


class Parser:
    """Bytes of a connection, in any pieces, to packets. After it raised it must not be fed again."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Packet]:
        """The packets that are complete now. Raises ``Refused`` for what no broker may send us."""
        if self._rest:
            data = self._rest + data
            self._rest = b""
        packets: list[Packet] = []
        place = 0
        total = len(data)
        while total - place >= 2:
            # Remaining length: at most four bytes (2.2.3).
            length = data[place + 1]
            body = place + 2
            if length > 127:
                length &= 0x7F
                shift = 7
                while True:
                    if body - place > 4:
                        raise Refused("mqtt_malformed", "a remaining length has at most four bytes")
                    if body >= total:
                        length = -1
                        break
                    digit = data[body]
                    body += 1
                    length |= (digit & 0x7F) << shift
                    shift += 7
                    if digit < 128:
                        break
                if length < 0:
                    break
                if length > PACKET_BYTES:
                    raise Refused("mqtt_oversized", f"{length} bytes, at most {PACKET_BYTES}")
            end = body + length
            if end > total:
                break
            packets.append(_packet(data[place], data[body:end]))
            place = end
        if place < total:
            self._rest = data[place:] if place else data
        return packets


def _packet(header: int, body: bytes) -> Packet:
    if header & 0xF0 == 0x30:
        # DUP must be 0 at QoS 0 (3.3.1.1); RETAIN may be set. We subscribe at QoS 0, so nothing higher may come.
        if header & 0x0E:
            raise Refused("mqtt_unexpected", f"PUBLISH with flags {header & 0x0F:#x}, only QoS 0 was subscribed")
        if len(body) < 2:
            raise Refused("mqtt_malformed", "PUBLISH without a topic")
        end = 2 + (body[0] << 8 | body[1])
        if end == 2 or end > len(body):
            raise Refused("mqtt_malformed", "PUBLISH with a topic that is empty or longer than the packet")
        try:
            topic = body[2:end].decode()
        except UnicodeDecodeError:
            raise Refused("mqtt_malformed", "a topic must be UTF-8") from None
        if "\x00" in topic or "+" in topic or "#" in topic:
            raise Refused("mqtt_malformed", "a topic name has no wildcard and no U+0000")
        return Publish(topic, body[end:])
    if header == 0x20:
        if len(body) != 2 or body[0] > 1:
            raise Refused("mqtt_malformed", "CONNACK has two bytes, the first 0 or 1")
        return Connack(body[1])
    if header == 0x90:
        if len(body) < 3 or any(code not in (0, 1, 2, 0x80) for code in body[2:]):
            raise Refused("mqtt_malformed", "SUBACK with a return code that does not exist")
        return Suback(body[0] << 8 | body[1], body[2:])
    if header == 0xD0:
        if body:
            raise Refused("mqtt_malformed", "PINGRESP has no body")
        return Pingresp()
    raise Refused("mqtt_unexpected", f"packet with first byte {header:#04x}")


class LeanConnection(asyncio.Protocol):
    """One connection: connects, subscribes, hands messages on. Lost once, it is thrown away.

    ``on_ready`` is called when the subscriptions are granted, ``on_lost`` with a reason when it ends after it was made;
    ``on_refused`` for bytes that were not MQTT, which also end it.
    """

    __slots__ = (
        "_clogged",
        "_greeting",
        "_heard",
        "_keepalive",
        "_on_lost",
        "_on_message",
        "_on_ready",
        "_on_refused",
        "_parser",
        "_ping_sent",
        "_reason",
        "_subscriptions",
        "_transport",
        "ready",
    )

    def __init__(
        self,
        *,
        greeting: bytes,
        subscriptions: Sequence[str],
        keepalive_seconds: int,
        on_message: Callable[[str, bytes], None],
        on_ready: Callable[[], None],
        on_lost: Callable[[str], None],
        on_refused: Callable[[Refused], None],
    ) -> None:
        self._greeting = greeting
        self._subscriptions = subscriptions
        self._keepalive = keepalive_seconds
        self._on_message = on_message
        self._on_ready = on_ready
        self._on_lost = on_lost
        self._on_refused = on_refused
        self._parser = Parser()
        self._transport: asyncio.Transport | None = None
        self._clogged = False
        self._heard = True
        self._ping_sent = 0.0
        self._reason = "the broker closed the connection"
        self.ready = False

    @property
    def open(self) -> bool:
        """There is a socket, ready or not."""
        return self._transport is not None

    def publish(self, topic: str, payload: bytes) -> bool:
        """Hand a message to the socket; False when it had to be dropped."""
        if self._transport is None or self._transport.is_closing() or not self.ready or self._clogged:
            return False
        self._transport.write(encode_publish(topic, payload))
        return True

    def tick(self, now: float) -> None:
        """Ping when nothing was said for half the keep-alive (3.1.2.10); give up when a ping gets no answer."""
        if self._transport is None or self._transport.is_closing() or now - self._ping_sent < self._keepalive / 2:
            return
        if not self._heard:
            self.abort("the broker does not answer a ping")
            return
        # A broker hears any packet as a sign of life, but only a ping makes it show one.
        self._ping_sent = now
        self._heard = False
        self._transport.write(PINGREQ)

    def close(self) -> None:
        """Disconnect cleanly: the broker drops the will (3.14.4)."""
        # The loop knows of a lost connection a moment before ``connection_lost`` tells; uvloop takes no write then.
        if self._transport is not None and not self._transport.is_closing():
            self._reason = CLOSED_HERE
            self._transport.write(DISCONNECT)
            self._transport.close()

    def abort(self, reason: str) -> None:
        """End it at once, without a goodbye: the broker publishes the will."""
        if self._transport is not None:
            self._reason = reason
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected: greet, and subscribe without waiting for the answer, as 3.1.4 allows."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES)
        self._transport.write(self._greeting + encode_subscribe(1, self._subscriptions))
        self._greeting = b""

    def data_received(self, data: bytes) -> None:
        """Bytes from the broker."""
        self._heard = True
        try:
            for packet in self._parser.feed(data):
                if type(packet) is Publish:
                    self._on_message(packet.topic, packet.payload)
                elif type(packet) is Connack and packet.code:
                    self.abort(f"{LOGIN_REFUSED}{_CONNACK_WORDS.get(packet.code, packet.code)}")
                    return
                elif type(packet) is Suback and not self.ready:
                    if 0x80 in packet.codes or len(packet.codes) != len(self._subscriptions):
                        self.abort("the broker refused a subscription")
                        return
                    self.ready = True
                    self._on_ready()
        except Refused as refused:
            self._on_refused(refused)
            self.abort(str(refused))

    def connection_lost(self, error: Exception | None) -> None:
        """The connection ended."""
        self._transport = None
        self.ready = False
        self._on_lost(str(error) if error is not None else self._reason)

    def pause_writing(self) -> None:
        """The socket does not keep up: drop until it does."""
        self._clogged = True

    def resume_writing(self) -> None:
        """It keeps up again."""
        self._clogged = False
