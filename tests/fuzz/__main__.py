"""``make fuzz``: every target for its budget, or those that are named; exit status 1 when something broke one.

    .venv/bin/python -m tests.fuzz [--times N] [TARGET…]

What broke a target is kept in tests/fuzz/finds, from where every run of the tests reads it again.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz import budget
from tests.fuzz.files import FINDS

FIGURE = re.compile(r"^stat::(\w+):\s+(\d+)$", re.MULTILINE)
START_SECONDS = 60
LOG_LINES = 40


@dataclass(frozen=True)
class Outcome:
    """How a target fared; ``log`` is what its process said."""

    status: int
    log: str
    found: list[Path]

    def figure(self, name: str) -> int:
        """A figure of libFuzzer's; 0 when it did not get so far."""
        return int(dict(FIGURE.findall(self.log)).get(name, 0))


def fuzzed(target: str, runs: int, seconds: int) -> Outcome:
    """Run one target."""
    finds = FINDS / target
    before = set(finds.glob("*"))
    with tempfile.TemporaryDirectory(prefix="fuzz-") as work:
        command = [sys.executable, "-m", "tests.fuzz.fuzzer", target, work, str(runs), str(seconds)]
        finished = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=seconds + START_SECONDS, check=False
        )
    return Outcome(finished.returncode, finished.stderr, sorted(set(finds.glob("*")) - before))


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
        outcome = fuzzed(target, budget.RUNS[target] * told.times, budget.TARGET_SECONDS * told.times)
        print(
            f"{target:<14} {outcome.figure('number_of_executed_units'):>10,} inputs"
            f" {outcome.figure('average_exec_per_sec'):>8,} a second"
            f" {outcome.figure('new_units_added'):>6,} new ways"
            f" {outcome.figure('peak_rss_mb'):>5,} MiB"
            f"   {'ok' if not outcome.status else 'BROKEN'}",
            flush=True,
        )
        if outcome.status:
            broken.append(target)
            print("\n".join(outcome.log.splitlines()[-LOG_LINES:]), file=sys.stderr)
            for path in outcome.found:
                print(f"  the input is in {path.relative_to(Path.cwd())}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
