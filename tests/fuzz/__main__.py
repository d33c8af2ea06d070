"""``make fuzz``: every target for its budget, or those that are named; exit status 1 when something broke one.

    .venv/bin/python -m tests.fuzz [--times N] [TARGET…]

What broke a target is kept in tests/fuzz/finds, from where every run of the tests reads it again.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz import budget
from tests.fuzz.files import FINDS

FIGURE = re.compile(r"^stat::(\w+):\s+(\d+)$", re.MULTILINE)
START_SECONDS = 60
PROGRESS = re.compile(r"#\d|0x|stat::|INFO:|WARNING: Failed to find function")
LOG_LINES = 40
LINE_CHARACTERS = 400


@dataclass(frozen=True)
class Outcome:
    """How a target fared; ``log`` is what its process said."""

    status: int
    seconds: float
    log: str
    found: list[Path]

    def figure(self, name: str) -> int:
        """A figure of libFuzzer's; 0 when it did not get so far."""
        return int(dict(FIGURE.findall(self.log)).get(name, 0))

    def told(self) -> list[str]:
        """What its process said in the end, without the progress and the input in full."""
        lines = [line for line in self.log.splitlines() if not PROGRESS.match(line)]
        return [line[:LINE_CHARACTERS] for line in lines[-LOG_LINES:]]


def fuzzed(target: str, runs: int, seconds: int) -> Outcome:
    """Run one target."""
    finds, begun = FINDS / target, time.monotonic()
    before = set(finds.glob("*"))
    with tempfile.TemporaryDirectory(prefix="fuzz-") as work:
        command = [sys.executable, "-m", "tests.fuzz.fuzzer", target, work, str(runs), str(seconds)]
        finished = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=seconds + START_SECONDS,
            check=False,
        )
    found = sorted(set(finds.glob("*")) - before)
    for folder in (finds, FINDS):
        # Folders in which nothing was kept.
        with contextlib.suppress(OSError):
            folder.rmdir()
    return Outcome(finished.returncode, time.monotonic() - begun, finished.stdout, found)


def main(arguments: Sequence[str]) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz every reader of others' bytes.")
    parser.add_argument("--times", type=int, default=1, help="how often the budget (tests/fuzz/budget.py)")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(budget.RUNS))
    told = parser.parse_args(arguments)
    unknown = sorted(set(told.targets) - set(budget.RUNS))
    if unknown:
        parser.error(f"no such target: {', '.join(unknown)}")
    if find_spec("atheris") is None:
        print("fuzz: atheris is not installed\n  try: make fuzz", file=sys.stderr)
        return 1
    broken = []
    for target in told.targets or budget.RUNS:
        runs = budget.RUNS[target] * told.times
        outcome = fuzzed(target, runs, budget.TARGET_SECONDS * told.times)
        inputs = outcome.figure("number_of_executed_units")
        word = "BROKEN" if outcome.status else "ok" if inputs >= runs else f"ok, but {runs:,} were meant"
        print(
            f"{target:<14} {inputs:>10,} inputs {inputs / outcome.seconds:>8,.0f} a second"
            f" {outcome.figure('new_units_added'):>6,} new ways   {word}",
            flush=True,
        )
        if outcome.status:
            broken.append(target)
            print("\n".join(outcome.told()), file=sys.stderr)
            for path in outcome.found:
                print(f"  the input is in {path.relative_to(Path.cwd())}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
