"""A broker with its rules, two devices that it knows, and the ways in."""

from __future__ import annotations

from pathlib import Path

from device_agent.mqtt import BrokerAddress
from device_agent.trust.keys import SigningKey, did_text
from gateway.broker.embedded import EmbeddedBroker
from gateway.broker.mosquitto import Mosquitto
from gateway.broker.part import BrokerPart
from gateway.broker.passwords import hash_password
from gateway.broker.rules import ENROLL_PASSWORD, ENROLL_USER
from tests.peers.broker import free_ports
from tests.peers.visitor import Visitor, visit

NOT_AUTHORISED = 5
"""The answer to who may not come in (MQTT 3.1.1, 3.2.2.3)."""

ADA, BEN = (did_text(SigningKey(bytes([number]) * 32).did) for number in (1, 2))
TOPIC_ADA, TOPIC_BEN = f"os/lisbon/d/{ADA}", f"os/lisbon/d/{BEN}"
JOB, ACK, TRUST = "os/lisbon/g/all/job", "os/lisbon/g/all/ack", "os/lisbon/trust"
REQUEST = "os/lisbon/enr/req"


def managed(state_dir: Path) -> Mosquitto:
    """A mosquitto of ours."""
    port, enroll_port = free_ports(2)
    return Mosquitto(site="lisbon", state_dir=state_dir, host="127.0.0.1", port=port, enroll_port=enroll_port)


def embedded(state_dir: Path) -> EmbeddedBroker:
    """An embedded broker, which keeps no state."""
    port, enroll_port = free_ports(2)
    return EmbeddedBroker(site="lisbon", host="127.0.0.1", port=port, enroll_port=enroll_port)


async def knowing_two(broker: BrokerPart) -> None:
    """It knows Ada and Ben."""
    await broker.set_users({ADA: hash_password("ada"), BEN: hash_password("ben")})


def device(broker: BrokerPart, user: str | None, password: str | None) -> BrokerAddress:
    """The devices' door, as somebody."""
    return BrokerAddress(port=broker.port, username=user, password=password)


def joining(broker: BrokerPart) -> BrokerAddress:
    """The enrollment door, as everybody."""
    return BrokerAddress(port=broker.enroll_port, username=ENROLL_USER, password=ENROLL_PASSWORD)


async def ada(broker: BrokerPart, *, will: tuple[str, bytes] | None = None, keep_will: bool = False) -> Visitor:
    """Ada, whether she is let in or not."""
    return await visit(device(broker, ADA, "ada"), ADA, will=will, keep_will=keep_will)


async def ben(broker: BrokerPart) -> Visitor:
    """Ben, whether he is let in or not."""
    return await visit(device(broker, BEN, "ben"), BEN)


async def station(broker: BrokerPart, *filters: str) -> Visitor:
    """The station, hearing these."""
    visitor = await visit(broker.station_address(), "station")
    assert visitor.inside
    if filters:
        assert await visitor.subscribe(*filters) == bytes(len(filters))
    return visitor
