"""The command line of a machine that has the agent alone, without what a station needs: ``outstation agent …``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from device_agent import __version__
from device_agent.errors import EXIT_USAGE
from device_agent.places import AGENT_CONFIG
from gateway.cli.arguments import duration
from gateway.cli.failures import complain

STATION_EXTRA = "station"
VERBS = ("run", "join", "show")
JOIN_WAIT = "10m"


class Parser(argparse.ArgumentParser):
    """Says what is wrong in the way of the whole program."""

    def error(self, message: str) -> NoReturn:
        """One line, the usage, exit 2."""
        complain(message)
        sys.stderr.write(self.format_usage())
        sys.exit(EXIT_USAGE)


def main(arguments: Sequence[str]) -> int:
    """Be the agent; say for everything else what is missing here."""
    if list(arguments) == ["--version"]:
        sys.stdout.write(f"outstation {__version__}\n")
        return 0
    known = len(arguments) > 1 and arguments[0] == "agent" and arguments[1] in VERBS
    if not known and not {"-h", "--help"} & set(arguments):
        complain(
            f"this machine has the agent alone: {' '.join(arguments[:2]) or 'a command'} needs the rest of outstation"
        )
        sys.stderr.write(
            f"  try:     pip install 'outstation[{STATION_EXTRA}]'\n"
            f"usage: outstation agent {{{','.join(VERBS)}}} [--config FILE]\n"
        )
        return EXIT_USAGE
    parser = Parser(
        prog="outstation",
        description="The agent of a device. This machine has nothing else of outstation.",
        epilog=f"The other commands need: pip install 'outstation[{STATION_EXTRA}]'",
    )
    nouns = parser.add_subparsers(required=True, metavar="agent")
    agent = nouns.add_parser("agent", help="be a device")
    verbs = agent.add_subparsers(required=True, metavar=f"{{{','.join(VERBS)}}}", dest="verb")
    verbs.add_parser("run", help="run the agent until it is stopped")
    joining = verbs.add_parser("join", help="join a site with a token, and wait until it has us")
    joining.add_argument("token", nargs="?", metavar="TOKEN", help="between single quotes; - reads standard input")
    joining.add_argument("--token-file", type=Path, metavar="FILE", help="read the token from a file")
    joining.add_argument("--wait", default=JOIN_WAIT, help="how long to wait (default: %(default)s)")
    verbs.add_parser("show", help="say who this device is")
    for verb in verbs.choices.values():
        verb.add_argument(
            "--config", type=Path, metavar="FILE", default=AGENT_CONFIG, help="settings file (default: %(default)s)"
        )
    return _obey(parser.parse_args(arguments))


def _obey(typed: argparse.Namespace) -> int:
    if typed.verb == "run":
        from device_agent import running

        return running.main(typed.config)

    from device_agent import membership

    if typed.verb == "show":
        return membership.show(typed.config)
    return membership.join(typed.config, typed.token, typed.token_file, duration("--wait", typed.wait))
