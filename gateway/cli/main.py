"""The entry point of ``outstation``: chooses between the whole program and what a camera has of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

from gateway.cli.failures import guarded

STATION_ONLY = ("typer", "rich")


def main(arguments: Sequence[str]) -> int:
    """Run one command line; the exit status. No error leaves it as a traceback."""
    return guarded(lambda: _chosen(arguments))


def _chosen(arguments: Sequence[str]) -> int:
    if all(find_spec(name) for name in STATION_ONLY):
        from gateway.cli import program

        return program.main(arguments)

    from gateway.cli import camera

    return camera.main(arguments)


def entry() -> None:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a letter shows its escape.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    entry()
