"""The figures of a benchmark: of each repeat and their median, as JSON and for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from gateway.cli.output import Output

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True)
class Used:
    """What one process used: CPU seconds during ours and during the reference (None: it did not run), peak bytes."""

    cpu_seconds: float | None
    reference_cpu_seconds: float | None
    peak_rss_bytes: int

    def fields(self) -> dict[str, float | int]:
        """As JSON. ``cpu_seconds`` is of the measurement the process is there for."""
        own = self.cpu_seconds if self.cpu_seconds is not None else self.reference_cpu_seconds
        fields: dict[str, float | int] = {
            "cpu_seconds": round(own or 0.0, 4),
            "peak_rss_bytes": self.peak_rss_bytes,
        }
        if self.cpu_seconds is not None and self.reference_cpu_seconds is not None:
            fields["reference_cpu_seconds"] = round(self.reference_cpu_seconds, 4)
        return fields


@dataclass(frozen=True)
class Measured:
    """One repeat: how many answered ok in both, and the seconds each took."""

    ok: int
    ours: float
    reference: float
    processes: Mapping[str, Used]

    @property
    def ratio(self) -> float:
        """Ours / reference; smaller is better."""
        return self.ours / self.reference


def middle(repeats: Sequence[Measured]) -> Measured:
    """The median of each figure by itself, and the highest peak of each process."""
    return Measured(
        ok=min(one.ok for one in repeats),
        ours=median(one.ours for one in repeats),
        reference=median(one.reference for one in repeats),
        processes={
            name: Used(
                _median_of([one.processes[name].cpu_seconds for one in repeats]),
                _median_of([one.processes[name].reference_cpu_seconds for one in repeats]),
                max(one.processes[name].peak_rss_bytes for one in repeats),
            )
            for name in repeats[0].processes
        },
    )


@dataclass(frozen=True)
class Found:
    """One part of one repeat, and what else is said of it."""

    measured: Measured
    more: dict[str, float] = field(default_factory=dict)
    peers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The figures of others that were given the same to do."""


Parts = Mapping[str, Found]


def medians(repeats: Sequence[Parts]) -> dict[str, Found]:
    """The median of each part, the worst part last."""
    found = {}
    for part in repeats[0]:
        each = [one[part] for one in repeats]
        found[part] = Found(
            middle([one.measured for one in each]),
            _medians_of([one.more for one in each]),
            {name: _medians_of([one.peers[name] for one in each]) for name in each[0].peers},
        )
    return dict(sorted(found.items(), key=lambda entry: entry[1].measured.ratio))


def record(bench: str, params: Mapping[str, Any], measured: Measured, **more: Any) -> dict[str, Any]:
    """The JSON object that every benchmark prints."""
    return {
        "bench": bench,
        "part": bench,
        "params": dict(params),
        **more,
        "ok": measured.ok,
        "ours": round(measured.ours, 4),
        "reference": round(measured.reference, 4),
        "ratio": round(measured.ratio, 3),
        "peers": {},
        "processes": {name: used.fields() for name, used in measured.processes.items()},
    }


def show(output: Output, title: str, meaning: Mapping[str, str], repeats: Sequence[Measured]) -> None:
    """The same for people. ``meaning`` says what ``ours`` and ``reference`` measure."""
    total = middle(repeats)
    output.line((title, "bold"))
    output.facts(
        [
            ("ours", f"{spread([one.ours for one in repeats])}   {meaning['ours']}"),
            ("reference", f"{spread([one.reference for one in repeats])}   {meaning['reference']}"),
            ("ratio", f"{total.ratio:.2f}   ours / reference, smaller is better"),
        ]
    )
    output.line("")
    output.table(
        ["process", "cpu s", "cpu s in reference", "peak MiB"],
        [
            (
                name,
                _cell(used.cpu_seconds),
                _cell(used.reference_cpu_seconds),
                f"{used.peak_rss_bytes / MEBIBYTE:.1f}",
            )
            for name, used in total.processes.items()
        ],
        numbers=["cpu s", "cpu s in reference", "peak MiB"],
    )


def spread(seconds: Sequence[float]) -> str:
    """Seconds as ``median (lowest–highest)``; one alone is just itself."""
    if len(seconds) == 1:
        return f"{seconds[0]:.3f} s"
    return f"{median(seconds):.3f} s ({min(seconds):.3f}–{max(seconds):.3f})"


def _medians_of(repeats: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: median(one[name] for one in repeats) for name in repeats[0]}


def _median_of(seconds: Sequence[float | None]) -> float | None:
    known = [one for one in seconds if one is not None]
    return median(known) if known else None


def _cell(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.3f}"
