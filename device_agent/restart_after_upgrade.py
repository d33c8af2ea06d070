"""Starts the agent anew when the package manager that replaced it has finished.

A job of the agent may be what upgrades it, together with other packages and for many minutes on a slow device. A stop
of the agent ends its jobs after ``drain_seconds``, so one in the middle of that run would leave packages half
installed. The package has this wait in a unit of its own, outside of the agent's.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

from device_agent.clock import Clock
from device_agent.package_lock import is_busy

UNIT: Final = "outstation-agent.service"
LOOK_SECONDS: Final = 2.0
FREE_LOOKS: Final = 5
"""Between two steps of a package manager nobody holds its lock for a moment; and the job has its answer to give."""

MOST_SECONDS: Final = 7200.0
"""A package manager that is still not through hangs, and the agent is the one that can be asked about it."""

ASK_SECONDS: Final = 60.0


def wait(busy: Callable[[], bool], clock: Clock, sleep: Callable[[float], object]) -> bool:
    """Return when the package manager has finished; whether it has, within ``MOST_SECONDS``."""
    end = clock.monotonic() + MOST_SECONDS
    free = 0
    while free < FREE_LOOKS:
        if clock.monotonic() >= end:
            return False
        sleep(LOOK_SECONDS)
        free = 0 if busy() else free + 1
    return True


def main() -> int:
    """Wait, and have systemd start the agent anew if it runs; the exit status."""
    if not wait(is_busy, Clock(), time.sleep):
        sys.stderr.write(f"the package manager has not finished in {MOST_SECONDS:.0f} s; the agent starts anew now\n")
    words = ["systemctl", "--no-block", "try-restart", UNIT]
    return subprocess.run(words, timeout=ASK_SECONDS, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
