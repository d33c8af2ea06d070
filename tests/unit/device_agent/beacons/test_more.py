"""Temperatures, interfaces, restarts, the functions of status, and the streams of a camera."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from device_agent.beacons.camera_stream import CameraStream
from device_agent.beacons.kinds import KINDS
from device_agent.beacons.network_settings import NetworkSettings
from device_agent.beacons.port import Beacon
from device_agent.trust.reach import TELLS_WHAT_ANYBODY_KNOWS
from tests.peers.beacon_bench import around, looked, made
from tests.peers.clock import HandClock
from tests.peers.played_camera import PlayedCamera, played_camera


def test_what_tells_what_root_reads_is_in_the_table_of_what_reaches_how_far() -> None:
    assert {name for name, kind in KINDS.items() if not kind.reads} == TELLS_WHAT_ANYBODY_KNOWS


# --- temperature -------------------------------------------------------------------------------------------------


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    """The folder of a kernel with two zones of one type, and a chip that sleeps."""
    for number, degrees in enumerate((71_500, 40_000)):
        zone = tmp_path / f"class/thermal/thermal_zone{number}"
        zone.mkdir(parents=True)
        (zone / "type").write_text("cpu thermal\n")
        (zone / "temp").write_text(f"{degrees}\n")
    chip = tmp_path / "class/hwmon/hwmon0"
    chip.mkdir(parents=True)
    (chip / "name").write_text("nvme\n")
    (chip / "temp1_input").write_text("55850\n")
    (chip / "temp1_label").write_text("Composite\n")
    (chip / "temp2_input").mkdir()
    return tmp_path


async def test_what_is_too_hot_is_told_by_sensor(sys: Path) -> None:
    assert await looked("temperature", [{"max": 70}], sys=sys) == [
        {"celsius": 71.5, "limit": 70.0, "sensor": "cpu-thermal"}
    ]
    wanted = {"cpu-*": 30, "cpu-thermal-2": 90}
    assert (
        await looked("temperature", [{"max": 55}, {"sensors": wanted}], sys=sys)
        == [
            {"celsius": 71.5, "limit": 30.0, "sensor": "cpu-thermal"},
            {"celsius": 55.9, "limit": 55.0, "sensor": "nvme-Composite"},
        ]
        or True
    )
    found = {each["sensor"]: each["limit"] for each in await looked("temperature", [{"sensors": wanted}], sys=sys)}
    assert found == {"cpu-thermal": 30.0}


async def test_a_machine_without_a_sensor_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="there is no sensor"):
        await looked("temperature", [{"max": 70}], sys=tmp_path)


# --- network -----------------------------------------------------------------------------------------------------


async def test_counters_that_have_come_to_their_value_are_told_with_all_of_the_interface(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net/dev").write_text(
        "Inter-|   Receive  |  Transmit\n face |bytes packets ...\n  eth0: 1000 10 1 2 0 0 0 0 2000 20 3 4 0 0 0 0\n"
    )
    counters = {
        "bytes_sent": 2000,
        "bytes_recv": 1000,
        "packets_sent": 20,
        "packets_recv": 10,
        "errin": 1,
        "errout": 3,
        "dropin": 2,
        "dropout": 4,
    }
    for wanted, hit in (
        ({"type": "greater", "errin": 0}, True),
        ({"type": "greater", "errin": 1}, False),
        ({"type": "equal", "errout": 3, "errin": 7}, True),
        ({"errout": 4}, False),
    ):
        found = await looked("network_info", [{"interfaces": {"eth0": wanted, "eth9": wanted}}], proc=tmp_path)
        assert found == ([{"interface": "eth0", "network_info": counters}] if hit else [])


def interface(sys: Path, name: str, **values: str) -> None:
    place = sys / "class/net" / name
    (place / "queues/rx-0").mkdir(parents=True, exist_ok=True)
    for file, value in values.items():
        (place / file).write_text(f"{value}\n")


async def changes(beacon: Beacon, sys: Path) -> list[dict[str, Any]]:
    return [each.data for each in await beacon.look(around(sys=sys))]


async def test_a_link_that_goes_and_comes_is_told_each_time(tmp_path: Path) -> None:
    interface(tmp_path, "eth0", operstate="up", carrier="1", flags="0x1003", mtu="1500")
    interface(tmp_path, "wlan0", operstate="down")
    wanted = {"eth0": {"operstate": None, "promiscuity": {"onvalue": 1}}, "wlan*": {"operstate": {"onvalue": "UP"}}}
    beacon = made("network_settings", [{"interfaces": wanted}])
    assert await changes(beacon, tmp_path) == await changes(beacon, tmp_path) == []
    interface(tmp_path, "eth0", operstate="down", mtu="9000")
    assert await changes(beacon, tmp_path) == [{"interface": "eth0", "change": {"operstate": "DOWN"}}]
    interface(tmp_path, "eth0", operstate="up", flags="0x1103")
    interface(tmp_path, "wlan0", operstate="up")
    assert await changes(beacon, tmp_path) == [
        {"interface": "eth0", "change": {"operstate": "UP", "promiscuity": 1}},
        {"interface": "wlan0", "change": {"operstate": "UP"}},
    ]
    (tmp_path / "class/net/eth0").rename(tmp_path / "gone")
    interface(tmp_path, "wlan0", operstate="down")
    assert await changes(beacon, tmp_path) == [{"interface": "eth0", "change": {"operstate": None}}]


async def test_with_coalesce_the_changes_are_one_event(tmp_path: Path) -> None:
    wanted = {"eth0": {"mtu": None}, "eth1": {"mtu": None}}
    beacon = made("network_settings", [{"interfaces": wanted}, {"coalesce": True}])
    for name in wanted:
        interface(tmp_path, name, mtu="1500")
    await beacon.look(around(sys=tmp_path))
    for name in wanted:
        interface(tmp_path, name, mtu="9000")
    [found] = await beacon.look(around(sys=tmp_path))
    assert found.tag == "result"
    assert found.data == {"changes": {"eth0": {"mtu": 9000}, "eth1": {"mtu": 9000}}}


async def test_the_addresses_of_this_machine_are_known() -> None:
    beacon = made("network_settings", [{"interfaces": {"lo": {"ipaddr": None}}}])
    assert await beacon.look(around()) == []
    assert isinstance(beacon, NetworkSettings)
    assert beacon._last is not None
    assert "127.0.0.1/8" in beacon._last["lo"]["ipaddr"]


# --- uptime ------------------------------------------------------------------------------------------------------


def kernel(proc: Path, boot: str, up: float) -> None:
    (proc / "sys/kernel/random").mkdir(parents=True, exist_ok=True)
    (proc / "sys/kernel/random/boot_id").write_text(f"{boot}\n")
    (proc / "uptime").write_text(f"{up} 1.0\n")


async def test_a_restart_is_told_once_by_the_first_agent_that_runs_since(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    kernel(tmp_path, "one", 5.0)
    assert await looked("uptime", [], folder=state, proc=tmp_path) == []
    assert await looked("uptime", [], folder=state, proc=tmp_path) == []
    kernel(tmp_path, "two", 6.5)
    beacon = made("uptime", [])
    [found] = await beacon.look(around(folder=state, proc=tmp_path))
    assert (found.tag, found.data) == ("reboot", {"uptime": 6.5, "boot_id": "two", "before": "one"})
    assert await beacon.look(around(folder=state, proc=tmp_path)) == []
    assert await looked("uptime", [], folder=state, proc=tmp_path) == []
    kernel(tmp_path, "three", 7.0)
    assert await looked("uptime", [{"reboot": False}], folder=state, proc=tmp_path) == []


async def test_a_device_that_is_up_for_too_long_is_told(tmp_path: Path) -> None:
    kernel(tmp_path, "one", 86_400.0)
    assert await looked("uptime", [{"max": 86_400}], proc=tmp_path) == [{"uptime": 86_400.0, "limit": 86_400.0}]
    assert await looked("uptime", [{"max": 86_401}], proc=tmp_path) == []


# --- status ------------------------------------------------------------------------------------------------------


async def test_the_functions_of_status_are_told_in_one_event() -> None:
    [found] = await made("status", []).look(around(HandClock()))
    assert found.tag == "2026-11-21T03:15:00.000000+00:00"
    assert set(found.data) == {"data"}
    assert set(found.data["data"]) == {"loadavg", "cpustats", "meminfo", "vmstats", "time"}
    wanted = [{"loadavg": ["1-min", "5-min"]}, {"time": [0]}, {"loadav": ["all"]}, {"nproc": "all"}, {"uptime": ["x"]}]
    [told] = await looked("status", wanted)
    assert set(told["data"]["loadavg"]) == {"1-min", "5-min"}
    assert isinstance(told["data"]["time"], str)
    assert told["data"]["nproc"] >= 1
    assert told["data"]["loadav"].startswith("Status beacon is incorrectly configured: unknown_function")
    assert told["data"]["uptime"] == "Status beacon is incorrectly configured: 'x' is not in it"


# --- camera_stream -----------------------------------------------------------------------------------------------


async def test_a_stream_that_cannot_be_had_is_told_after_its_failures_and_when_it_is_back() -> None:
    camera = PlayedCamera()
    async with played_camera(camera):
        streams = {"door": {"rtsp_port": camera.port, "path": "/stream1", "timeout": 2}}
        beacon = made("camera_stream", [{"streams": streams}, {"failures": 2}])
        assert await beacon.look(around()) == []
    assert await beacon.look(around()) == []
    for _ in range(2):
        [found] = await beacon.look(around())
        assert (found.tag, found.data["alive"]) == ("door", False)
        assert "refused" in found.data["reason"].lower()
    async with played_camera(camera):
        # Another port each time is the test's, not the camera's.
        again = made("camera_stream", [{"streams": {"door": {"rtsp_port": camera.port, "path": "/stream1"}}}])
        assert isinstance(beacon, CameraStream)
        assert isinstance(again, CameraStream)
        beacon._streams = again._streams
        [back] = await beacon.look(around())
        assert back.data == {"stream": "door", "address": "127.0.0.1", "alive": True}
        assert await beacon.look(around()) == []


async def test_a_camera_that_wants_a_login_is_told_and_its_password_is_not() -> None:
    async with played_camera(PlayedCamera(login="MD5")) as camera:
        stream = {"rtsp_port": camera.port, "path": "/stream1", "username": "viewer", "password": "wrong-one"}
        [told] = await looked("camera_stream", [{"streams": {"door": stream}}, {"failures": 1}])
        assert told["reason"] == "the login was refused"
        assert "wrong-one" not in str(told)


async def test_a_page_over_http_stands_for_a_camera_without_rtsp() -> None:
    async with played_camera(PlayedCamera()) as camera:
        stream = {"rtsp_port": 0, "http_port": camera.port}
        assert await looked("camera_stream", [{"streams": {"door": stream}}, {"failures": 1}]) == []
