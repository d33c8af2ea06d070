"""The command line of a machine that has the agent alone, without what a station needs: ``outstation agent …``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from device_agent.command_line import program
from device_agent.command_line.failures import complain
from device_agent.errors import EXIT_USAGE

STATION_EXTRA = "station"


def main(arguments: Sequence[str]) -> int:
    """Be the agent; say for everything else what is missing here."""
    if list(arguments) == ["--version"]:
        return program.main(arguments)
    if arguments and arguments[0] in {"agent", "-h", "--help"}:
        return program.main(arguments[1:] if arguments[0] == "agent" else ["--help"], "outstation agent")
    complain(f"this machine has the agent alone: {' '.join(arguments[:2]) or 'a command'} needs the rest of outstation")
    sys.stderr.write(f"  try:     pip install 'outstation[{STATION_EXTRA}]'\nusage: outstation agent COMMAND …\n")
    return EXIT_USAGE
