"""What jobs of one stock Salt master took: the rounds of each contender, their medians, and how they compare. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from statistics import median
from typing import Any

MEBIBYTE = 1024 * 1024
OURS, BARE = "gateway", "bare"


@dataclass(frozen=True)
class Round:
    """One job. Seconds by the clock of the machine, or of processors."""

    answers: int
    """Devices whose answer was on the bus."""
    wall: float
    """From the start of ``salt`` to the last answer on the bus."""
    answering: float
    """From the job on the bus to the last answer there."""
    command: float
    """From the start of ``salt`` to its end."""
    master_cpu: float
    """Of all processes of the master, to the end of ``salt``."""
    own_cpu: float
    """Of who answers, without the devices where they are others."""


@dataclass
class Contender:
    """Somebody who answers for devices."""

    devices: int
    memory: int = 0
    """Bytes (PSS) of all processes of who answers, after the last round."""
    start: float | None = None
    """Seconds until it was ready, where that is told."""
    rounds: list[Round] = field(default_factory=list)

    @property
    def middle(self) -> Round:
        """The median of each figure by itself, and the fewest answers."""
        medians = {each.name: median(getattr(one, each.name) for one in self.rounds) for each in fields(Round)}
        return Round(**medians | {"answers": min(one.answers for one in self.rounds)})

    def each(self, seconds: float) -> float:
        """Milliseconds for each answer."""
        return 1000 * seconds / max(1, self.middle.answers)


def ratios(found: Mapping[str, Contender]) -> dict[str, dict[str, float]]:
    """By contender beside the gateway, how many times as long it takes for each answer, and how much of the master.

    Of whoever took turns with the gateway the median of the ratios of the turns; else the ratio of the medians.
    """
    ours = found[OURS]
    compared: dict[str, dict[str, float]] = {}
    for name, other in found.items():
        if name == OURS:
            continue
        compared[name] = {}
        for figure in ("wall", "answering", "master_cpu"):
            if len(other.rounds) == len(ours.rounds) and name == BARE:
                turns = [_each(b, figure) / _each(a, figure) for a, b in zip(ours.rounds, other.rounds, strict=True)]
                compared[name][figure] = median(turns)
            else:
                compared[name][figure] = _each(other.middle, figure) / _each(ours.middle, figure)
    return compared


def lines(found: Mapping[str, Contender]) -> list[dict[str, Any]]:
    """A JSON object for each contender: its medians, and its rounds."""
    compared = ratios(found)
    made = []
    for name, one in found.items():
        rounds = [{each.name: getattr(turn, each.name) for each in fields(Round)} for turn in one.rounds]
        middle = {each.name: round(getattr(one.middle, each.name), 3) for each in fields(Round)}
        more: dict[str, Any] = {"start": one.start} if one.start is not None else {}
        if name in compared:
            more["times_gateway"] = {figure: round(value, 3) for figure, value in compared[name].items()}
        made.append(
            {"part": name, "devices": one.devices, **middle, "memory_bytes": one.memory, **more, "rounds": rounds}
        )
    return made


def table(found: Mapping[str, Contender]) -> str:
    """The same for people: medians, with the lowest and the highest of the walls."""
    heads = [
        "",
        "devices",
        "answers",
        "wall s",
        "answering s",
        "salt s",
        "ms each",
        "master ms each",
        "own ms each",
        "MiB",
    ]
    rows = [heads]
    for name, one in found.items():
        middle = one.middle
        walls = [turn.wall for turn in one.rounds]
        rows.append(
            [
                name,
                str(one.devices),
                str(middle.answers),
                f"{middle.wall:.2f} ({min(walls):.2f}-{max(walls):.2f})",
                f"{middle.answering:.2f}",
                f"{middle.command:.2f}",
                f"{one.each(middle.wall):.2f}",
                f"{one.each(middle.master_cpu):.2f}",
                f"{one.each(middle.own_cpu):.2f}",
                f"{one.memory / MEBIBYTE:.0f}",
            ]
        )
    widths = [max(len(row[place]) for row in rows) for place in range(len(heads))]
    told = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    for name, compared in ratios(found).items():
        told.append(
            f"{name}, for each answer, times the gateway: wall {compared['wall']:.2f}, "
            f"answering {compared['answering']:.2f}, master's CPU {compared['master_cpu']:.2f}"
        )
    if BARE in found:
        against = {figure: 1 / value for figure, value in ratios(found)[BARE].items()}
        told.append(
            f"gateway / {BARE}: wall {against['wall']:.2f}, answering {against['answering']:.2f}, "
            f"master's CPU {against['master_cpu']:.2f}"
        )
    return "\n".join(told)


def as_json(found: Mapping[str, Contender]) -> str:
    """A line of JSON for each contender."""
    return "\n".join(json.dumps(line) for line in lines(found))


def heard(told: Sequence[str]) -> tuple[float, dict[str, float]]:
    """When the first job was on the bus, and of each device when its first answer was, from lines ``<seconds> <tag>``.

    No job at all is one at 0.
    """
    jid, published = "", 0.0
    answers: dict[str, float] = {}
    for line in told:
        at, _, tag = line.partition(" ")
        match tag.split("/"):
            case ["salt", "job", job, "new"] if not jid:
                jid, published = job, float(at)
            case ["salt", "job", job, "ret", device] if job == jid:
                answers.setdefault(device, float(at))
    return published, answers


def _each(one: Round, figure: str) -> float:
    value: float = getattr(one, figure)
    return value / max(1, one.answers)
