"""``bench spool``: how fast events are accepted and how fast a full spool drains, beside bare SQLite and bare ZeroMQ.

One repeat fills a spool on both sides and then empties it. While it fills the sides take turns, a tenth of the items
each, so that whatever else the machine does meets both; the reference commits as many rows at a time as ours just did.
What ``status`` costs is looked at after the first tenth and after the last.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from device_agent.errors import EXIT_OK, StationFailed
from gateway.bench.figures import MEBIBYTE, Found, Measured, Parts, Used, medians, middle, record, spread
from gateway.bench.repeats import repeated, stop_when_told
from gateway.bench.trust_process import Side
from gateway.bench.usage import Usage
from gateway.cli.output import Output, standard_output

BENCH = "spool"
PRODUCERS = 64
TOGETHER = 16
"""Events that one of them says at once: a station keeps together what came while the last commit ran."""

TURNS = 10
ANSWER_SECONDS = 120.0
SLOWEST_PER_SECOND = 1000
"""A side that does less than that is given up."""

MEANING = {
    "accept": "events durably accepted: bus, spool, ledger and one group commit for all who wait; reference: sqlite3",
    "drain": "a full spool to the master's disk, confirmed and deleted; reference: ZeroMQ between two sqlite3",
    "status": "the ledger's counters with all items waiting; reference: the same with a tenth of them",
}


class Repeat:
    """Four processes and their folder: both ends of ours, both ends of the reference."""

    def __init__(self, stack: ExitStack, items: int, say: Callable[[str], None]) -> None:
        self._items = items
        self._say = say
        self._folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="outstation-bench-"))
        self._master, self._gateway, self._collector, self._sender = (
            stack.enter_context(side) for side in _sides(items)
        )

    def run(self) -> dict[str, Found]:
        """Every part. Raises ``StationFailed`` when anything is missing."""
        self._say("starting")
        door = self._master.ask(do="open", folder=self._folder)
        sizes = self._gateway.ask(do="open", folder=self._folder, **door)
        above = {name: sizes[name] for name in ("tag", "data")}
        door = self._collector.ask(do="open", folder=self._folder, **above)
        self._sender.ask(do="open", folder=self._folder, **door, **sizes)
        accept, few = self._fill()
        many = self._gateway.ask(do="status")
        return {
            "accept": accept,
            "drain": self._drain(),
            "status": Found(
                Measured(many["ok"], many["seconds"], few["seconds"], {"gateway": _of(self._gateway.usage, None)}),
                {"items": self._items, "reference_items": few["ok"]},
            ),
        }

    def _fill(self) -> tuple[Found, Mapping[str, Any]]:
        ours = reference = 0.0
        done = commits = 0
        few: Mapping[str, Any] = {}
        before = (self._gateway.usage, self._sender.usage)
        for turn in range(TURNS):
            self._say(f"accepting: {done:,} of {self._items:,} items")
            count = self._items * (turn + 1) // TURNS - done
            taken = self._gateway.ask(do="accept", count=count, producers=PRODUCERS, together=TOGETHER)
            each = max(1, round(count / taken["commits"]))
            also = self._sender.ask(do="accept", count=count, each=each)
            self._need(count, taken["ok"], "accept, outstation")
            self._need(count, also["ok"], "accept, reference")
            ours, reference = ours + taken["seconds"], reference + also["seconds"]
            done, commits = done + count, commits + taken["commits"]
            if not turn:
                few = self._gateway.ask(do="status")
        used = {
            "gateway": _of(self._gateway.usage.since(before[0]), None),
            "reference sender": _of(None, self._sender.usage.since(before[1])),
        }
        more = {**_rates(self._items, ours, reference), "items_per_commit": round(self._items / commits, 1)}
        return Found(Measured(self._items, ours, reference, used), more), few

    def _drain(self) -> Found:
        self._say(f"draining {self._items:,} items")
        sides = (self._gateway, self._master, self._sender, self._collector)
        before = [side.usage for side in sides]
        ours = self._gateway.ask(do="drain")
        self._need(self._items, ours["ok"], "drain, gateway")
        self._need(self._items, self._master.ask(do="count")["ok"], "drain, master")
        self._say(f"draining {self._items:,} items of the reference")
        self._collector.tell(do="collect", count=self._items)
        reference = self._sender.ask(do="drain")
        self._need(self._items, reference["ok"], "drain, reference sender")
        self._need(self._items, self._collector.answer()["ok"], "drain, reference collector")
        since = [side.usage.since(earlier) for side, earlier in zip(sides, before, strict=True)]
        used = {
            "gateway": _of(since[0], None),
            "master": _of(since[1], None),
            "reference sender": _of(None, since[2]),
            "reference collector": _of(None, since[3]),
        }
        more = {
            **_rates(self._items, ours["seconds"], reference["seconds"]),
            "slowest_tenth": round(max(ours["tenths"]) / median(ours["tenths"]), 3),
            "file_bytes_before": ours["bytes_before"],
            "file_bytes_after": ours["bytes_after"],
        }
        return Found(Measured(self._items, ours["seconds"], reference["seconds"], used), more)

    @staticmethod
    def _need(count: int, found: int, where: str) -> None:
        if found != count:
            raise StationFailed(
                "not every item is where it should be, so there is no figure",
                error_id="bench.incomplete",
                where=where,
                found=f"{found} items",
                allowed=f"{count} items",
            )


def main(items: int, repeat: int, as_json: bool) -> int:
    """Run the benchmark; the exit status. Raises ``StationFailed`` when anything is missing."""
    output = standard_output()
    stop_when_told()
    params = {"items": items, "repeat": repeat, "producers": PRODUCERS, "together": TOGETHER}

    def lines(found: Parts, **more: Any) -> list[dict[str, Any]]:
        return [fields(part, params, one, **more) for part, one in found.items()]

    def once() -> Parts:
        with ExitStack() as stack:
            return Repeat(stack, items, output.doing).run()

    try:
        repeats = repeated(output, repeat, once, lines if as_json else None)
    finally:
        output.done()
    if as_json:
        for line in lines(medians(repeats), median=True):
            output.json(line)
    else:
        show(output, items, repeats)
    return EXIT_OK


def fields(part: str, params: Mapping[str, Any], found: Found, **more: Any) -> dict[str, Any]:
    """The JSON object of one part."""
    return {
        **record(BENCH, params, found.measured, **more),
        "part": part,
        "ours": round(found.measured.ours, 6),
        "reference": round(found.measured.reference, 6),
        **found.more,
    }


def show(output: Output, items: int, repeats: Sequence[Parts]) -> None:
    """The same for people."""
    found = medians(repeats)
    times = "once" if len(repeats) == 1 else f"{len(repeats)} times"
    output.line((f"{items:,} items, {times}, every one accepted, delivered and deleted", "bold"))
    numbers = ["ours", "reference", "ratio"]
    output.table(
        ["part", *numbers, "what"],
        [(part, *_cells(part, [one[part].measured for one in repeats]), meaning) for part, meaning in MEANING.items()],
        numbers=numbers,
    )
    more = found["drain"].more
    output.line("")
    output.facts(
        [
            ("accepted", f"{found['accept'].more['ours_per_second']:,.0f} items/s"),
            ("drained", f"{more['ours_per_second']:,.0f} items/s, slowest tenth {more['slowest_tenth']:.2f} × median"),
            (
                "file",
                "{:,.1f} MiB full, {:,.1f} MiB after".format(
                    *(more[f"file_bytes_{when}"] / MEBIBYTE for when in ("before", "after"))
                ),
            ),
        ]
    )
    output.line("")
    output.table(
        ["part", "process", "cpu s", "peak MiB"],
        [
            (part, name, f"{used.fields()['cpu_seconds']:.3f}", f"{used.peak_rss_bytes / MEBIBYTE:.1f}")
            for part in ("accept", "drain")
            for name, used in found[part].measured.processes.items()
        ],
        numbers=["cpu s", "peak MiB"],
    )


def _cells(part: str, each: Sequence[Measured]) -> tuple[str, str, str]:
    ratio = f"{middle(each).ratio:.2f}"
    if part == "status":
        ours, reference = (median(values) for values in ([one.ours for one in each], [one.reference for one in each]))
        return f"{ours * 1000:.3f} ms", f"{reference * 1000:.3f} ms", ratio
    return spread([one.ours for one in each]), spread([one.reference for one in each]), ratio


def _rates(items: int, ours: float, reference: float) -> dict[str, float]:
    return {"ours_per_second": round(items / ours), "reference_per_second": round(items / reference)}


def _of(ours: Usage | None, reference: Usage | None) -> Used:
    used = ours or reference
    assert used is not None
    return Used(
        ours.cpu_seconds if ours is not None else None,
        reference.cpu_seconds if reference is not None else None,
        used.peak_rss_bytes,
    )


def _sides(items: int) -> list[Side]:
    seconds = ANSWER_SECONDS + items / SLOWEST_PER_SECOND
    # -I: an isolated interpreter sees neither the folder it was started in nor the user's packages.
    script = str(Path(__file__).with_name("spool_reference.py"))
    commands = {
        "master": ["-m", "gateway.bench.spool_product", "master"],
        "gateway": ["-m", "gateway.bench.spool_product", "gateway"],
        "reference collector": ["-I", script, "collector"],
        "reference sender": ["-I", script, "sender"],
    }
    return [Side(name, command, bench=BENCH, answer_seconds=seconds) for name, command in commands.items()]
