"""The program of a device that has nothing else of Outstation: ``outstation-agent COMMAND``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn

from device_agent import __version__
from device_agent.command_line import words
from device_agent.command_line.durations import duration
from device_agent.command_line.failures import complain, guarded
from device_agent.command_line.help_text import Entries, HelpText, laid_out
from device_agent.errors import EXIT_USAGE
from device_agent.places import AGENT_CONFIG


class Parser(argparse.ArgumentParser):
    """Reads a command line, with the help and the complaints of the whole program."""

    def __init__(self, prog: str, text: HelpText, commands: Entries = ()) -> None:
        super().__init__(prog=prog, add_help=False, allow_abbrev=False)
        self._text = text
        self._commands = commands
        self._entries: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}

    def takes(self, name: str, typed: words.Typed, default: object = None, **how: object) -> None:
        """Add an argument, or an option where the name begins with dashes."""
        self.add_argument(name, default=default, **how)  # type: ignore[arg-type]  # handed on as argparse has it
        shown = f"{name} {typed.metavar}".rstrip() if name.startswith("-") else typed.metavar
        says = typed.words if default in (None, False) else f"{typed.words} (default: {default})"
        self._entries["Options" if name.startswith("-") else "Arguments"].append((shown, says))

    def format_usage(self) -> str:
        """The right way to type it, on one line."""
        parts = ["usage:", self.prog, "[OPTION]…", *(["COMMAND …"] if self._commands else [])]
        return " ".join([*parts, *(f"[{name}]" for name, _ in self._entries["Arguments"])]) + "\n"

    def format_help(self) -> str:
        """In the order in which every command has it."""
        entries = {**self._entries, "Options": [*self._entries["Options"], ("--help", "show this help")]}
        return laid_out(self._text, self.format_usage().rstrip(), list(entries.items()), self._commands) + "\n"

    def error(self, message: str) -> NoReturn:
        """One line, the usage, exit 2."""
        complain(message)
        sys.stderr.write(f"{self.format_usage()}help:  {self.prog} --help\n")
        sys.exit(EXIT_USAGE)


def main(arguments: Sequence[str], program: str = words.PROGRAM) -> int:
    """Run one command line; its exit status. ``program`` is how it was typed. Raises what a command raises."""
    first = arguments[0] if arguments else ""
    if first in words.VERBS:
        return _obey(first, arguments[1:], program)
    whole = Parser(program, words.noun(program), [(verb, words.text(verb, program).purpose) for verb in words.VERBS])
    whole.takes("--version", words.VERSION, False, action="store_true")
    if first == "--version":
        sys.stdout.write(f"outstation {__version__}\n")
        return 0
    if first in {"-h", "--help"}:
        sys.stdout.write(whole.format_help())
        return 0
    if not first:
        sys.stderr.write(whole.format_help())
        return EXIT_USAGE
    near = get_close_matches(first, words.VERBS, n=1)
    return whole.error(f"no such command {first!r}{f'. Did you mean {near[0]!r}?' if near else ''}")


def _obey(verb: str, arguments: Sequence[str], program: str) -> int:
    parser = Parser(f"{program} {verb}", words.text(verb, program))
    if verb == "join":
        parser.takes("token", words.TOKEN, nargs="?")
        parser.takes("--token-file", words.TOKEN_FILE, type=Path)
        parser.takes("--wait", words.WAIT, words.JOIN_WAIT)
    if verb in {"status", "check"}:
        parser.takes("--json", words.JSON_STATUS if verb == "status" else words.JSON_CHECK, False, action="store_true")
    parser.takes("--config", words.CONFIG, AGENT_CONFIG, type=Path)
    if {"-h", "--help"} & set(arguments):
        sys.stdout.write(parser.format_help())
        return 0
    typed = parser.parse_args(arguments)
    if verb == "run":
        from device_agent import running

        return running.main(typed.config)
    if verb == "status":
        from device_agent import standing

        return standing.show(typed.config, as_json=typed.json)
    if verb == "check":
        from device_agent import checks

        return checks.main(typed.config, as_json=typed.json)

    from device_agent import membership

    if verb == "show":
        return membership.show(typed.config)
    return membership.join(typed.config, typed.token, typed.token_file, duration("--wait", typed.wait))


def entry() -> None:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a letter shows its escape.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(guarded(lambda: main(sys.argv[1:])))
