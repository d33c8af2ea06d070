"""Mode ``service``: a broker that is a unit of its own. It and the gateway start again without each other."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from device_agent.mqtt import BrokerAddress
from device_agent.trust.keys import SigningKey, did_text
from gateway.broker.login import lets_in
from gateway.broker.passwords import hash_password
from gateway.broker.rules import NOTICES
from gateway.broker.service import ServiceBroker
from gateway.broker.start import WAITING
from gateway.fleet.rehearsed import RehearsedFleet
from tests.peers.broker import free_ports
from tests.peers.broker_unit import BrokerUnit
from tests.peers.notified import played_supervisor
from tests.peers.station import station_process
from tests.peers.visitor import visit
from tests.peers.waiting import until

ADA = did_text(SigningKey(bytes(32)).did)
BEN = did_text(SigningKey(bytes([1] * 32)).did)


@pytest.fixture
async def unit(tmp_path: Path) -> AsyncIterator[BrokerUnit]:
    async with BrokerUnit(tmp_path) as found:
        yield found


def part_of(unit: BrokerUnit, ports: list[int], *, tls: bool = False) -> ServiceBroker:
    return ServiceBroker(
        site="lisbon",
        state_dir=unit.rules.parent,
        rules_dir=unit.rules,
        runtime_dir=unit.runtime,
        host="127.0.0.1",
        port=ports[0],
        enroll_port=ports[1],
        tls_port=ports[2] if tls else None,
    )


async def let_in(address: BrokerAddress) -> None:
    await until(lambda: lets_in(address), 60, f"the broker lets {address.username} in")


async def test_the_broker_waits_for_the_gateway_and_then_has_its_rules(tmp_path: Path) -> None:
    ports = free_ports(3)
    with played_supervisor() as supervisor:
        async with BrokerUnit(tmp_path, supervisor.environment()) as unit:
            assert await supervisor.until_ready() == WAITING
            async with part_of(unit, ports) as part:
                await let_in(part.station_address())
                assert unit.starts == 1
                assert supervisor.status == f"the broker of this site, on port {ports[0]} and {ports[1]}"
                # The broker says so itself as well, when its doors are open.
                assert ["READY=1"] in supervisor.heard
                device = BrokerAddress(port=ports[0], username=ADA, password="ada")
                assert (await visit(device, ADA)).code == 5
                await part.add_user(ADA, hash_password("ada"))
                assert await lets_in(device)
                await part.remove_user(ADA)
                assert not await lets_in(device)
                assert part.status()["pid"] == unit.pid


async def test_a_gateway_that_starts_again_disturbs_no_device(unit: BrokerUnit) -> None:
    ports = free_ports(3)
    device = BrokerAddress(port=ports[0], username=ADA, password="ada")
    async with part_of(unit, ports) as part:
        await part.set_users({ADA: hash_password("ada")})
        await let_in(device)
        first = part.station_address()
        inside = await visit(device, ADA)
        await inside.subscribe("os/lisbon/trust")
    again = part_of(unit, ports)
    await again.set_users({ADA: part._devices[ADA]})
    async with again:
        await let_in(again.station_address())
        assert not await lets_in(first)
        master = await visit(again.station_address(), "station")
        await master.publish("os/lisbon/trust", b"bundle")
        await until(lambda: inside.heard == [("os/lisbon/trust", b"bundle")], what="the message")
        assert (inside.gone, unit.starts) == (False, 1)


async def test_a_broker_that_starts_again_has_what_was_decided_meanwhile(unit: BrokerUnit) -> None:
    ports = free_ports(3)
    async with part_of(unit, ports) as part:
        await let_in(part.station_address())
        unit.kill(signal.SIGKILL)
        await part.add_user(BEN, hash_password("ben"))
        await let_in(BrokerAddress(port=ports[0], username=BEN, password="ben"))
        await let_in(part.station_address())
        assert unit.starts == 2


async def test_another_port_and_a_door_with_tls_make_the_broker_start_again(unit: BrokerUnit) -> None:
    ports, others = free_ports(3), free_ports(3)
    async with part_of(unit, ports) as part:
        await let_in(part.station_address())
    async with part_of(unit, others, tls=True) as part:
        await unit.started(2)
        await let_in(part.station_address())
        assert part.tls_authority_digest is not None
        await part.add_user(ADA, hash_password("ada"))
        device = BrokerAddress(port=others[2], username=ADA, password="ada", authority=part.tls_authority_digest)
        assert await lets_in(BrokerAddress(port=others[0], username=ADA, password="ada"))
        with pytest.raises(ConnectionRefusedError):
            await visit(BrokerAddress(port=ports[0], username=ADA, password="ada"), ADA)
        assert device.port == part.status()["tls_port"]


async def test_a_broker_that_hangs_is_ended_so_that_its_unit_starts_it_again(unit: BrokerUnit) -> None:
    async with part_of(unit, free_ports(3)) as part:
        await let_in(part.station_address())
        assert await part.silent() is None
        assert unit.starts == 1
        unit.kill(signal.SIGSTOP)
        assert await part.silent() is None
        await unit.started(2)
        await let_in(part.station_address())


async def test_a_broker_that_does_not_run_keeps_no_gateway_from_starting(tmp_path: Path) -> None:
    unit = BrokerUnit(tmp_path)
    async with part_of(unit, free_ports(3)) as part:
        await part.add_user(ADA, hash_password("ada"))
        assert part.status()["pid"] is None
        # What was left behind by one that ended, and is somebody else's number by now.
        unit.pid_file.write_text("1\n")
        assert part.status()["pid"] is None


async def test_the_broker_tells_the_station_who_connects(unit: BrokerUnit) -> None:
    ports = free_ports(3)
    async with part_of(unit, ports) as part:
        await let_in(part.station_address())
        await part.set_enrollment(True)
        master = await visit(part.station_address(), "station")
        await master.subscribe(NOTICES)
        await let_in(BrokerAddress(port=ports[1], username="enroll", password="enroll"))
        await until(lambda: any(b"New client connected from 127.0.0.1:" in said for _, said in master.heard), what="it")


async def test_a_gateway_process_lives_beside_its_broker(tmp_path: Path) -> None:
    RehearsedFleet(tmp_path / "fleet").certify(tmp_path / "state", "lisbon")
    async with BrokerUnit(tmp_path) as unit:
        ports = free_ports(2)
        broker = {
            "mode": "service",
            "port": ports[0],
            "enroll_port": ports[1],
            "rules_dir": str(unit.rules),
            "pid_file": str(unit.pid_file),
        }
        async with station_process(tmp_path, "gateway", broker=broker) as gateway:

            async def connected() -> bool:
                return bool((await gateway.answers())["broker"]["connected"])

            await until(connected, 60, "the gateway is connected")
            unit.kill(signal.SIGKILL)
            await unit.started(2)
            await until(connected, 60, "the gateway is connected again")
            gateway.signal(signal.SIGKILL)
            await gateway.ended()
            await gateway.start()
            await until(connected, 60, "the next gateway is connected")
            assert (await gateway.answers())["broker"]["mode"] == "service"
        assert unit.is_broker()
        assert unit.starts == 2
