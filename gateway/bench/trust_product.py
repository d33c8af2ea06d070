"""Our side of ``bench trust``: the very functions that devices and stations call, each timed by itself.

It speaks as the reference does (``trust_reference``): lines of JSON in and out, a turn at a time. What one function
makes the next one opens, so that every object is proven by the product itself; making keys, and comparing what was
opened with what had been sealed, is not timed.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from typing import Any

from device_agent.clock import Clock
from device_agent.errors import OutstationError
from gateway.bench.trust_fleet import Fleet
from gateway.bench.trust_jobs import Jobs
from gateway.bench.trust_joining import Joining
from gateway.bench.trust_revocation import Revocation
from gateway.bench.trust_sessions import Sessions
from gateway.bench.trust_turn import Turn, Watch

Chain = Callable[[Turn, Watch], None]


def chains(fleet: Fleet) -> dict[str, Chain]:
    """What can be asked for."""
    jobs = Jobs(fleet)
    return {
        "join": Joining(fleet).turn,
        "job_group": jobs.group,
        "job_single": jobs.single,
        "session": Sessions(fleet).turn,
        "revocation": Revocation(fleet).turn,
    }


def run(lines: Any, out: Any) -> None:
    """Talk to whoever started this until its lines end."""
    known = chains(Fleet(Clock()))
    for line in lines:
        asked = json.loads(line)
        watch = Watch()
        known[asked["chain"]](Turn(asked["count"], asked["frames"], asked["first"]), watch)
        out.write(json.dumps({"parts": watch.spent, "sizes": watch.sizes}) + "\n")
        out.flush()


def main() -> int:
    """The program; returns the exit status."""
    # It ends when its lines end; Ctrl-C is for whoever started it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run(sys.stdin, sys.stdout)
    except OutstationError as error:
        sys.stdout.write(json.dumps({"error": error.what}) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
