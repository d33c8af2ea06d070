"""tests/peers/machines.py: what the tests of the appliance rely on."""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.peers import machine_groups
from tests.peers.machine_room import REPOSITORY
from tests.peers.machine_undertaker import DISKS, GROUP
from tests.peers.machines import Machine, MachineFailed, TestBed
from tests.peers.processes import processes
from tests.peers.waiting import until

LEFT = """
import asyncio, sys
from pathlib import Path
from tests.peers.machines import TestBed

async def main() -> None:
    async with TestBed(Path(sys.argv[1])) as bed:
        await bed.machine("one")
        await bed.machine("two")
        print(bed.room.group, flush=True)
        await asyncio.get_running_loop().create_future()

asyncio.run(main())
"""


def left_of(folder: Path, group: str) -> list[str]:
    """What there still is of a bed: processes, mounts, control groups, disks."""
    here = str(folder)
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if here in line]
    groups = [str(place) for place in machine_groups.places(group) if place.exists()]
    return [*processes(here), *mounts, *groups, *map(str, folder.glob(DISKS))]


@pytest.mark.short
async def test_a_machine_boots_runs_commands_and_keeps_its_disk(bed: TestBed) -> None:
    machine = await bed.machine("gateway")
    assert await machine.said("hostname") == "gateway"
    assert await machine.said("systemctl", "is-system-running") == "running"
    fed = await machine.run("sh", "-c", "cat; exit 3", stdin=b"fed", check=False)
    assert (fed.returncode, fed.stdout) == (3, b"fed")
    with pytest.raises(MachineFailed, match="gateway: false ended with 1"):
        await machine.run("false")
    await machine.write("/srv/deep/file", "kept", 0o640)
    assert await machine.said("stat", "-c", "%a %U", "/srv/deep/file") == "640 root"
    await machine.reboot()
    assert await machine.read("/srv/deep/file") == b"kept"
    await machine.kill()
    assert not machine.runs
    await machine.start()
    assert await machine.read("/srv/deep/file") == b"kept"
    assert len({entry["_BOOT_ID"] for entry in await machine.journal("_PID=1")}) == 3
    await machine.power_off()
    machine.wipe()
    await machine.start()
    assert (await machine.run("test", "-e", "/srv/deep/file", check=False)).returncode == 1


async def test_a_command_cannot_touch_the_machine_that_the_tests_run_on(bed: TestBed) -> None:
    machine = await bed.machine("gateway")
    done = await machine.run("date", "--set", "1970-01-01", check=False)
    assert done.returncode == 1
    assert b"Operation not permitted" in done.stderr
    assert await machine.said("ls", "/sys/class/net") == "eth0\nlo"


async def test_a_command_that_does_not_end_is_ended(bed: TestBed) -> None:
    machine = await bed.machine("gateway")
    with pytest.raises(MachineFailed):
        await machine.run("sleep", "4242", seconds=1)
    assert await machine.sh("pgrep -x sleep || echo none") == "none"


async def test_units_and_the_journal_are_read(bed: TestBed) -> None:
    machine = await bed.machine("gateway")
    await machine.write("/etc/systemd/system/toy.service", "[Service]\nExecStart=/bin/sleep infinity\nRestart=always\n")
    await machine.run("systemctl", "daemon-reload")
    await machine.run("systemctl", "start", "toy")
    shown = await machine.show("toy")
    assert (shown["ActiveState"], shown["Restart"]) == ("active", "always")
    assert await machine.property_of("toy", "SubState") == "running"
    entries = await machine.journal("UNIT=toy.service")
    assert any("Started toy.service" in entry["MESSAGE"] for entry in entries)


async def test_machines_reach_each_other_until_they_are_cut(bed: TestBed) -> None:
    one, two, three = [await bed.machine(name) for name in ("one", "two", "three")]

    async def reaches(other: Machine) -> bool:
        script = "import socket, sys; socket.create_connection((sys.argv[1], 7000), 2).close()"
        return (await one.run("python3", "-c", script, other.address, check=False)).returncode == 0

    for machine in (two, three):
        await machine.run("systemd-run", "--unit=ear", "python3", "-m", "http.server", "7000")
        await until(partial(reaches, machine), 60)
    await bed.room.cut("one", "two")
    assert not await reaches(two)
    assert await reaches(three)
    await bed.room.heal("one", "two")
    await until(partial(reaches, two), 60)
    await bed.room.pull("one")
    assert not await reaches(three)
    assert await one.said("cat", "/sys/class/net/eth0/carrier") == "0"
    await bed.room.push("one")
    await until(partial(reaches, three), 60)


async def test_a_bed_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "bed"
    async with TestBed(folder) as bed:
        machine = await bed.machine("gateway")
        group = bed.room.group
        assert left_of(folder, group)
        await machine.power_off()
        await machine.start()
    assert not left_of(folder, group)


@pytest.mark.short
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
async def test_a_test_that_is_killed_leaves_nothing(tmp_path: Path, end: signal.Signals) -> None:
    folder = tmp_path / "bed"
    with subprocess.Popen(  # noqa: ASYNC220 - it returns when the program has started
        [sys.executable, "-c", LEFT, str(folder)], cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as test:
        assert test.stdout is not None
        group = test.stdout.readline().decode().strip()
        assert group.startswith(GROUP)
        assert left_of(folder, group)
        test.send_signal(end)
    await until(lambda: not left_of(folder, group), 60, "the end of all that was there")
