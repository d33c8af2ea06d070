"""``make chaos``: break a whole system on purpose, and prove that nothing was lost; exit status 1 when something was.

    .venv/bin/python -m tests.chaos [--minutes 15] [--devices 500] [--faults 40] [--seed N] [--keep DIR]

It takes root, for network namespaces and a small file system of its own. The seed is printed: with it and the same
counts the same faults come at the same times.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.network import available
from tests.chaos.run import Terms, run


def main(arguments: Sequence[str]) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Break everything, and count.")
    parser.add_argument("--minutes", type=float, default=15.0, help="how long faults come (default: 15)")
    parser.add_argument("--devices", type=int, default=500, help="devices in the swarms (default: 500)")
    parser.add_argument("--swarms", type=int, default=4, help="processes they are in (default: 4)")
    parser.add_argument("--faults", type=int, default=40, help="how many faults (default: 40); 0: each sort once")
    parser.add_argument(
        "--type", default="failover", choices=["failover", "hot", "str"], help="master_type of the site"
    )
    parser.add_argument("--seed", type=int, help="of the faults and the load (default: drawn, and printed)")
    parser.add_argument("--keep", type=Path, help="where logs, stores and facts are kept (default: after a failure)")
    parser.add_argument("--excuse", action="append", default=[], metavar="RULE", help="tell it, and do not fail for it")
    told = parser.parse_args(arguments)
    if os.geteuid() != 0 or not available():
        print("chaos: it takes root and network namespaces\n  try: sudo make chaos", file=sys.stderr)
        return 1
    seed = told.seed if told.seed is not None else secrets.randbelow(10**6)
    terms = Terms(
        seed, told.minutes * 60, told.devices, told.faults, told.swarms, told.type, told.keep, frozenset(told.excuse)
    )
    counts = f"--minutes {told.minutes:g} --devices {told.devices} --swarms {told.swarms} --faults {told.faults}"
    counts += f" --type {told.type}"
    print(f"seed {seed}: python -m tests.chaos --seed {seed} {counts}", flush=True)
    result = run(terms, lambda line: print(line, flush=True))
    print(f"faults: {', '.join(f'{count} {what}' for what, count in sorted(result.applied.items()))}")
    print(f"{result.tally}; {result.seconds:.0f} s")
    for finding in result.findings:
        print(("excused: " if finding.rule in terms.excused else "FAILED ") + str(finding))
    print(f"seed {seed}: {'nothing was lost' if result.good else 'see above'}", flush=True)
    return 0 if result.good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
