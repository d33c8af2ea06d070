"""Time beacons over the real rope: from masters to gateways, through relays, to sites that were dark."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_agent.clock import FIRST
from device_agent.errors import Refused
from device_agent.trust.floor import MASTER_LIMIT_SECONDS, MOVED_SECONDS
from device_agent.trust.time_beacon import read_time_beacon, sign_time_beacon
from gateway.devices import time_beacons
from gateway.devices.time_beacons import FILE, TimeBeacons
from tests.peers.broker import free_port
from tests.peers.clock import HandClock
from tests.peers.fleet import party
from tests.peers.two_stations import GatewayStation, Holders, MasterStation, joined
from tests.peers.waiting import until
from upstream.uplink import MasterAddress

HOUR = 3600
DAY = 86_400
YEAR = 365 * DAY


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def newest(station: GatewayStation) -> int:
    """The time of the beacon that devices of this gateway would get; 0 for none."""
    beacon = station.beacons.for_devices()
    return 0 if beacon is None else beacon.issued


async def test_a_site_hears_the_newest_beacon_with_its_welcome_and_each_one_after(
    tmp_path: Path, clock: HandClock
) -> None:
    async with (
        MasterStation(tmp_path / "m", "central", clock) as master,
        GatewayStation(tmp_path / "g", "lisbon", clock) as gateway,
    ):
        await Holders(tmp_path / "fleet", clock, master).publish(master)
        await joined(master, gateway)
        await until(lambda: newest(gateway) == int(clock.wall()), what="the beacon of the welcome")
        for _ in range(3):
            clock.move(HOUR)
            await master.beacons.sign()
            await until(lambda: newest(gateway) == int(clock.wall()), what="the beacon of the hour")
        assert gateway.beacons.heard == {master.address: clock.wall()}
        assert (gateway.refused(), gateway.below.jobs, master.above.items) == ({}, [], {})


async def test_a_master_signs_by_itself_each_time_the_hour_has_passed(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_beacons, "EVERY_SECONDS", 0.01)
    async with (
        MasterStation(tmp_path / "m", "central", clock) as master,
        GatewayStation(tmp_path / "g", "lisbon", clock) as gateway,
    ):
        await Holders(tmp_path / "fleet", clock, master).publish(master)
        await joined(master, gateway)
        for _ in range(2):
            clock.move(HOUR)
            await until(lambda: newest(gateway) == int(clock.wall()), what="the beacon of the hour")


async def test_a_site_that_was_dark_hears_one_beacon_when_it_is_back(tmp_path: Path, clock: HandClock) -> None:
    async with MasterStation(tmp_path / "m", "central", clock) as master:
        await Holders(tmp_path / "fleet", clock, master).publish(master)
        async with GatewayStation(tmp_path / "g", "lisbon", clock) as gateway:
            await joined(master, gateway)
            await until(lambda: newest(gateway) > 0, what="the first beacon")
        for _ in range(48):
            clock.move(HOUR)
            await master.beacons.sign()
        assert len(master.trust.tells("lisbon").time_beacons) == 1
        async with GatewayStation(tmp_path / "g", "lisbon", clock) as gateway:
            await until(lambda: newest(gateway) == int(clock.wall()), what="the newest beacon")


async def test_beacons_of_two_masters_go_through_a_relay(tmp_path: Path, clock: HandClock) -> None:
    async with (
        MasterStation(tmp_path / "a", "central", clock) as one,
        MasterStation(tmp_path / "b", "backup", clock) as other,
        GatewayStation(tmp_path / "r", "region", clock, port=free_port()) as relay,
    ):
        await Holders(tmp_path / "fleet", clock, one, other).publish(one, other)
        await joined(one, relay)
        above = MasterAddress(relay.address, relay.curve.public)
        async with GatewayStation(tmp_path / "g", "lisbon", clock, settings=(above,)) as leaf:
            await until(lambda: relay.states() == {"lisbon": "pending"}, what="the knock at the relay")
            await relay.keys.accept("lisbon", None)
            await until(lambda: one.states().get("lisbon") == "pending", what="the request above")
            await one.keys.accept("lisbon", None)
            for master in (other, one):
                clock.move(HOUR)
                await master.beacons.sign()
                await until(lambda: newest(leaf) == int(clock.wall()), what="the beacon behind the relay")
                beacon = leaf.beacons.for_devices()
                assert beacon is not None
                assert beacon.kid == master.authority.signing.kid
            assert list(leaf.beacons.heard) == [relay.address]


# --- the gateway's own time ------------------------------------------------------------------------------------------


async def gateway_of(tmp_path: Path, clock: HandClock, master: MasterStation) -> GatewayStation:
    gateway = GatewayStation(tmp_path / "g", "lisbon", clock)
    async with gateway:
        await joined(master, gateway)
        await until(lambda: newest(gateway) > 0, what="the first beacon")
    return gateway


async def test_a_gateway_whose_clock_is_set_back_goes_on_from_the_last_beacon_also_after_a_restart(
    tmp_path: Path, clock: HandClock
) -> None:
    async with MasterStation(tmp_path / "m", "central", clock) as master:
        await Holders(tmp_path / "fleet", clock, master).publish(master)
        async with GatewayStation(tmp_path / "g", "lisbon", clock) as gateway:
            await joined(master, gateway)
            for _ in range(10):
                clock.move(DAY)
                await master.beacons.sign()
                await until(lambda: newest(gateway) == int(clock.wall()), what="the beacon of the day")
            signed = clock.wall()
            certificate = gateway.authority.certificate
            assert certificate is not None
            assert certificate.issued < signed - 5 * DAY
    back = HandClock(wall=certificate.issued + 60.0)
    gateway = GatewayStation(tmp_path / "g", "lisbon", back)
    async with gateway.beacons:
        assert int(gateway.authority.now()) >= int(signed)
        back.move(100)
        assert int(gateway.authority.now()) >= int(signed) + 100
    (gateway.folder / FILE).unlink()
    without = GatewayStation(tmp_path / "g", "lisbon", HandClock(wall=certificate.issued + 60.0))
    async with without.beacons:
        assert without.authority.now() < signed - 5 * DAY


async def test_a_machine_without_a_clock_learns_the_time_and_its_devices_are_told_anew(
    tmp_path: Path, clock: HandClock
) -> None:
    async with MasterStation(tmp_path / "m", "central", clock) as master:
        await Holders(tmp_path / "fleet", clock, master).publish(master)
        await gateway_of(tmp_path, clock, master)
        clock.move(3 * DAY)
        await master.beacons.sign()
        gateway = GatewayStation(tmp_path / "g", "lisbon", HandClock(wall=FIRST))
        jumps = []

        async def jumped() -> None:
            jumps.append(gateway.authority.now())

        gateway.beacons.on_jump(jumped)
        async with gateway:
            await until(lambda: bool(jumps), what="the time of the master")
            assert abs(gateway.authority.now() - clock.wall()) < HOUR
            assert newest(gateway) == int(clock.wall())


async def test_a_stolen_master_moves_neither_the_clock_nor_the_devices_of_a_gateway_that_knows_the_time(
    tmp_path: Path, clock: HandClock
) -> None:
    async with (
        MasterStation(tmp_path / "a", "central", clock) as one,
        MasterStation(tmp_path / "b", "stolen", clock) as stolen,
        GatewayStation(tmp_path / "g", "lisbon", clock) as gateway,
    ):
        await Holders(tmp_path / "fleet", clock, one, stolen).publish(one, stolen)
        await joined(one, gateway)
        await until(lambda: newest(gateway) > 0, what="a beacon")
        key, beacons = stolen.authority.signing, gateway.beacons
        for ahead in (MOVED_SECONDS + 1, 100 * DAY, 10 * YEAR):
            with pytest.raises(Refused, match="issued_in_future"):
                await beacons.take(sign_time_beacon(key, int(clock.wall()) + ahead), "there")
        assert gateway.authority.now() == clock.wall()
        # It does not keep the beacons of the other master from the devices.
        clock.move(HOUR)
        await one.beacons.sign()
        await until(lambda: newest(gateway) == int(clock.wall()), what="the honest beacon")
        # A master whose clock was ahead, and was set right, is heard again.
        await beacons.take(sign_time_beacon(key, int(clock.wall()) + 1), "there")
        assert newest(gateway) == int(clock.wall()) + 1


async def test_without_a_clock_a_stolen_master_moves_the_time_by_400_days_until_it_is_dropped(
    tmp_path: Path, clock: HandClock
) -> None:
    async with (
        MasterStation(tmp_path / "a", "central", clock) as one,
        MasterStation(tmp_path / "b", "stolen", clock) as stolen,
    ):
        holders = Holders(tmp_path / "fleet", clock, one, stolen)
        await holders.publish(one, stolen)
        await gateway_of(tmp_path, clock, one)
        gateway = GatewayStation(tmp_path / "g", "lisbon", HandClock(wall=FIRST))
        authority = gateway.authority
        async with gateway.beacons:
            root = authority.anchor.root
            assert root is not None
            await gateway.beacons.take(sign_time_beacon(stolen.authority.signing, root.issued + 10 * YEAR), "there")
            assert int(authority.now()) == root.issued + MASTER_LIMIT_SECONDS
            clock.move(HOUR)
            holders.drop("stolen")
            await authority.install(root_lists=holders.ceremony.chain())
            assert all(read_time_beacon(body).kid != stolen.authority.signing.kid for body in gateway.beacons.bodies())
            right = GatewayStation(tmp_path / "g", "lisbon", clock)
            async with right.beacons:
                # The clock of the machine was set right: what the stolen master said holds nobody back.
                assert right.authority.now() == clock.wall()


async def test_beacons_by_a_site_and_by_a_stranger_are_refused_and_an_old_one_is_no_news(
    tmp_path: Path, clock: HandClock
) -> None:
    async with MasterStation(tmp_path / "m", "central", clock) as master:
        await Holders(tmp_path / "fleet", clock, master).publish(master)
        gateway = await gateway_of(tmp_path, clock, master)
        beacons, now = gateway.beacons, int(clock.wall())
        heard = dict(beacons.heard)
        for key, reason in ((gateway.authority.signing, "no_role"), (party("stranger").key, "unknown_issuer")):
            with pytest.raises(Refused, match=reason):
                await beacons.take(sign_time_beacon(key, now), "there")
        for old in (now, now - 1, now - YEAR):
            await beacons.take(sign_time_beacon(master.authority.signing, old), "there")
        assert (newest(gateway), beacons.heard) == (now, heard)


async def test_a_gateway_signs_no_beacon_and_a_master_outside_the_root_list_neither(
    tmp_path: Path, clock: HandClock
) -> None:
    async with MasterStation(tmp_path / "m", "central", clock) as master:
        await master.beacons.sign()
        assert master.beacons.bodies() == []
        await Holders(tmp_path / "fleet", clock, master).publish(master)
        assert len(master.beacons.bodies()) == 1
        gateway = await gateway_of(tmp_path, clock, master)
        before = gateway.beacons.bodies()
        await gateway.beacons.sign()
        assert gateway.beacons.bodies() == before


async def test_a_beacon_that_was_damaged_on_disk_is_left_out(tmp_path: Path, clock: HandClock) -> None:
    async with MasterStation(tmp_path / "m", "central", clock) as master:
        await Holders(tmp_path / "fleet", clock, master).publish(master)
        gateway = await gateway_of(tmp_path, clock, master)
        path = gateway.folder / FILE
        path.write_bytes(path.read_bytes()[:-1])
        again = TimeBeacons(gateway.folder, authority=gateway.authority, clock=clock)
        async with again:
            assert again.bodies() == []
