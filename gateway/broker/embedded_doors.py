"""The doors of the embedded broker: nobody reaches amqtt who was not let in here, and what is said inside is judged.

amqtt asks who somebody is only after it has thrown out whoever had the same client id, publishes a last will wherever
it is addressed, and keeps whatever is marked to be kept. So the first packet of each connection is read and judged
here, before amqtt sees the connection; its plugin then judges each topic. Imported only by the mode that needs amqtt.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from dataclasses import dataclass
from typing import Any

from amqtt.adapters import BufferReader, StreamReaderAdapter, StreamWriterAdapter
from amqtt.broker import Broker
from amqtt.contexts import Action
from amqtt.errors import AMQTTError, MQTTError, NoDataError
from amqtt.mqtt.connect import ConnectPacket
from amqtt.plugins.base import BaseAuthPlugin, BaseTopicPlugin

from device_agent.errors import Refused
from gateway.broker.passwords import fits
from gateway.broker.rules import ENROLL_USER, PACKET_BYTES, Role, Users, is_did, may_read, may_write

log = logging.getLogger(__name__)

GREETING_SECONDS = 10.0
GREETING_BYTES = 80_000
"""Five fields of at most 64 KB each could be more; nobody of ours says that much."""

STRANGERS = 64
"""Connections at one door that have not said who they are; the newest is cut."""

NOT_AUTHORISED = 5
CONNECT = 0x10


@dataclass(frozen=True, slots=True)
class Greeting:
    """What somebody says of himself in the first packet (MQTT 3.1.1, 3.1)."""

    client: str
    user: str
    password: str
    will_topic: str | None
    packet: bytes


class Wall:
    """Who may come in now, and who is what. ``users`` is replaced whenever that changes."""

    def __init__(self, site: str, users: Users) -> None:
        self.site = site
        self.users = users

    def known(self, user: str, door: Role) -> str | None:
        """The hash of this user's password at this door."""
        if door is Role.ENROLLING:
            return self.users.enrolling.get(user)
        return self.users.devices.get(user) or self.users.station.get(user)

    def role(self, user: str) -> Role:
        """What somebody is who was let in."""
        if user in self.users.station:
            return Role.STATION
        return Role.ENROLLING if user == ENROLL_USER else Role.DEVICE

    def lets_in(self, greeting: Greeting, door: Role) -> bool:
        """Whether somebody may come in, as the client that he says he is and with his last will."""
        password_hash = self.known(greeting.user, door)
        if password_hash is None or not fits(greeting.password, password_hash):
            return False
        role = self.role(greeting.user)
        if role is Role.STATION:
            return not is_did(greeting.client)
        if not (is_did(greeting.client) if role is Role.ENROLLING else greeting.client == greeting.user):
            return False
        if greeting.will_topic is None:
            return True
        return self.may(greeting.user, greeting.client, greeting.will_topic, Action.PUBLISH)

    def may(self, user: str, client: str, topic: str, action: Action) -> bool:
        """Whether somebody inside may say, ask for or hear this."""
        judge = may_write if action == Action.PUBLISH else may_read
        return judge(self.role(user), topic, site=self.site, user=user, client=client)


class TopicJudge(BaseAuthPlugin, BaseTopicPlugin):  # type: ignore[misc]  # the library ships no types
    """amqtt's plugin: it asks the wall."""

    @dataclass
    class Config:
        """How it gets the wall."""

        wall: Any

    async def authenticate(self, *, session: Any) -> bool:
        """Everybody who comes this far was let in at a door."""
        return bool(session.username)

    async def topic_filtering(self, *, session: Any = None, topic: str | None = None, action: Any = None) -> bool:
        """Whether this client may say, ask for or hear this."""
        if session is None or topic is None:
            return False
        wall: Wall = self.config.wall
        return wall.may(session.username or "", session.client_id or "", topic, action)


class InnerBroker(Broker):  # type: ignore[misc]  # the library ships no types
    """amqtt behind the doors. Only what the station says is kept for those who subscribe later."""

    def __init__(self, wall: Wall) -> None:
        plugin = f"{TopicJudge.__module__}.{TopicJudge.__name__}"
        super().__init__({"listeners": {"default": {"type": "external"}}, "plugins": {plugin: {"wall": wall}}})
        self._wall = wall

    async def retain_message(
        self, source_session: Any, topic_name: str | None, data: bytes | bytearray | None, qos: int | None = None
    ) -> None:
        """Keep a message of the station, and nobody else's."""
        if source_session is not None and self._wall.role(source_session.username) is Role.STATION:
            await super().retain_message(source_session, topic_name, data, qos)


class Door:
    """A port, and who came in through it. Nobody comes in under the client id of somebody inside ``other``."""

    def __init__(self, role: Role, wall: Wall, inner: InnerBroker, other: Door | None = None) -> None:
        self._role = role
        self._wall = wall
        self._inner = inner
        self._other = other
        self._server: asyncio.Server | None = None
        self._inside: dict[asyncio.StreamWriter, Greeting] = {}
        self._hashes: dict[asyncio.StreamWriter, str | None] = {}
        self._strangers = 0

    async def open(self, host: str, port: int) -> None:
        """Listen. Raises ``OSError``."""
        self._server = await asyncio.start_server(self._come, host, port)

    def judge_again(self) -> None:
        """Throw out whoever has lost his place, or has another password now."""
        for writer, password_hash in list(self._hashes.items()):
            if self._wall.known(self._inside[writer].user, self._role) != password_hash:
                writer.transport.abort()

    def has(self, client: str) -> bool:
        """Whether this client is inside."""
        return any(greeting.client == client for greeting in self._inside.values())

    def close(self) -> None:
        """Listen no more, and throw out everybody."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._inside):
            writer.transport.abort()

    async def _come(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._strangers >= STRANGERS:
            writer.transport.abort()
            return
        self._strangers += 1
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                greeting = await _read_greeting(reader)
            taken = self._other is not None and self._other.has(greeting.client)
            if taken or not self._wall.lets_in(greeting, self._role):
                raise Refused("not_authorised", greeting.user[:40])
        except (Refused, TimeoutError, OSError, EOFError) as error:
            log.debug("nobody let in door=%s reason=%s", self._role.value, error)
            if isinstance(error, Refused):
                writer.write(bytes((0x20, 2, 0, NOT_AUTHORISED)))
            writer.close()
            return
        finally:
            self._strangers -= 1
        for old in [each for each, inside in self._inside.items() if inside.client == greeting.client]:
            # Who comes again takes his own place; amqtt would leave him the old connection as well.
            old.transport.abort()
        self._inside[writer] = greeting
        self._hashes[writer] = self._wall.known(greeting.user, self._role)
        try:
            inner_reader = _BoundedReader(reader, greeting.packet)
            await self._inner.external_connected(inner_reader, StreamWriterAdapter(writer), "default")
        except (OSError, EOFError, AMQTTError, MQTTError) as error:
            log.debug("connection ended door=%s reason=%r", self._role.value, error)
        finally:
            del self._inside[writer], self._hashes[writer]
            writer.close()


class _BoundedReader(StreamReaderAdapter):  # type: ignore[misc]  # the library ships no types
    """A connection from its first packet, which was read already; a packet that is too large ends it."""

    def __init__(self, reader: asyncio.StreamReader, first: bytes) -> None:
        super().__init__(reader)
        self._first = BufferReader(first)

    async def read(self, n: int = -1) -> bytes:
        """As many bytes as asked for."""
        if n > PACKET_BYTES:
            raise Refused("mqtt_oversized", f"{n} bytes, at most {PACKET_BYTES}")
        read: bytes = await self._first.read(n) or await super().read(n)
        return read


async def _read_greeting(reader: asyncio.StreamReader) -> Greeting:
    """The first packet. Raises ``Refused`` for one that is not CONNECT, ``EOFError`` when it does not come whole."""
    packet = await reader.readexactly(2)
    if packet[0] != CONNECT:
        raise Refused("mqtt_unexpected", f"a first packet that begins with {packet[0]:#04x}")
    length, shift = packet[1] & 0x7F, 7
    while packet[-1] & 0x80:
        if shift > 21:
            raise Refused("mqtt_malformed", "a remaining length has at most four bytes")
        packet += await reader.readexactly(1)
        length |= (packet[-1] & 0x7F) << shift
        shift += 7
    if length > GREETING_BYTES:
        raise Refused("mqtt_oversized", f"{length} bytes, at most {GREETING_BYTES}")
    packet += await reader.readexactly(length)
    try:
        connect = await ConnectPacket.from_stream(BufferReader(packet))
        return Greeting(
            client=connect.client_id or "",
            user=connect.username or "",
            password=connect.password or "",
            will_topic=connect.will_topic if connect.will_flag else None,
            packet=packet,
        )
    except (AMQTTError, MQTTError, NoDataError, ValueError, TypeError, AttributeError, struct.error) as error:
        raise Refused("mqtt_malformed", str(error)[:200]) from None
