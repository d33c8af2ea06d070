"""The entry point of ``outstation``: chooses between the whole program and what a camera has of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from device_agent.errors import EXIT_NOT_ALL_OK
from gateway.cli.failures import INTERRUPTED, report

STATION_ONLY = ("typer", "rich")


def main(arguments: Sequence[str]) -> int:
    """Run one command line; the exit status. No error leaves it as a traceback."""
    try:
        if all(find_spec(name) for name in STATION_ONLY):
            from gateway.cli import program

            status = program.main(arguments)
        else:
            from gateway.cli import camera

            status = camera.main(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has had enough of it. What is still buffered must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_NOT_ALL_OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost frame: every error becomes lines and an exit status
        return report(error)
    return status


def entry() -> None:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a letter shows its escape.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    entry()
