"""What the units say of memory and tasks holds: who takes more is stopped, and nothing else is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.peers.appliance import BROKER, GATEWAY, SECONDS, install, packages
from tests.peers.machines import Machine, TestBed
from tests.peers.waiting import until

AGENT = "outstation-agent.service"
TASKS = {GATEWAY: 1024, BROKER: 64, AGENT: 512}
MEMORY = {GATEWAY: 2 * 2**30, BROKER: 2**30}
"""In bytes. The agent's may have what an upgrade of its system takes: docs/agent.md."""

SMALL = {GATEWAY: "400M", BROKER: "100M", AGENT: "400M"}
"""Room to work in, also beside as many idle processes as there may be, and to be over soon."""

TOO_SMALL = "8M"
MEGABYTES = 500

JOINS = """import os, subprocess, sys, time
unit, *words = sys.argv[1:]
asked = ["systemctl", "show", "--property=MainPID", "--value", unit]
main = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
groups = []
for line in open(f"/proc/{main}/cgroup").read().splitlines():
    _, kind, path = line.split(":", 2)
    if kind in ("memory", "pids"):
        groups.append(f"/sys/fs/cgroup/{kind}{path}")
    elif not kind and os.path.exists(f"/sys/fs/cgroup{path}/pids.max"):
        groups.append(f"/sys/fs/cgroup{path}")

def join():
    for group in groups:
        open(f"{group}/cgroup.procs", "w").write(str(os.getpid()))
"""
"""The beginning of a program that puts a process among those of a unit."""

LIMITS = f"""{JOINS}
found = {{}}
for group in groups:
    for name in ("memory.limit_in_bytes", "memory.max", "pids.max"):
        if os.path.exists(f"{{group}}/{{name}}"):
            found[name.partition(".")[0]] = open(f"{{group}}/{{name}}").read().strip()
print(found.get("memory", "none"), found.get("pids", "none"))
"""
"""The kernel's word for the memory and the tasks of a unit."""

EATS = f"""{JOINS}
taken = "print(len(b'x' * {MEGABYTES} * 2**20))"
print(subprocess.run([sys.executable, "-c", taken], preexec_fn=join, capture_output=True).returncode)
"""
"""One more process of the unit, which takes memory; how it ended."""

FORKS = f"""{JOINS}
join()
begun = []
try:
    while len(begun) < 5000:
        begun.append(subprocess.Popen(["sleep", "100000"]))
    print("as many as it likes")
except BlockingIOError:
    print(len(begun))
finally:
    for each in begun:
        each.kill()
"""
"""One more process of the unit, which starts others until that is refused; how many there were."""


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[TestBed]:
    async with TestBed(tmp_path / "bed", limits=True) as bed:
        yield bed


async def of_unit(machine: Machine, program: str, unit: str) -> str:
    return await machine.said("python3", "-c", program, unit)


async def pids(machine: Machine) -> dict[str, str]:
    """The main process of each unit."""
    return {unit: await machine.property_of(unit, "MainPID") for unit in TASKS}


async def works(machine: Machine, unit: str) -> None:
    words = {GATEWAY: "lisbon: not joined yet", BROKER: "the broker of this site", AGENT: "not joined yet"}

    async def said() -> bool:
        return words[unit] in await machine.property_of(unit, "StatusText")

    await until(said, SECONDS, f"{unit} works")


async def limited(machine: Machine, unit: str, memory: str) -> None:
    """Another limit on a unit's memory, from its next start on."""
    await machine.write(f"/run/systemd/system/{unit}.d/memory.conf", f"[Service]\nMemoryMax={memory}\n")
    await machine.run("systemctl", "daemon-reload")


async def starts_again_and_again(machine: Machine, unit: str) -> None:
    async def twice() -> bool:
        return int(await machine.property_of(unit, "NRestarts")) >= 2

    await until(twice, SECONDS, f"two more starts of {unit}")


async def test_who_takes_more_than_a_unit_may_is_stopped_and_nothing_else_is(bed: TestBed) -> None:
    machine = await bed.machine("gateway")
    await install(machine, packages("outstation-agent")[1])
    await install(machine, packages()[1])
    await machine.sh("echo 'name: lisbon' >>/etc/outstation/gateway.yaml; systemctl reload outstation-gateway")
    for unit in TASKS:
        await works(machine, unit)
    if await of_unit(machine, LIMITS, GATEWAY) == "none none":
        pytest.skip("the kernel of this machine gives those that are booted on it no groups with limits")
    for unit, tasks in TASKS.items():
        memory, most = (await of_unit(machine, LIMITS, unit)).split()
        assert most == str(tasks)
        assert unit not in MEMORY or memory == str(MEMORY[unit])

    # Each process but the first of a unit may be over, and that one works on, as the other units do.
    for unit, memory in SMALL.items():
        await limited(machine, unit, memory)
        await machine.run("systemctl", "restart", unit)
        await works(machine, unit)
    before = await pids(machine)
    for unit, tasks in TASKS.items():
        assert await of_unit(machine, EATS, unit) == "-9"
        assert 0 < int(await of_unit(machine, FORKS, unit)) < tasks
    assert await pids(machine) == before
    await machine.run("outstation", "spool", "status")

    # One that is over itself is started again and again, beside the others, until it has room enough.
    for unit in TASKS:
        others = {name: pid for name, pid in (await pids(machine)).items() if name != unit}
        await limited(machine, unit, TOO_SMALL)
        await machine.run("systemctl", "restart", "--no-block", unit)
        await starts_again_and_again(machine, unit)
        assert others.items() <= (await pids(machine)).items()
        await limited(machine, unit, SMALL[unit])
        await works(machine, unit)
