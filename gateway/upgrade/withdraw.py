"""An upgrade that is still being judged is over: the package is taken away, or somebody wants it left as it is.

Called by the package's ``prerm``, when the guard has stopped, and by hand with ``--leave``. A record of one under
way would have the next boot of the machine judge whatever was installed since, and perhaps put it back.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from device_agent.clock import Clock
from gateway.upgrade.record import FOLDER, UNDER_WAY, read, write

WHY: Final = "the package was removed"
LEFT: Final = "somebody had it left as it is"


def withdraw(folder: Path, clock: Clock, why: str = WHY) -> None:
    """End an upgrade that nobody judges any more; one that was decided stays as it was. Raises ``OSError``."""
    last = read(folder)
    if last is not None and last.state in UNDER_WAY:
        write(folder, last.now("withdrawn", clock.wall(), why))


def main(arguments: Sequence[str] = ()) -> int:
    """Do it; the exit status. That of a removal is always 0: a package goes whatever becomes of its records."""
    leaves = list(arguments) == ["--leave"]
    try:
        withdraw(FOLDER, Clock(), LEFT if leaves else WHY)
    except OSError as error:
        sys.stderr.write(f"outstation: the record of the last upgrade cannot be written: {error}\n")
        return int(leaves)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
