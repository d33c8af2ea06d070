"""A start that goes wrong says in the unit's status what is wrong and what to type, as docs/wrong-starts.md has it."""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import os
import shutil
import socket
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from device_agent.protocol.limits import CERTIFICATE_DAYS
from gateway.broker.start import find_mosquitto
from gateway.fleet.rehearsed import RehearsedFleet
from tests.peers.broker import free_port
from tests.peers.broker_unit import BrokerUnit
from tests.peers.certificate import ENDS, self_made
from tests.peers.clock import HandClock
from tests.peers.jumping_clock import JumpingClock
from tests.peers.notified import PlayedSupervisor, played_supervisor
from tests.peers.small_disk import small_disk
from tests.peers.station import StationProcess
from tests.peers.waiting import until
from tests.peers.with_fstab import with_fstab
from tests.peers.wrong_starts_page import Row, rows

SECONDS = 60.0
STATIONS = ("gateway", "master", "broker")
NO_PRIVILEGE = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search")
DAY_SECONDS = 86_400

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]


@dataclass
class Bench:
    """A place for one start."""

    folder: Path
    supervisor: PlayedSupervisor
    stack: contextlib.AsyncExitStack
    settings: dict[str, object] = field(default_factory=dict)
    within: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    def station(self, role: str = "gateway") -> StationProcess:
        """A gateway whose broker is its own, unless the settings say otherwise; or a master."""
        given = {"broker": {"port": free_port()}} if role == "gateway" else {}
        made = StationProcess(self.folder, role, {**given, **self.settings})
        made.environment = {**self.supervisor.environment(), **self.environment}
        made.within = self.within
        return made

    def taken(self) -> int:
        """A port that somebody else has."""
        other = self.stack.enter_context(socket.socket())
        other.bind(("127.0.0.1", free_port()))
        other.listen()
        port: int = other.getsockname()[1]
        return port


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with contextlib.AsyncExitStack() as stack:
        yield Bench(tmp_path, stack.enter_context(played_supervisor()), stack)


async def ended(bench: Bench, station: StationProcess, row: Row) -> None:
    """It ends with the status that the page names, and its last words are the page's."""
    process = station.process
    assert process is not None
    await until(lambda: process.returncode is not None, SECONDS, "its end")
    assert row.does == f"ends with {process.returncode}", station.log_text()
    assert row.fits(bench.supervisor.status), bench.supervisor.status


async def goes_on(bench: Bench, station: StationProcess, row: Row) -> None:
    """It runs, and says so."""
    try:
        await bench.supervisor.until_fits(row.fits, SECONDS)
        assert bench.supervisor.ready
        assert row.does == "goes on"
    finally:
        await station.stop()


Scenario = Callable[[Bench, Row], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {}


def wrong(name: str) -> Callable[[Scenario], Scenario]:
    def keep(scenario: Scenario) -> Scenario:
        SCENARIOS[name] = scenario
        return scenario

    return keep


def without_mosquitto() -> tuple[str, ...]:
    """A program is only out of sight for processes whose mounts are their own."""
    if os.geteuid():
        pytest.skip("only root can hide a program from a process")
    found = find_mosquitto()
    assert found is not None
    hidden = f'mount --bind /dev/null {found} && exec "$@"'
    return ("unshare", "--mount", "--propagation", "private", "sh", "-c", hidden, "sh")


async def broker_ends(bench: Bench, unit: BrokerUnit, row: Row) -> None:
    await until(lambda: unit.ended, SECONDS, "its end")
    assert row.does == f"ends with {unit.ended[0]}"
    assert row.fits(bench.supervisor.status), bench.supervisor.status


@wrong("no broker program")
async def no_program(bench: Bench, row: Row) -> None:
    unit = BrokerUnit(bench.folder, bench.supervisor.environment(), without_mosquitto())
    async with unit:
        await broker_ends(bench, unit, row)


@wrong("no broker program, managed")
async def no_program_managed(bench: Bench, row: Row) -> None:
    bench.within = without_mosquitto()
    station = bench.station()
    await station.start()
    await ended(bench, station, row)


@wrong("a port of the broker is taken")
async def port_taken(bench: Bench, row: Row) -> None:
    unit = BrokerUnit(bench.folder, bench.supervisor.environment())
    (unit.rules / "mosquitto.conf").write_text(f"listener 0 /nowhere\nlistener {bench.taken()} 127.0.0.1\n")
    async with unit:
        await broker_ends(bench, unit, row)


@wrong("a port of the broker is taken, managed")
async def port_taken_managed(bench: Bench, row: Row) -> None:
    bench.settings = {"broker": {"host": "127.0.0.1", "port": bench.taken()}}
    station = bench.station()
    await station.start()
    await ended(bench, station, row)


@wrong("the address of the broker is not there yet, managed")
async def address_of_broker_late(bench: Bench, row: Row) -> None:
    bench.settings = {"broker": {"host": "192.0.2.10", "port": free_port()}}
    station = bench.station()
    await station.start()
    await ended(bench, station, row)


@wrong("the address for sites is not there yet")
async def address_for_sites_late(bench: Bench, row: Row) -> None:
    bench.settings = {"sites": {"listen": f"tcp://192.0.2.10:{free_port()}"}}
    station = bench.station("master")
    await station.start()
    await ended(bench, station, row)


@wrong("the address of the API is not there yet")
async def address_of_api_late(bench: Bench, row: Row) -> None:
    certificate, key = self_made(bench.folder)
    listen = f"192.0.2.10:{free_port()}"
    sites = {"listen": f"tcp://127.0.0.1:{free_port()}"}
    bench.settings = {"api": {"listen": listen, "certificate": str(certificate), "key": str(key)}, "sites": sites}
    station = bench.station("master")
    await station.start()
    await ended(bench, station, row)


@wrong("the disk of the state folder is not mounted yet")
async def disk_late(bench: Bench, row: Row) -> None:
    disk = bench.folder / "disk"
    disk.mkdir()
    bench.within = with_fstab(bench.folder, f"LABEL=data {disk} ext4 defaults 0 2\n")
    bench.settings = {"state_dir": str(disk / "state")}
    station = bench.station()
    await station.start()
    await ended(bench, station, row)
    assert list(disk.iterdir()) == [], "no new keys in the empty mount point"


@wrong("another station uses the state folder")
async def folder_taken(bench: Bench, row: Row) -> None:
    (bench.folder / "state").mkdir(mode=0o700)
    lock = bench.stack.enter_context((bench.folder / "state" / "lock").open("w"))
    fcntl.flock(lock, fcntl.LOCK_EX)
    station = bench.station()
    await station.start()
    await ended(bench, station, row)


@wrong("the port for sites is taken")
async def sites_port_taken(bench: Bench, row: Row) -> None:
    bench.settings = {"sites": {"listen": f"tcp://127.0.0.1:{bench.taken()}"}}
    station = bench.station("master")
    await station.start()
    await ended(bench, station, row)


@wrong("the broker does not run")
async def broker_away(bench: Bench, row: Row) -> None:
    unit = BrokerUnit(bench.folder)
    broker = {"mode": "service", "rules_dir": str(unit.rules), "pid_file": str(unit.pid_file), "port": free_port()}
    bench.settings = {"broker": broker}
    station = bench.station()
    await station.start()
    await goes_on(bench, station, row)


@wrong("the state folder is another user's")
async def foreign_folder(bench: Bench, row: Row) -> None:
    (bench.folder / "state").mkdir(mode=0o500)
    bench.within = NO_PRIVILEGE if os.geteuid() == 0 else ()
    station = bench.station()
    await station.start()
    await ended(bench, station, row)


@wrong("the station's key cannot be read")
async def foreign_key(bench: Bench, row: Row) -> None:
    RehearsedFleet(bench.folder / "fleet").certify(bench.folder / "state", "lisbon")
    (bench.folder / "state" / "curve.key").chmod(0)
    bench.within = NO_PRIVILEGE if os.geteuid() == 0 else ()
    station = bench.station()
    await station.start()
    await ended(bench, station, row)


@wrong("the disk is full at the start")
async def full_at_the_start(bench: Bench, row: Row) -> None:
    disk = bench.stack.enter_context(small_disk(bench.folder / "disk"))
    (disk.folder / "state").mkdir(mode=0o700)
    disk.fill()
    bench.settings = {"state_dir": str(disk.folder / "state")}
    station = bench.station()
    await station.start()
    await ended(bench, station, row)


@wrong("the disk is full later")
async def full_later(bench: Bench, row: Row) -> None:
    disk = bench.stack.enter_context(small_disk(bench.folder / "disk"))
    bench.settings = {"state_dir": str(disk.folder / "state")}
    station = bench.station()
    await station.start()
    await bench.supervisor.until_ready(SECONDS)
    disk.fill()
    await goes_on(bench, station, row)


@wrong("the settings are no YAML")
async def no_yaml(bench: Bench, row: Row) -> None:
    station = bench.station()
    station.config.write_text("name: lisbon\n  broker: [\n", encoding="utf-8")
    await station.start()
    await ended(bench, station, row)


@wrong("a setting that does not exist")
async def no_setting(bench: Bench, row: Row) -> None:
    bench.settings = {"log_levle": "info"}
    station = bench.station()
    await station.start()
    await ended(bench, station, row)


@wrong("the site's certificate has expired")
async def expired(bench: Bench, row: Row) -> None:
    RehearsedFleet(bench.folder / "fleet").certify(bench.folder / "state", "lisbon")
    clock = JumpingClock(bench.folder / "clock")
    clock.set((CERTIFICATE_DAYS + 2) * DAY_SECONDS)
    with clock.within():
        station = bench.station()
        await station.start()
    await goes_on(bench, station, row)


@wrong("the clock is years ahead")
async def years_ahead(bench: Bench, row: Row) -> None:
    RehearsedFleet(bench.folder / "fleet").certify(bench.folder / "state", "lisbon")
    clock = JumpingClock(bench.folder / "clock")
    clock.set(30 * 365 * DAY_SECONDS)
    with clock.within():
        station = bench.station()
        await station.start()
    await goes_on(bench, station, row)


def api(folder: Path, ends: dt.datetime = ENDS) -> dict[str, object]:
    certificate, key = self_made(folder, ends=ends)
    return {"api": {"listen": f"127.0.0.1:{free_port()}", "certificate": str(certificate), "key": str(key)}}


@wrong("the API's certificate has expired")
async def api_expired(bench: Bench, row: Row) -> None:
    RehearsedFleet(bench.folder / "fleet").certify(bench.folder / "state", "lisbon")
    bench.settings = api(bench.folder, ends=dt.datetime(2024, 1, 1, tzinfo=dt.UTC))
    station = bench.station()
    await station.start()
    await goes_on(bench, station, row)


@wrong("the API's key cannot be read")
async def api_unread(bench: Bench, row: Row) -> None:
    bench.settings = api(bench.folder)
    (bench.folder / "station.key").chmod(0)
    bench.within = NO_PRIVILEGE if os.geteuid() == 0 else ()
    station = bench.station("master")
    await station.start()
    await ended(bench, station, row)


@wrong("the settings cannot be read")
async def settings_unread(bench: Bench, row: Row) -> None:
    bench.within = NO_PRIVILEGE if os.geteuid() == 0 else ()
    station = bench.station()
    station.config.chmod(0)
    await station.start()
    await ended(bench, station, row)


@wrong("the clock is in 1970")
async def in_1970(bench: Bench, row: Row) -> None:
    RehearsedFleet(bench.folder / "fleet").certify(bench.folder / "state", "lisbon")
    clock = JumpingClock(bench.folder / "clock")
    clock.set(-int(HandClock().wall()) + 120 * DAY_SECONDS)
    with clock.within():
        station = bench.station()
        await station.start()
    await goes_on(bench, station, row)


@wrong("the state is of a newer version")
async def newer(bench: Bench, row: Row) -> None:
    (bench.folder / "state").mkdir(mode=0o700)
    with contextlib.closing(sqlite3.connect(bench.folder / "state" / "station.sqlite")) as store:
        store.executescript("CREATE TABLE station (key TEXT, value TEXT); PRAGMA user_version=9999;")
    station = bench.station()
    await station.start()
    await ended(bench, station, row)


def test_the_page_and_these_tests_know_the_same_wrong_starts() -> None:
    assert rows(*STATIONS).keys() == SCENARIOS.keys()
    assert shutil.which("setpriv"), "util-linux is on every Debian"


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_wrong_start_says_what_is_wrong_and_what_to_type(name: str, bench: Bench) -> None:
    await SCENARIOS[name](bench, rows(*STATIONS)[name])
