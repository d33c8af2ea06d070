"""A station as its parts and as its process: order, crashes, signals, exit statuses."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from device_agent.errors import EXIT_CONFIG, EXIT_NOT_ALL_OK, EXIT_OK, ConfigInvalid
from device_agent.parts import Part, leaves
from gateway.config import BrokerSettings, MasterEntry, SitesSettings, StationSettings
from gateway.fleet.rehearsed import RehearsedFleet
from gateway.salt.settings import UpstreamSettings
from gateway.station import Station
from tests.peers.broker import free_port
from tests.peers.rope import new_keys, played_master
from tests.peers.salt_sockets import PlayedMaster
from tests.peers.station import StationProcess, ask, station_process
from tests.peers.waiting import until

PARTS = [
    "store",
    "reader",
    "spool",
    "reserve",
    "store-watch",
    "authority",
    "time-beacons",
    "epochs",
    "registry",
    "outboxes",
    "site-trust",
    "site-keys",
    "site-book",
    "fence",
    "marks",
    "doubt",
    "api-tokens",
    "policy-notes",
    "refusal-rows",
    "collect",
    "deliver",
    "intake",
    "retention",
    "aftermath",
    "upgrade-news",
    "files",
    "fetches",
    "mine",
    "renderer",
    "pillar",
    "device-events",
    "answers",
    "answers",
    "presence-present",
    "reactions-upward",
    "returners",
    "event-socket",
    "station",
]
DEVICES = [
    "enrollment",
    "ssh-book",
    "ssh-journals",
    "prekeys",
    "broker",
    "sessions",
    "revocation",
    "openings",
    "recertify",
    "mqtt",
    "clock-watch",
    "ssh",
    "ssh-mine",
]
UPLINK = ["own-faults", "uplink", "mine-upward"]
LINKS = [*DEVICES, "sites", *UPLINK, "calls", "reactor", "schedule", "api", "engines", "service-reports"]


def settings(folder: Path, **changed: Any) -> StationSettings:
    """A relay, which has every part there is."""
    given: dict[str, Any] = {
        "name": "relay",
        "state_dir": str(folder / "state"),
        "socket": str(folder / "api.sock"),
        "broker": BrokerSettings(port=free_port()),
        "sites": SitesSettings(listen="tcp://127.0.0.1:*"),
        "masters": [MasterEntry(address="tcp://127.0.0.1:1", key=new_keys().public)],
        **changed,
    }
    return StationSettings(**given)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What parts of this process do, in order."""
    taken: list[str] = []
    enter, leave = Part.__aenter__, Part.__aexit__

    async def entering(self: Part) -> Part:
        entered = await enter(self)
        taken.append(f"open {self.name}")
        return entered

    async def leaving(self: Part, *error: Any) -> None:
        try:
            await leave(self, *error)
        finally:
            taken.append(f"close {self.name}")

    monkeypatch.setattr(Part, "__aenter__", entering)
    monkeypatch.setattr(Part, "__aexit__", leaving)
    return taken


async def opened(steps: list[str]) -> None:
    await until(lambda: "open service-reports" in steps, what="the last part is open")


# --- in this process -------------------------------------------------------------------------------------------------


async def test_parts_open_in_their_order_and_close_in_reverse(steps: list[str], tmp_path: Path) -> None:
    station = Station("gateway", settings(tmp_path))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(station.run())
        await opened(steps)
        station.stop()
    assert running.exception() is None
    order = [*PARTS, *LINKS]
    assert steps == [*(f"open {name}" for name in order), *(f"close {name}" for name in reversed(order))]
    assert not (tmp_path / "api.sock").exists()


async def test_below_salt_masters_who_looks_for_news_opens_before_the_links_that_tell_it(
    steps: list[str], tmp_path: Path
) -> None:
    upstream = UpstreamSettings(type="salt", masters=["127.0.0.1:1"])
    station = Station("gateway", settings(tmp_path, masters=[], upstream=upstream))
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        running = group.create_task(station.run())
        await opened(steps)
        station.stop()
    assert running.exception() is None
    links = [*DEVICES, "sites", "salt-sender", "uplink", *LINKS[LINKS.index("calls") :]]
    order = [*PARTS, *links]
    assert steps == [*(f"open {name}" for name in order), *(f"close {name}" for name in reversed(order))]


async def test_a_part_that_crashes_stops_the_others_in_order_and_is_told(steps: list[str], tmp_path: Path) -> None:
    station = Station("gateway", settings(tmp_path))

    async def crash() -> None:
        raise ZeroDivisionError("a bug in delivery")

    async def run() -> None:
        with pytest.raises(BaseExceptionGroup) as error:
            await station.run()
        assert [str(leaf) for leaf in leaves(error.value)] == ["a bug in delivery"]

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(run())
        await opened(steps)
        assert station._rooms is not None
        station._rooms.delivery.spawn(crash(), "crash")
    assert [step.removeprefix("close ") for step in steps if step.startswith("close")] == [
        *reversed(LINKS),
        *reversed(PARTS),
    ]


async def test_a_part_that_cannot_open_closes_those_that_have(steps: list[str], tmp_path: Path) -> None:
    (tmp_path / "api.sock").mkdir()
    with pytest.raises(BaseExceptionGroup) as error:
        await Station("gateway", settings(tmp_path)).run()
    (reason,) = leaves(error.value)
    assert isinstance(reason, ConfigInvalid)
    closed = [step.removeprefix("close ") for step in steps if step.startswith("close")]
    assert closed == [*reversed(LINKS[: LINKS.index("api")]), *reversed(PARTS)]


async def test_two_stations_do_not_share_a_state_folder(steps: list[str], tmp_path: Path) -> None:
    first = Station("gateway", settings(tmp_path))
    async with asyncio.TaskGroup() as group:
        group.create_task(first.run())
        await opened(steps)
        second = Station("master", settings(tmp_path, socket=str(tmp_path / "other.sock"), broker=None, masters=[]))
        with pytest.raises(ConfigInvalid, match="another station uses this state folder"):
            await second.run()
        assert (await ask(tmp_path / "api.sock", "GET", "/station")).status == 200
        first.stop()


async def test_other_masters_are_used_after_a_reload(
    steps: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with played_master() as master:
        station = Station("gateway", settings(tmp_path))
        async with asyncio.TaskGroup() as group:
            group.create_task(station.run())
            await opened(steps)
            entry = MasterEntry(address=master.address.address, key=master.address.key)
            station.reload(settings(tmp_path, masters=[entry], name="another", socket=station._settings.socket))
            await until(lambda: master.hellos == 1, what="the new master")
            station.stop()
    assert "takes effect at the next start key=name" in caplog.text
    assert "key=socket" not in caplog.text


async def test_other_salt_masters_are_used_after_a_reload(
    steps: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with PlayedMaster() as first, PlayedMaster("other") as second:
        below: dict[str, Any] = {"masters": [], "socket": str(tmp_path / "api.sock"), "sites": None}
        upstream = UpstreamSettings(type="salt", masters=[first.address])
        station = Station("gateway", settings(tmp_path, upstream=upstream, **below))
        async with asyncio.TaskGroup() as group:
            group.create_task(station.run())
            await opened(steps)
            await until(lambda: first.asked["_auth"], what="the master of the start")
            upstream = structs.replace(upstream, masters=[second.address])
            station.reload(settings(tmp_path, upstream=upstream, broker=station._settings.broker, **below))
            await until(lambda: second.asked["_auth"], what="the new master")
            assert "takes effect at the next start" not in caplog.text
            upstream = structs.replace(upstream, auth_tries=1)
            station.reload(settings(tmp_path, upstream=upstream, broker=station._settings.broker, **below))
            station.stop()
    assert "takes effect at the next start key=upstream" in caplog.text


@pytest.mark.parametrize(
    ("role", "changed", "has"),
    [
        ("master", {"broker": None, "masters": []}, {"sites"}),
        ("gateway", {"sites": None}, {*DEVICES, *UPLINK}),
        # It may join a fleet at any moment.
        ("gateway", {"sites": None, "masters": []}, {*DEVICES, *UPLINK}),
        ("gateway", {}, {*DEVICES, "sites", *UPLINK}),
    ],
    ids=["master", "gateway", "gateway without masters", "relay"],
)
async def test_the_sections_make_the_difference(
    role: Any, changed: dict[str, Any], has: set[str], steps: list[str], tmp_path: Path
) -> None:
    station = Station(role, settings(tmp_path, **changed))
    async with asyncio.TaskGroup() as group:
        group.create_task(station.run())
        await opened(steps)
        view = (await ask(tmp_path / "api.sock", "GET", "/station")).json()
        station.stop()
    assert {step.removeprefix("open ") for step in steps if step.startswith("open")} == {
        *PARTS,
        *has,
        "calls",
        "reactor",
        "schedule",
        "api",
        "engines",
        "service-reports",
    }
    assert (view["uplink"] is not None, view["broker"] is not None, view["listen"] is not None) == (
        "uplink" in has,
        "broker" in has,
        "sites" in has,
    )


# --- as a process ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[StationProcess]:
    RehearsedFleet(tmp_path / "fleet").certify(tmp_path / "state", "lisbon")
    async with station_process(tmp_path, "gateway", broker={"port": free_port()}) as station:
        yield station


def alive(pid: int) -> bool:
    """Whether there is such a process, and it is not only waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_term_signal_drains_and_exits_with_zero(gateway: StationProcess) -> None:
    broker = (await gateway.answers())["broker"]["pid"]
    gateway.signal(signal.SIGTERM)
    assert await gateway.ended() == EXIT_OK
    assert not gateway.socket.exists()
    assert not alive(broker)
    assert "Traceback" not in gateway.log_text()


async def test_a_broker_that_dies_ends_the_station_with_its_error(gateway: StationProcess) -> None:
    os.kill((await gateway.answers())["broker"]["pid"], signal.SIGKILL)
    assert await gateway.ended() == EXIT_NOT_ALL_OK
    assert "the broker ended by itself" in gateway.log_text()
    assert "Traceback" not in gateway.log_text()
    # It stopped in order: the socket of the API is gone, and nothing holds the state.
    assert not gateway.socket.exists()
    await gateway.start()
    await gateway.answers()


async def test_a_station_that_was_killed_starts_again_where_it_was(gateway: StationProcess) -> None:
    before = await gateway.answers()
    issued = await ask(gateway.socket, "POST", "/jobs", {"tgt": "nobody", "fun": "test.ping"})
    gateway.signal(signal.SIGKILL)
    assert await gateway.ended() == -signal.SIGKILL
    assert gateway.socket.exists()
    await gateway.start()
    after = await gateway.answers()
    assert after["public_key"] == before["public_key"]
    assert (await ask(gateway.socket, "GET", f"/jobs/{issued.json()['jid']}")).json()["state"] == "closed"
    await until(lambda: not alive(before["broker"]["pid"]), what="the end of the first broker")


async def test_a_second_signal_cuts(gateway: StationProcess) -> None:
    """The first waits for what is under way; here it has nothing to wait for, so the second may come too late."""
    gateway.signal(signal.SIGTERM)
    gateway.signal(signal.SIGTERM)
    status = await gateway.ended()
    assert status in {EXIT_OK, EXIT_NOT_ALL_OK}
    assert "Traceback" not in gateway.log_text()


async def test_settings_are_read_again_on_a_hangup_and_bad_ones_change_nothing(gateway: StationProcess) -> None:
    gateway.write({**gateway.settings, "log_level": "debug"})
    gateway.signal(signal.SIGHUP)
    await until(lambda: "settings reloaded" in gateway.log_text(), what="the reload")
    good = gateway.settings
    gateway.write({**good, "log_levle": "info"})
    gateway.signal(signal.SIGHUP)
    await until(lambda: "settings not reloaded" in gateway.log_text(), what="the refusal")
    assert "did you mean 'log_level'?" in gateway.log_text()
    await gateway.answers()


@pytest.mark.parametrize(
    ("role", "changed", "said"),
    [
        ("gateway", {"broker": {"prot": 1}}, "did you mean 'port'?"),
        ("gateway", {"masters": [{"address": "tcp://m:1", "key": "#" * 40}]}, "not a CURVE public key"),
        ("gateway", {"state_dir": "/proc/nowhere"}, "the state folder cannot be used"),
        ("master", {"name": None}, "name"),
        ("master", {"broker": {}}, "a master has sites"),
        ("master", {"socket": "/proc/nowhere/api.sock"}, "the API's socket cannot be made"),
    ],
    ids=["unknown key", "no key", "state folder", "no name", "role", "socket"],
)
async def test_settings_that_cannot_be_end_with_the_status_that_is_not_restarted(
    role: str, changed: dict[str, Any], said: str, tmp_path: Path
) -> None:
    station = StationProcess(
        tmp_path, role, {"broker": {"port": free_port()}, **changed} if role == "gateway" else changed
    )
    await station.start()
    assert await station.ended() == EXIT_CONFIG
    assert said in station.log_text()
    assert "Traceback" not in station.log_text()


async def test_a_damaged_store_and_a_damaged_key_stop_the_start(tmp_path: Path) -> None:
    for name, content in (("station.sqlite", b"x" * 5000), ("curve.key", b"nonsense")):
        folder = tmp_path / name
        (folder / "state").mkdir(parents=True)
        (folder / "state" / name).write_bytes(content)
        station = StationProcess(folder, "master", {"sites": {"listen": "tcp://127.0.0.1:*"}})
        await station.start()
        assert await station.ended() == EXIT_CONFIG
        assert name in station.log_text()
        assert "Traceback" not in station.log_text()
        assert (folder / "state" / name).read_bytes() == content


async def test_its_files_are_for_its_user_alone(gateway: StationProcess) -> None:
    state = gateway.folder / "state"
    assert state.stat().st_mode & 0o077 == 0
    assert (state / "curve.key").stat().st_mode & 0o077 == 0


async def test_its_log_is_one_line_for_each_thing(gateway: StationProcess) -> None:
    assert await gateway.stop() == EXIT_OK
    lines = gateway.log_text().splitlines()
    assert lines
    assert [line for line in lines if not re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ +[\w.]+ ", line)] == []
    assert json.loads(gateway.config.read_text())["name"] == "lisbon"
