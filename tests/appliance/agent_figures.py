"""What an agent takes of a small device, beside a stock Salt minion on the same kind of machine in the same run.

    python -m tests.appliance.agent_figures [--repeat K] [--json]

Each is started by systemd on a Debian 12 that has Python and nothing else; its station is on another machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tests.peers import stock_minion
from tests.peers.agent_machines import AGENT, NAME, make_pair
from tests.peers.appliance import packages
from tests.peers.machine_roots import CAMERA, Recipe
from tests.peers.machines import Machine, TestBed
from tests.peers.stock_minion import MINION
from tests.peers.waiting import until

SECONDS = 600.0
WELCOMED = "welcomed device="
STEADY_SHARE = 0.01
LOOKS = 5
"""At rest is who takes as much memory as at this many looks before."""

PSS = """for process in $(cat "/sys/fs/cgroup/$(systemctl show --property ControlGroup --value "$1")/cgroup.procs"); do
    cat "/proc/$process/smaps_rollup" 2>/dev/null || true
done"""
"""A process may end between the list and the look at it."""

SALT_MASTER = Recipe((*CAMERA.packages, "ca-certificates"))


@dataclass
class Figures:
    """What was measured of one of them: bytes installed; by repeat, bytes of memory at rest and seconds until ready."""

    size: int
    memory: list[int] = field(default_factory=list)
    start: list[float] = field(default_factory=list)
    processes: int = 0


async def memory(machine: Machine, unit: str) -> tuple[int, int]:
    """The proportional set size of all processes of a unit, in bytes, and how many they are."""
    text = await machine.sh(PSS, unit)
    rows = [line.split() for line in text.splitlines() if line.startswith("Pss:")]
    return sum(int(row[1]) for row in rows) * 1024, len(rows)


async def at_rest(machine: Machine, unit: str) -> tuple[int, int]:
    """The same when it no longer changes."""
    looks: list[tuple[int, int]] = []

    async def steady() -> bool:
        looks.append(await memory(machine, unit))
        sizes = [size for size, _ in looks[-LOOKS:]]
        return len(sizes) == LOOKS and max(sizes) - min(sizes) <= STEADY_SHARE * max(sizes)

    await until(steady, SECONDS, f"{unit} at rest")
    return looks[-1]


async def ready(machine: Machine, unit: str, sentence: str) -> float:
    """Start a unit anew; seconds from the start of its process until it has said that it takes orders."""
    await machine.run("systemctl", "restart", unit, seconds=SECONDS)
    begun = int(await machine.property_of(unit, "ExecMainStartTimestampMonotonic")) / 1e6
    found: list[float] = []

    async def said() -> bool:
        entries = await machine.journal("--unit", unit, "--boot")
        times = [int(each["__MONOTONIC_TIMESTAMP"]) / 1e6 for each in entries if sentence in str(each["MESSAGE"])]
        found.extend(time for time in times if time >= begun)
        return bool(found)

    await until(said, SECONDS, f"{unit} says {sentence!r}")
    return found[0] - begun


async def repeated(machine: Machine, unit: str, sentence: str, figures: Figures) -> None:
    """One more start and one more rest."""
    figures.start.append(await ready(machine, unit, sentence))
    size, figures.processes = await at_rest(machine, unit)
    figures.memory.append(size)


async def make_stock(bed: TestBed, archive: bytes) -> tuple[Machine, Machine, Figures]:
    """A stock master and its minion, which answers."""
    central, minion = await bed.machine("central", SALT_MASTER), await bed.machine("minion", CAMERA)
    await stock_minion.unpack(central, archive, "master", {"interface": central.address, "auto_accept": True})
    settings: dict[str, object] = {"master": central.address, "id": NAME}
    stock = Figures(await stock_minion.unpack(minion, archive, "minion", settings))
    await stock_minion.answers(central)
    return central, minion, stock


async def measure(repeat: int) -> dict[str, Figures]:
    """Both, in turn, as often as said."""
    archive = stock_minion.packed()
    with tempfile.TemporaryDirectory() as folder:
        async with TestBed(Path(folder) / "bed") as bed:
            async with asyncio.TaskGroup() as group:
                paired = group.create_task(make_pair(bed, packages("outstation-agent")[1]))
                salted = group.create_task(make_stock(bed, archive))
            pair, (central, minion, stock) = paired.result(), salted.result()
            camera = pair.camera
            await camera.write("/etc/outstation/agent.yaml", f"serial: {NAME}\nlog_level: debug\n")
            installed = await camera.said("dpkg-query", "--show", "--showformat=${Installed-Size}", "outstation-agent")
            ours = Figures(int(installed) * 1024)
            sides: list[Callable[[], Awaitable[None]]] = [
                lambda: repeated(camera, AGENT, WELCOMED, ours),
                lambda: repeated(minion, MINION, stock_minion.READY, stock),
            ]
            for _ in range(repeat):
                for side in sides:
                    await side()
            assert await pair.call("test.ping") is True
            await stock_minion.answers(central)
            return {"ours": ours, "reference": stock}


def told(found: dict[str, Figures], as_json: bool) -> str:
    """The medians, ours beside the reference."""
    rows = []
    for part, unit, of in (
        ("size", "MiB", lambda one: [one.size / 2**20]),
        ("memory", "MiB", lambda one: [size / 2**20 for size in one.memory]),
        ("start", "s", lambda one: one.start),
    ):
        ours, reference = of(found["ours"]), of(found["reference"])
        row = {"part": part, "unit": unit, "ratio": round(median(ours) / median(reference), 3)}
        for name, values in (("ours", ours), ("reference", reference)):
            row |= {name: round(median(values), 2), f"{name}_all": [round(value, 2) for value in values]}
        rows.append(row)
    if as_json:
        return "\n".join(map(json.dumps, rows))
    lines = [f"{'':<8}{'ours':>10}{'salt-minion':>14}{'ratio':>8}"]
    lines += [
        f"{row['part']:<8}{row['ours']:>10}{row['reference']:>14}{row['ratio']:>8}  {row['unit']}  "
        f"{row['ours_all']} {row['reference_all']}"
        for row in rows
    ]
    processes = {name: one.processes for name, one in found.items()}
    return "\n".join([*lines, f"processes: {processes}"])


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=3, metavar="K")
    parser.add_argument("--json", action="store_true")
    typed = parser.parse_args()
    sys.stdout.write(told(asyncio.run(measure(typed.repeat)), typed.json) + "\n")


if __name__ == "__main__":
    main()
