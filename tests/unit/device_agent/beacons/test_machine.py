"""What the beacons find on this machine, and on folders that stand for one that is worse off."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from device_agent.beacons import service as service_beacon
from device_agent.beacons.diskusage import percent
from tests.peers.beacon_bench import around, looked, made
from tests.peers.clock import HandClock
from tests.peers.small_disk import small_disk


async def test_a_disk_that_is_full_enough_is_told_by_its_place(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", megabytes=4) as disk:
        place = str(disk.folder)
        assert await looked("diskusage", [{place: "50%"}]) == []
        disk.fill()
        assert await looked("diskusage", [{place: "99.9%"}]) == [{"diskusage": 100.0, "mount": place}]
        # A place is meant whole unless it is a regular expression that says otherwise.
        assert await looked("diskusage", [{place[:-1]: 50}]) == []
        assert await looked("diskusage", [{f"{place[:-1]}.*": 50.0}]) == [{"diskusage": 100.0, "mount": place}]
        # Two options about one place are one event.
        assert len(await looked("diskusage", [{place: 10}, {f"^{place}$": 20}])) == 1
        disk.make_room()
        assert await looked("diskusage", [{place: "50%"}]) == []


async def test_a_file_system_that_hangs_is_told_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mounts").write_text("a /dead\\040one nfs rw 0 0\nb / ext4 rw 0 0\nc / tmpfs rw 0 0\n")
    over = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hanging(place: str) -> float | None:
        if place == "/dead one":
            asyncio.run_coroutine_threadsafe(over.wait(), loop).result()
        return percent("/")

    monkeypatch.setattr("device_agent.beacons.diskusage.percent", hanging)
    monkeypatch.setattr("device_agent.beacons.diskusage.PLACE_SECONDS", 1.0)
    beacon = made("diskusage", [{"/": 0}, {"/dead one": 0}])
    for _ in range(2):
        dead, root = [each.data for each in await beacon.look(around(proc=tmp_path))]
        assert dead == {"error": "/dead one does not say how full it is: it hangs", "mount": "/dead one"}
        assert root["mount"] == "/"
    over.set()


async def test_the_load_is_told_when_one_average_is_beside_its_bounds(tmp_path: Path) -> None:
    (tmp_path / "loadavg").write_text("1.50 0.20 0.05 2/345 6789\n")
    averages = {"1m": 1.5, "5m": 0.2, "15m": 0.05}
    bounds: dict[str, list[float]] = {"1m": [0.0, 2.0], "5m": [0.0, 1.5], "15m": [0.0, 1.0]}
    assert await looked("load", [{"averages": bounds}], proc=tmp_path) == []
    assert await looked("load", [{"averages": bounds | {"1m": [0.0, 1.0]}}], proc=tmp_path) == [averages]
    assert await looked("load", [{"averages": bounds | {"15m": [0.1, 1.0]}}], proc=tmp_path) == [averages]
    assert await looked("load", [{"averages": {"1m": [0.0, 1e6]}}]) == []


async def test_memory_and_swap_are_told_from_their_percentage_on(tmp_path: Path) -> None:
    lines = "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 250 kB\nSwapTotal: 200 kB\nSwapFree: 150 kB\n"
    (tmp_path / "meminfo").write_text(lines)
    assert await looked("memusage", [{"percent": "75%"}], proc=tmp_path) == [{"memusage": 75.0}]
    assert await looked("memusage", [{"percent": 75.1}], proc=tmp_path) == []
    assert await looked("swapusage", [{"percent": 25}], proc=tmp_path) == [{"swapusage": 25.0}]
    (tmp_path / "meminfo").write_text(
        "MemTotal: 1000 kB\nMemFree: 10 kB\nBuffers: 20 kB\nCached: 70 kB\nSwapTotal: 0 kB\n"
    )
    assert await looked("memusage", [{"percent": 1}], proc=tmp_path) == [{"memusage": 90.0}]
    assert await looked("swapusage", [{"percent": 0}], proc=tmp_path) == []
    [found] = await looked("memusage", [{"percent": 0}])
    assert 0 < found["memusage"] <= 100


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a name that is longer than the kernel keeps."""
    program = tmp_path / "outstation-watched-process"
    program.symlink_to(os.path.realpath("/bin/sleep"))
    with subprocess.Popen([str(program), "600"]) as running:
        yield running
        running.kill()


async def test_processes_are_told_by_their_whole_name(process: subprocess.Popen[bytes]) -> None:
    name = "outstation-watched-process"
    here = Path("/proc/self/comm").read_text().strip()
    wanted: dict[str, Any] = {name: "running", "no-such-process": "running", here: "stopped"}
    assert await looked("ps", [{"processes": wanted}]) == [{name: "Running"}]
    process.kill()
    process.wait()
    gone = {name: "stopped", "another": "there"}
    assert await looked("ps", [{"processes": gone}]) == [{name: "Stopped"}, {"another": False}]


class Init:
    """Services that run as a test says."""

    def __init__(self) -> None:
        self.up = {"mosquitto": True, "sshd": False}

    async def running(self, name: str) -> bool:
        return self.up.get(name, False)


@pytest.fixture
def init(monkeypatch: pytest.MonkeyPatch) -> Init:
    made = Init()

    async def found(_host: object) -> Init:
        return made

    monkeypatch.setattr(service_beacon, "init_system", found)
    return made


async def test_services_are_told_with_how_they_ended(init: Init, tmp_path: Path) -> None:
    pid = tmp_path / "sshd.pid"
    pid.touch()
    wanted = {"mosquitto": None, "sshd": {"uncleanshutdown": str(pid)}, "cron": {"is_running_state": True}}
    assert await looked("service", [{"services": wanted}]) == [
        {"mosquitto": {"running": True}, "service_name": "mosquitto"},
        {"sshd": {"running": False, "uncleanshutdown": True}, "service_name": "sshd"},
    ]


async def test_a_service_of_which_changes_are_wanted_is_told_when_the_change_has_lasted(init: Init) -> None:
    clock = HandClock()
    wanted = {
        "mosquitto": {"onchangeonly": True, "delay": 30, "emitatstartup": False},
        "sshd": {"onchangeonly": True},
    }
    beacon = made("service", [{"services": wanted}])

    async def told() -> list[str]:
        return [each.tag for each in await beacon.look(around(clock))]

    assert await told() == ["sshd"]
    assert await told() == []
    init.up |= {"mosquitto": False, "sshd": True}
    assert await told() == ["sshd"]
    clock.move(29)
    assert await told() == []
    clock.step_wall(-1e9)
    clock.move(1)
    assert await told() == ["mosquitto"]
    clock.move(100)
    assert await told() == []
