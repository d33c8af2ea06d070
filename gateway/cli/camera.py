"""The command line of a machine that has the agent alone, without what a station needs: ``outstation agent run``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from device_agent import __version__
from device_agent.errors import EXIT_USAGE
from gateway.cli.failures import complain

AGENT_CONFIG = Path("/etc/outstation/agent.yaml")
STATION_EXTRA = "station"


class Parser(argparse.ArgumentParser):
    """Says what is wrong in the way of the whole program."""

    def error(self, message: str) -> NoReturn:
        """One line, the usage, exit 2."""
        complain(message)
        sys.stderr.write(self.format_usage())
        sys.exit(EXIT_USAGE)


def main(arguments: Sequence[str]) -> int:
    """Run the agent; say for everything else what is missing here."""
    if list(arguments) == ["--version"]:
        sys.stdout.write(f"outstation {__version__}\n")
        return 0
    if list(arguments[:2]) != ["agent", "run"] and not {"-h", "--help"} & set(arguments):
        complain(
            f"this machine has the agent alone: {' '.join(arguments[:2]) or 'a command'} needs the rest of outstation"
        )
        sys.stderr.write(
            f"  try:     pip install 'outstation[{STATION_EXTRA}]'\nusage: outstation agent run [--config FILE]\n"
        )
        return EXIT_USAGE
    parser = Parser(
        prog="outstation",
        description="The agent of a device. This machine has nothing else of outstation.",
        epilog=f"The other commands need: pip install 'outstation[{STATION_EXTRA}]'",
    )
    nouns = parser.add_subparsers(required=True, metavar="agent")
    verbs = nouns.add_parser("agent", help="be a device").add_subparsers(required=True, metavar="run")
    run = verbs.add_parser("run", help="run the agent until it is stopped")
    run.add_argument("--config", type=Path, default=AGENT_CONFIG, help="settings file (default: %(default)s)")
    settings = parser.parse_args(arguments)

    from device_agent import agent

    return agent.main(settings.config)
