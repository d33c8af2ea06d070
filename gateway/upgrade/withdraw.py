"""What the package does when it is taken away: an upgrade that is still being judged is over.

Called by its ``prerm``, when the guard has stopped. A record of one under way would have the next boot of the machine
judge whatever was installed since, and perhaps put it back.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from device_agent.clock import Clock
from gateway.upgrade.record import FOLDER, UNDER_WAY, read, write

WHY: Final = "the package was removed"


def withdraw(folder: Path, clock: Clock) -> None:
    """End an upgrade that nobody judges any more; one that was decided stays as it was. Raises ``OSError``."""
    last = read(folder)
    if last is not None and last.state in UNDER_WAY:
        write(folder, last.now("withdrawn", clock.wall(), WHY))


def main() -> int:
    """Do it; the exit status, which is always 0: a package is removed whatever becomes of its records."""
    try:
        withdraw(FOLDER, Clock())
    except OSError as error:
        sys.stderr.write(f"outstation: the record of the last upgrade cannot be written: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
