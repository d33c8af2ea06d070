"""The broker's TLS door: it is the site's own authority that vouches for it, and no other."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from device_agent.authority import AuthorityUnknown
from device_agent.mqtt import BrokerAddress
from device_agent.trust.keys import SigningKey, did_text
from gateway.broker.mosquitto import Mosquitto
from gateway.broker.passwords import hash_password
from gateway.broker.tls import SERVER_DAYS, TlsAuthority
from tests.peers.broker import free_ports, shown_context
from tests.peers.clock import HandClock
from tests.peers.visitor import Visitor, visit

ADA, BEN = (did_text(SigningKey(bytes([number]) * 32).did) for number in (1, 2))


def door(state_dir: Path, clock: HandClock | None = None) -> Mosquitto:
    port, enroll_port, tls_port = free_ports(3)
    return Mosquitto(
        site="lisbon",
        state_dir=state_dir,
        host="127.0.0.1",
        port=port,
        enroll_port=enroll_port,
        tls_port=tls_port,
        clock=clock,
    )


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Mosquitto]:
    async with door(tmp_path, HandClock()) as made:
        await made.set_users({ADA: hash_password("ada")})
        yield made


async def over_tls(broker: Mosquitto, authority: str, user: str = ADA, password: str = "ada") -> Visitor:
    assert broker.tls_port is not None
    context = ssl.create_default_context(cadata=authority)
    context.check_hostname = True
    address = BrokerAddress("localhost", broker.tls_port, username=user, password=password)
    return await visit(address, user, tls=context)


def certificate(visitor: Visitor) -> bytes:
    """What the broker showed."""
    assert visitor.transport is not None
    shown: bytes = visitor.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return shown


async def test_a_device_that_knows_the_authority_comes_in_and_hears_its_topics(broker: Mosquitto) -> None:
    assert broker.tls_authority_pem is not None
    der = ssl.PEM_cert_to_DER_cert(broker.tls_authority_pem)
    assert broker.tls_authority_digest == hashlib.sha256(der).digest()
    visitor = await over_tls(broker, broker.tls_authority_pem)
    assert visitor.inside
    await visitor.subscribe(f"os/lisbon/d/{ADA}/job", f"os/lisbon/d/{BEN}/job")
    master = await visit(broker.station_address(), "station")
    await master.publish(f"os/lisbon/d/{BEN}/job", b"not for her")
    await master.publish(f"os/lisbon/d/{ADA}/job", b"for her")
    await visitor.settled()
    assert visitor.heard == [(f"os/lisbon/d/{ADA}/job", b"for her")]


async def test_a_device_that_knows_only_the_digest_finds_the_authority_at_the_door(broker: Mosquitto) -> None:
    assert broker.tls_port is not None
    assert broker.tls_authority_digest is not None
    context = await asyncio.to_thread(shown_context, broker.tls_port, broker.tls_authority_digest)
    address = BrokerAddress(port=broker.tls_port, username=ADA, password="ada")
    assert (await visit(address, ADA, tls=context)).inside
    with pytest.raises(AuthorityUnknown):
        await asyncio.to_thread(shown_context, broker.tls_port, bytes(32))


async def test_a_device_that_knows_another_authority_does_not_come_in(broker: Mosquitto, tmp_path: Path) -> None:
    other = TlsAuthority(tmp_path / "other.pem", "lisbon")
    other.load()
    with pytest.raises(ssl.SSLCertVerificationError):
        await over_tls(broker, other.pem)


async def test_the_same_rules_hold_at_that_door(broker: Mosquitto) -> None:
    assert broker.tls_authority_pem is not None
    assert (await over_tls(broker, broker.tls_authority_pem, BEN, "ada")).code == 5
    inside = await over_tls(broker, broker.tls_authority_pem)
    await broker.remove_user(ADA)
    await inside.settled()
    assert inside.gone
    assert (await over_tls(broker, broker.tls_authority_pem)).code == 5


async def test_the_authority_stays_the_same_and_the_brokers_certificate_is_made_again(tmp_path: Path) -> None:
    digests = set()
    shown = set()
    for _ in range(2):
        async with door(tmp_path, HandClock()) as broker:
            await broker.set_users({ADA: hash_password("ada")})
            digests.add(broker.tls_authority_digest)
            assert broker.tls_authority_pem is not None
            shown.add(certificate(await over_tls(broker, broker.tls_authority_pem)))
    assert len(digests) == 1
    assert len(shown) == 2


async def test_a_certificate_that_is_near_its_end_is_replaced_while_the_broker_runs(tmp_path: Path) -> None:
    clock = HandClock()
    async with door(tmp_path, clock) as broker:
        await broker.set_users({ADA: hash_password("ada")})
        assert broker.tls_authority_pem is not None
        inside = await over_tls(broker, broker.tls_authority_pem)
        await broker.add_user(BEN, hash_password("ben"))
        assert certificate(await over_tls(broker, broker.tls_authority_pem)) == certificate(inside)
        clock.move(SERVER_DAYS * 86_400 * 0.9)
        await broker.remove_user(BEN)
        again = await over_tls(broker, broker.tls_authority_pem)
        assert certificate(again) != certificate(inside)
