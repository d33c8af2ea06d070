"""``bench trust``: what proving and sealing costs, beside the bare cryptography that it cannot do without.

Both sides are processes of their own and take turns: while one works the other waits, so that whatever else the machine
does meets both. A turn is one chain for some hundred devices; what one part of a chain makes the next one opens. All
seconds are CPU seconds: nothing here waits for anything, and they hold on a busy machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from device_agent.errors import EXIT_OK, StationFailed
from gateway.bench.figures import MEBIBYTE, Measured, Used, middle, record
from gateway.bench.repeats import repeated, stop_when_told
from gateway.bench.trust_process import OURS, REFERENCE, Side
from gateway.cli.output import Output, standard_output

BENCH = "trust"
TURN = 250
WARMING = 20
FRAMES = 10
"""Frames that each device sends: one alone would be too little to time."""

MICROSECONDS = 1_000_000

CHAINS: dict[str, tuple[str, ...]] = {
    "join": ("enroll", "accept"),
    "job_group": ("job_seal_group", "job_open_group"),
    "job_single": ("job_seal_single", "job_open_single"),
    "session": ("session_device", "session_station", "frame_seal", "frame_open"),
    "revocation": ("revocation",),
}
MEANING = {
    "enroll": "a device: its request with a token, and the answer judged",
    "accept": "a station: the request checked, a certificate signed, the answer sealed",
    "job_seal_group": "a master: a job for a whole site",
    "job_open_group": "a device: such a job judged and opened",
    "job_seal_single": "a master: a job for one device",
    "job_open_single": "a device: such a job judged and opened",
    "session_device": "a device: the prekey checked, a session opened, the station's word on it checked",
    "session_station": "a station: the opening checked, its word on it signed",
    "frame_seal": "a device: one return",
    "frame_open": "a station: one return",
    "revocation": "a station: for each device left another group key; once the list and what all are told",
}


class Totals:
    """What one side has taken for each part."""

    def __init__(self) -> None:
        self.ok: dict[str, int] = dict.fromkeys(MEANING, 0)
        self.cpu_seconds: dict[str, float] = dict.fromkeys(MEANING, 0.0)

    def add(self, parts: Mapping[str, Mapping[str, float]]) -> None:
        """Another turn."""
        for part, spent in parts.items():
            self.ok[part] += int(spent["ok"])
            self.cpu_seconds[part] += spent["cpu_seconds"]


class Trust:
    """Both sides, and the turns they take."""

    def __init__(self, ours: Side, reference: Side, devices: int, output: Output) -> None:
        self._ours = ours
        self._reference = reference
        self._devices = devices
        self._output = output

    def start(self) -> None:
        """Warm both up; the reference is told how long our byte strings are."""
        self._output.doing("starting")
        sizes: dict[str, int] = {}
        for chain in CHAINS:
            sizes |= self._ours.ask(chain=chain, count=WARMING, frames=FRAMES, first=True)["sizes"]
        self._reference.ask(sizes=sizes)
        for chain in CHAINS:
            self._reference.ask(chain=chain, count=WARMING, frames=FRAMES, first=True)

    def repeat(self) -> dict[str, Measured]:
        """Each part measured on both sides. Raises ``StationFailed`` when anything was not proven."""
        ours, reference = Totals(), Totals()
        sides = [(self._ours, ours), (self._reference, reference)]
        for chain in CHAINS:
            for begun in range(0, self._devices, TURN):
                self._output.doing(f"{chain}: {begun:,} of {self._devices:,} devices")
                count = min(TURN, self._devices - begun)
                for side, totals in sides:
                    totals.add(side.ask(chain=chain, count=count, frames=FRAMES, first=begun == 0)["parts"])
                # Who goes first changes, as it may meet what the one before has left in the caches.
                sides.reverse()
        return {part: self._measured(part, ours, reference) for part in MEANING}

    def clear(self) -> None:
        """Wipe the line of progress."""
        self._output.done()

    def _measured(self, part: str, ours: Totals, reference: Totals) -> Measured:
        expected = objects(part, self._devices)
        for side, totals in ((self._ours, ours), (self._reference, reference)):
            if totals.ok[part] != expected:
                raise StationFailed(
                    "not everything was proven, so there is no figure",
                    error_id="bench.incomplete",
                    where=f"{part}, {side.name}",
                    found=f"{totals.ok[part]} ok",
                    allowed=f"{expected} ok",
                )
        return Measured(
            ok=expected,
            ours=ours.cpu_seconds[part],
            reference=reference.cpu_seconds[part],
            processes={
                self._ours.name: Used(ours.cpu_seconds[part], None, self._ours.peak_rss_bytes),
                self._reference.name: Used(None, reference.cpu_seconds[part], self._reference.peak_rss_bytes),
            },
        )


def main(devices: int, repeat: int, as_json: bool) -> int:
    """Run the benchmark; the exit status. Raises ``StationFailed`` when anything was not proven."""
    output = standard_output()
    stop_when_told()
    params = {"devices": devices, "repeat": repeat, "frames": FRAMES}

    def lines(found: Mapping[str, Measured], **more: Any) -> list[dict[str, Any]]:
        return [fields(part, params, one, **more) for part, one in found.items()]

    with Side(*OURS) as ours, Side(*REFERENCE) as reference:
        trust = Trust(ours, reference, devices, output)
        try:
            trust.start()
            repeats = repeated(output, repeat, trust.repeat, lines if as_json else None)
        finally:
            trust.clear()
    if as_json:
        for line in lines(dict(medians(repeats)), median=True):
            output.json(line)
    else:
        show(output, devices, repeats)
    return EXIT_OK


def objects(part: str, devices: int) -> int:
    """How many of them are made for so many devices."""
    return devices * (FRAMES if part.startswith("frame_") else 1)


def medians(repeats: Sequence[Mapping[str, Measured]]) -> list[tuple[str, Measured]]:
    """The median of each part, the worst part last."""
    found = [(part, middle([each[part] for each in repeats])) for part in MEANING]
    return sorted(found, key=lambda entry: entry[1].ratio)


def fields(part: str, params: Mapping[str, Any], measured: Measured, **more: Any) -> dict[str, Any]:
    """The JSON object of one part."""
    return {
        **record(BENCH, params, measured, **more),
        "part": part,
        "ours": round(measured.ours, 6),
        "reference": round(measured.reference, 6),
        "ours_microseconds": round(each(measured.ours, measured), 2),
        "reference_microseconds": round(each(measured.reference, measured), 2),
    }


def each(seconds: float, measured: Measured) -> float:
    """Microseconds for one object."""
    return seconds / measured.ok * MICROSECONDS


def show(output: Output, devices: int, repeats: Sequence[Mapping[str, Measured]]) -> None:
    """The same for people: what each part costs, in the order in which a device meets it."""
    found = dict(medians(repeats))
    times = "once" if len(repeats) == 1 else f"{len(repeats)} times"
    output.line((f"CPU microseconds for one device of {devices:,}, {times}, everything proven", "bold"))
    numbers = ["ours", "reference", "ratio"]
    output.table(
        ["part", *numbers, "what"],
        [
            (
                part,
                _spread([each(one[part].ours, one[part]) for one in repeats]),
                _spread([each(one[part].reference, one[part]) for one in repeats]),
                f"{found[part].ratio:.2f}",
                meaning,
            )
            for part, meaning in MEANING.items()
        ],
        numbers=numbers,
    )
    output.line("")
    output.table(
        ["process", "cpu s", "peak MiB"],
        [(name, f"{seconds:.3f}", f"{peak / MEBIBYTE:.1f}") for name, seconds, peak in _used(found)],
        numbers=["cpu s", "peak MiB"],
    )


def _spread(microseconds: Sequence[float]) -> str:
    """As ``median (lowest–highest)``; one alone is just itself."""
    if len(microseconds) == 1:
        return f"{microseconds[0]:.1f}"
    return f"{median(microseconds):.1f} ({min(microseconds):.1f}–{max(microseconds):.1f})"


def _used(found: Mapping[str, Measured]) -> list[tuple[str, float, int]]:
    """For each process its CPU seconds in all parts, and its peak."""
    totals: dict[str, tuple[float, int]] = {}
    for measured in found.values():
        for name, used in measured.processes.items():
            seconds, peak = totals.get(name, (0.0, 0))
            own = used.fields()
            totals[name] = (seconds + own["cpu_seconds"], max(peak, used.peak_rss_bytes))
    return [(name, seconds, peak) for name, (seconds, peak) in totals.items()]
