"""``bench reactor``: from an event to its deed, beside a stock Salt master with the same rules and the same events.

Ours is a gateway with its broker and one agent, the reference a Salt master with one minion, each with its defaults. A
runner's deed is the event that it fires, a job's its return on the station's event bus. With ours every event,
reaction, job and return is on the disk by then; Salt keeps them in memory. One side works while the other one waits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

from device_agent.errors import EXIT_OK, StationFailed
from device_agent.protocol import limits
from gateway.bench import reactor_measure, reactor_rules
from gateway.bench.figures import Found, Measured, Parts, Used, medians, middle, record, spread
from gateway.bench.group_usage import group_usage
from gateway.bench.reactor_product import Product, StationLine
from gateway.bench.reactor_stock import READY_SECONDS, Stock, installed, version
from gateway.bench.repeats import repeated, stop_when_told
from gateway.bench.usage import Usage
from gateway.cli.output import Output, standard_output
from gateway.rehearsal import Rehearsal

BENCH: Final = "reactor"
DEFAULT_PEERS: Final = Path(".cache/bench-peers")
BURST_SECONDS: Final = 1200.0
FIRST: Final = 3
"""Events before those that count, so that what is loaded once is loaded."""

MEANING: Final = {
    "runner": "reactions of a runner, all events at once",
    "runner_alone": "a reaction of a runner, one event at a time",
    "local": "reactions that are a job on one device, all events at once",
    "local_alone": "a reaction that is a job on one device, one event at a time",
}

Asked = Mapping[str, Any]


class Bench:
    """Both sides, running."""

    def __init__(self, stack: ExitStack, python: Path, counts: Mapping[str, int], say: Callable[[str], None]) -> None:
        self._say = say
        self._counts = counts
        self._rehearsal = stack.enter_context(Rehearsal())
        rules = reactor_rules.write(self._rehearsal.folder / "rules")
        self._say("starting a gateway with one device")
        self._product = Product(self._rehearsal, rules)
        self._line: StationLine = stack.enter_context(closing(self._product.start()))
        told = reactor_measure.ready(self._line, READY_SECONDS)
        if not told["ok"]:
            raise StationFailed("the gateway does not react", error_id="bench.reactor", found=str(told["found"]))
        self._say("starting stock Salt with one minion")
        self._stock = Stock(self._rehearsal, python, rules)
        stack.callback(self._stock.stop)
        self._stock.start(stack)
        self._runs = 0

    def repeat(self) -> Parts:
        """Every part once. Raises ``StationFailed`` when any deed is missing."""
        return {part: self._part(part) for part in MEANING}

    def _part(self, part: str) -> Found:
        kind, _, alone = part.partition("_")
        count = self._counts["alone"] if alone else self._counts[kind]
        self._say(f"{part}: ours, then stock Salt")
        ours, our_usage = self._ran(self._ours, self._product.groups, kind, bool(alone), count)
        theirs, their_usage = self._ran(self._theirs, self._stock.groups, kind, bool(alone), count)
        for side, told in (("the gateway", ours), ("stock Salt", theirs)):
            if told["ok"] != count:
                raise StationFailed(
                    "not every event had its deed, so there is no figure",
                    error_id="bench.incomplete",
                    where=f"{part}, {side}",
                    found=f"{told['ok']} deeds",
                    allowed=f"{count} deeds",
                )
        middles = [quantile(told["took"], 0.5) if alone else float(told["seconds"]) for told in (ours, theirs)]
        used = {
            "gateway and agent": Used(our_usage.cpu_seconds, None, our_usage.peak_rss_bytes),
            "salt-master and salt-minion": Used(None, their_usage.cpu_seconds, their_usage.peak_rss_bytes),
        }
        more = {**_figures("ours", ours, our_usage), **_figures("reference", theirs, their_usage)}
        return Found(Measured(count, middles[0], middles[1], used), more)

    def _ran(
        self, side: Callable[..., Asked], groups: Sequence[int], kind: str, alone: bool, count: int
    ) -> tuple[Asked, Usage]:
        self._runs += 1
        side(do="alone", kind=kind, run=f"first-{self._runs}", count=FIRST)
        before = group_usage(groups)
        if alone:
            told = side(do="alone", kind=kind, run=f"run-{self._runs}", count=count)
        else:
            batch = limits.EVENTS_AT_ONCE
            given = {"count": count, "at_once": batch, "seconds": BURST_SECONDS}
            told = side(do="burst", kind=kind, run=f"run-{self._runs}", **given)
        return told, group_usage(groups).since(before)

    def _ours(self, do: str, **asked: Any) -> Asked:
        told: dict[str, Any] = getattr(reactor_measure, do)(self._line, **asked)
        return told

    def _theirs(self, do: str, **asked: Any) -> Asked:
        return self._stock.side.ask(do=do, **asked)


def main(runners: int, jobs: int, alone: int, repeat: int, as_json: bool, peers: Path | None) -> int:
    """Run the benchmark; the exit status. Raises ``StationFailed`` when any deed is missing."""
    output = standard_output()
    stop_when_told()
    output.doing("looking for stock Salt")
    python = installed(peers or DEFAULT_PEERS)
    counts = {"runner": runners, "local": jobs, "alone": alone}
    params = {**counts, "repeat": repeat, "salt": version(python)}

    def lines(found: Parts, **more: Any) -> list[dict[str, Any]]:
        return [fields(part, params, one, **more) for part, one in found.items()]

    try:
        with ExitStack() as stack:
            bench = Bench(stack, python, counts, output.doing)
            repeats = repeated(output, repeat, bench.repeat, lines if as_json else None)
    finally:
        output.done()
    if as_json:
        for line in lines(medians(repeats), median=True):
            output.json(line)
    else:
        show(output, params, repeats)
    return EXIT_OK


def fields(part: str, params: Mapping[str, Any], found: Found, **more: Any) -> dict[str, Any]:
    """The JSON object of one part."""
    return {**record(BENCH, params, found.measured, **more), "part": part, **found.more}


def show(output: Output, params: Mapping[str, Any], repeats: Sequence[Parts]) -> None:
    """The same for people."""
    found = medians(repeats)
    times = "once" if len(repeats) == 1 else f"{len(repeats)} times"
    output.line((f"reactions beside Salt {params['salt']}, {times}, every deed done", "bold"))
    numbers = ["ours", "salt", "ratio"]
    output.table(
        ["part", "events", *numbers, "what"],
        [
            (part, f"{found[part].measured.ok:,}", *_cells([one[part].measured for one in repeats]), meaning)
            for part, meaning in MEANING.items()
        ],
        numbers=["events", *numbers],
    )
    output.line("")
    columns = ["reactions/s", "p50 ms", "p99 ms", "cpu ms each"]
    rows = [
        (part, who, *(f"{found[part].more[f'{side}_{name}']:,.1f}" for name in ("per_second", *_TIMES)))
        for part in MEANING
        for side, who in (("ours", "gateway"), ("reference", "stock Salt"))
    ]
    output.table(["part", "who", *columns], rows, numbers=columns)


_TIMES: Final = ("p50_ms", "p99_ms", "cpu_ms_per_reaction")


def _cells(each: Sequence[Measured]) -> tuple[str, str, str]:
    return spread([one.ours for one in each]), spread([one.reference for one in each]), f"{middle(each).ratio:.3f}"


def _figures(side: str, told: Asked, used: Usage) -> dict[str, float]:
    return {
        f"{side}_per_second": round(told["ok"] / told["seconds"], 1),
        f"{side}_p50_ms": round(1000 * quantile(told["took"], 0.5), 2),
        f"{side}_p99_ms": round(1000 * quantile(told["took"], 0.99), 2),
        f"{side}_cpu_ms_per_reaction": round(1000 * used.cpu_seconds / told["ok"], 2),
    }


def quantile(took: Sequence[float], share: float) -> float:
    """The smallest of these that so large a share of them does not exceed."""
    ordered = sorted(took)
    return ordered[max(0, math.ceil(round(len(ordered) * share, 6)) - 1)]
