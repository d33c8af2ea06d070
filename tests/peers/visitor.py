"""Somebody who visits a broker: a raw client that says whatever its test likes, under any name."""

from __future__ import annotations

import asyncio
import ssl
import struct
from typing import cast

from device_agent.lean_mqtt import (
    DISCONNECT,
    PINGREQ,
    Connack,
    Parser,
    Pingresp,
    Publish,
    Suback,
    encode_connect,
    encode_publish,
    encode_subscribe,
)
from device_agent.mqtt import BrokerAddress
from tests.peers.waiting import until

KEEPALIVE_SECONDS = 3600
"""A test that waits for something else says nothing for a while, and is not thrown out for it."""


class Visitor(asyncio.Protocol):
    """One connection, and what was heard on it."""

    def __init__(self) -> None:
        self.code: int | None = None
        self.heard: list[tuple[str, bytes]] = []
        self.grants: list[bytes] = []
        self.pongs = 0
        self.gone = False
        self.transport: asyncio.Transport | None = None
        self._parser = Parser()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        for packet in self._parser.feed(data):
            match packet:
                case Connack(code):
                    self.code = code
                case Suback(_, codes):
                    self.grants.append(codes)
                case Publish(topic, payload):
                    self.heard.append((topic, payload))
                case Pingresp():
                    self.pongs += 1

    def connection_lost(self, error: Exception | None) -> None:
        self.gone = True

    @property
    def inside(self) -> bool:
        """Whether it was let in and is still there."""
        return self.code == 0 and not self.gone

    async def subscribe(self, *filters: str) -> bytes:
        """The answer for each filter."""
        before = len(self.grants)
        self.send(encode_subscribe(1, filters))
        await until(lambda: len(self.grants) > before, what=f"the answer to {filters}")
        return self.grants[-1]

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Say something, and wait until the broker has dealt with it."""
        packet = encode_publish(topic, payload)
        self.send(bytes((packet[0] | retain,)) + packet[1:])
        await self.settled()

    async def settled(self) -> None:
        """Until the broker has dealt with all that was sent so far, or has ended the connection."""
        before = self.pongs
        self.send(PINGREQ)
        await until(lambda: self.pongs > before or self.gone, what="the answer to a ping")

    def send(self, data: bytes) -> None:
        """Any bytes."""
        assert self.transport is not None
        self.transport.write(data)

    def leave(self, *, politely: bool = True) -> None:
        """End it; impolitely, the broker publishes the last will."""
        assert self.transport is not None
        if politely:
            self.send(DISCONNECT)
            self.transport.close()
        else:
            self.transport.abort()


async def visit(
    address: BrokerAddress,
    client_id: str,
    *,
    will: tuple[str, bytes] | None = None,
    keep_will: bool = False,
    tls: ssl.SSLContext | None = None,
) -> Visitor:
    """Come to a broker; returns when it has said whether it lets one in."""
    loop = asyncio.get_running_loop()
    if address.unix_socket is not None:
        _, visitor = await loop.create_unix_connection(Visitor, address.unix_socket)
    else:
        _, visitor = await loop.create_connection(Visitor, address.host, address.port, ssl=tls)
    greeting = bytearray(encode_connect(client_id, KEEPALIVE_SECONDS, will, address.username, address.password))
    if keep_will:
        # The flags stand behind the protocol's name and level (MQTT 3.1.1, 3.1.2.3).
        greeting[greeting.index(struct.pack(">H4sB", 4, b"MQTT", 4)) + 7] |= 0x20
    visitor.send(bytes(greeting))
    await until(lambda: visitor.code is not None or visitor.gone, what="the broker's answer")
    return visitor
