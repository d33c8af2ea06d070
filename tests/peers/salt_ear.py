"""Says when something of a job was on the bus of a stock Salt master; run by Salt's own Python.

    python salt_ear.py CONFIG-FILE

Prints for each event the monotonic clock of this machine, in seconds, and its tag; first of all a line that it listens.
"""

from __future__ import annotations

import sys
import time
from importlib import import_module

LISTENS = "listens"
LONGEST_WAIT = 60.0


def main(config: str) -> None:
    """Listen until killed."""
    # Only Salt's own environment has it.
    opts = import_module("salt.config").master_config(config)
    bus = import_module("salt.utils.event").get_master_event(opts, opts["sock_dir"], listen=True)
    bus.subscribe("salt/job")
    # It dials only when it is first asked; what comes before that is not heard.
    bus.get_event(wait=0.01)
    sys.stdout.write(f"{time.monotonic()} {LISTENS}\n")
    while True:
        sys.stdout.flush()
        if (event := bus.get_event(wait=LONGEST_WAIT, full=True)) is not None:
            sys.stdout.write(f"{time.monotonic()} {event['tag']}\n")


if __name__ == "__main__":
    main(sys.argv[1])
