"""``bench ssh``: a command on many devices without an agent, beside bare asyncssh and beside salt-ssh and pyinfra.

Ours is a whole gateway: the job is taken by its API, signed, verified in each device's stead, written down before it
starts, run, kept, collected, and committed. The reference opens connections and runs the command. Each is one process;
the devices are others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from device_agent.errors import EXIT_OK, StationFailed
from device_agent.swarm import allow_open_files
from gateway.bench import ssh_peers
from gateway.bench.figures import Found, Measured, Parts, Used, medians, middle, record, spread
from gateway.bench.repeats import repeated, stop_when_told
from gateway.bench.ssh_doors import BENCH, Doors, doors
from gateway.bench.ssh_product import ANEW, KEPT, Product, Ran, Site
from gateway.bench.trust_process import Side
from gateway.cli.output import Output, standard_output
from gateway.rehearsal import Rehearsal

COMMAND: Final = "echo here"
EXPECTED: Final = "here"
KILOBYTE: Final = 1000
DEFAULT_PEERS: Final = Path(".cache/bench-peers")

MEANING: Final = {
    "connect": "connecting to each device and a command on it",
    "command": "a command on each kept connection",
    "memory": "an idle connected device",
}


class Bench:
    """Everything that runs."""

    def __init__(self, stack: ExitStack, devices: int, *, sshd: bool, say: Callable[[str], None]) -> None:
        self._say = say
        self._devices = devices
        self._rehearsal = stack.enter_context(Rehearsal())
        self._doors: Doors = doors(stack, self._rehearsal, devices, sshd=sshd, say=say)
        script = str(Path(__file__).with_name("ssh_reference.py"))
        self._reference = stack.enter_context(Side("reference", ["-I", script], bench=BENCH))
        site = Site(
            self._doors.places,
            self._doors.user,
            self._doors.client_key.read_text(encoding="ascii"),
            self._doors.fingerprint,
            COMMAND,
            EXPECTED,
        )
        self._product = Product(self._rehearsal, site, say)
        self._memory: Found | None = None

    def start(self) -> None:
        """Start everything; what an idle device takes is known after that."""
        ours = self._product.start()
        self._say("connecting the reference")
        self._reference.ask(
            do="open",
            places=self._doors.places,
            user=self._doors.user,
            key=str(self._doors.client_key),
            host_key=self._doors.shown_key,
        )
        before = self._reference.rss_bytes
        self._ask_reference()
        reference = (self._reference.rss_bytes - before) / self._devices
        self._memory = Found(Measured(self._devices, ours, reference, {}))
        # Everything once before it counts.
        self._product.run(KEPT)
        self._ask_reference()

    def repeat(self, tools: Mapping[str, ssh_peers.Tool]) -> Parts:
        """Every part once. Raises ``StationFailed`` when any answer is missing."""
        assert self._memory is not None
        self._say("a command on kept connections")
        command = self._part(self._product.run(KEPT), *self._ask_reference())
        self._say("connecting and a command")
        self._reference.ask(do="close")
        connect = self._part(self._product.run(ANEW), *self._ask_reference())
        if tools:
            self._say(f"{', '.join(tools)}: connecting and a command")
            peers = ssh_peers.measure(tools, self._rehearsal.folder, self._doors, COMMAND, EXPECTED)
            connect = replace(connect, peers=peers)
        return {"connect": connect, "command": command, "memory": self._memory}

    def _ask_reference(self) -> tuple[Ran, int]:
        before = self._reference.usage
        answer = self._reference.ask(do="run", command=COMMAND, expected=f"{EXPECTED}\n")
        used = self._reference.usage.since(before)
        if answer["ok"] != self._devices:
            raise StationFailed(
                "not every device answered the reference, so there is no figure",
                error_id="bench.incomplete",
                found=f"{answer['ok']} right answers",
                allowed=f"{self._devices} right answers",
            )
        return Ran(answer["seconds"], answer["first"], answer["last"], used), answer["ok"]

    def _part(self, ours: Ran, reference: Ran, ok: int) -> Found:
        per_device = 1000 / self._devices
        cpu = (ours.usage.cpu_seconds * per_device, reference.usage.cpu_seconds * per_device)
        more = {
            "ours_per_second": round(self._devices / ours.seconds, 1),
            "reference_per_second": round(self._devices / reference.seconds, 1),
            "ours_cpu_ms_per_device": round(cpu[0], 3),
            "reference_cpu_ms_per_device": round(cpu[1], 3),
            "cpu_ratio": round(cpu[0] / cpu[1], 3),
            "ours_first_seconds": round(ours.first, 4),
            "ours_last_seconds": round(ours.last, 4),
            "reference_first_seconds": round(reference.first, 4),
            "reference_last_seconds": round(reference.last, 4),
        }
        used = {
            "gateway": Used(ours.usage.cpu_seconds, None, ours.usage.peak_rss_bytes),
            "reference": Used(None, reference.usage.cpu_seconds, reference.usage.peak_rss_bytes),
        }
        return Found(Measured(ok, ours.seconds, reference.seconds, used), more)


def main(devices: int, repeat: int, as_json: bool, peers: Path | None, sshd: bool) -> int:
    """Run the benchmark; the exit status. Raises ``StationFailed`` when any answer is missing."""
    output = standard_output()
    allow_open_files(3 * devices)
    stop_when_told()
    tools = ssh_peers.found(peers or DEFAULT_PEERS)
    params = {"devices": devices, "repeat": repeat, "command": COMMAND, "server": "sshd" if sshd else "asyncssh"}

    def lines(found: Parts, **more: Any) -> list[dict[str, Any]]:
        return [fields(part, params, one, **more) for part, one in found.items()]

    try:
        with ExitStack() as stack:
            bench = Bench(stack, devices, sshd=sshd, say=output.doing)
            bench.start()
            repeats = repeated(output, repeat, lambda: bench.repeat(tools), lines if as_json else None)
    finally:
        output.done()
    if as_json:
        for line in lines(medians(repeats), median=True):
            output.json(line)
    else:
        show(output, devices, repeats)
    return EXIT_OK


def fields(part: str, params: Mapping[str, Any], found: Found, **more: Any) -> dict[str, Any]:
    """The JSON object of one part."""
    return {
        **record(BENCH, params, found.measured, **more),
        "part": part,
        "peers": {name: dict(figures) for name, figures in found.peers.items()},
        **found.more,
    }


def show(output: Output, devices: int, repeats: Sequence[Parts]) -> None:
    """The same for people."""
    found = medians(repeats)
    times = "once" if len(repeats) == 1 else f"{len(repeats)} times"
    output.line((f"{COMMAND!r} on {devices:,} devices over SSH, {times}, every answer right", "bold"))
    numbers = ["ours", "reference", "ratio"]
    output.table(
        ["part", *numbers, "what"],
        [(part, *_cells(part, [one[part].measured for one in repeats]), meaning) for part, meaning in MEANING.items()],
        numbers=numbers,
    )
    output.line("")
    rows = []
    for part in ("connect", "command"):
        more = found[part].more
        rows += [
            (
                part,
                who,
                f"{more[f'{name}_per_second']:,.0f}",
                f"{more[f'{name}_cpu_ms_per_device']:.2f}",
                f"{more[f'{name}_first_seconds']:.3f}",
                f"{more[f'{name}_last_seconds']:.3f}",
            )
            for name, who in (("ours", "gateway"), ("reference", "bare asyncssh"))
        ]
    rows += [
        (
            "connect",
            f"{name}, {figures['ok']:,.0f} of {figures['devices']:,.0f}",
            f"{figures['per_second']:,.0f}",
            f"{figures['cpu_ms_per_device']:.2f}",
            "-",
            f"{figures['seconds']:.3f}",
        )
        for name, figures in found["connect"].peers.items()
    ]
    columns = ["devices/s", "cpu ms each", "first s", "last s"]
    output.table(["part", "who", *columns], rows, numbers=columns)
    missing = [name for name in ssh_peers.MOST if name not in found["connect"].peers]
    if missing:
        output.line("")
        output.line(
            f"{' and '.join(missing)} not measured: make bench-peers gets them, and --peers says where they are"
        )


def _cells(part: str, each: Sequence[Measured]) -> tuple[str, str, str]:
    ratio = f"{middle(each).ratio:.2f}"
    if part == "memory":
        return f"{each[0].ours / KILOBYTE:.1f} kB", f"{each[0].reference / KILOBYTE:.1f} kB", ratio
    return spread([one.ours for one in each]), spread([one.reference for one in each]), ratio
