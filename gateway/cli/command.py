"""Commands whose help is always in the same order, and what every command is called with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from device_agent.command_line.help_text import HelpText, laid_out
from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_NOT_RUNNING, EXIT_OK, EXIT_REFUSED, EXIT_USAGE
from gateway.cli.meant import Meant
from gateway.cli.output import Output

if TYPE_CHECKING:
    from gateway.cli.client import StationClient

__all__ = [
    "ASKING",
    "HelpText",
    "Invocation",
    "described",
    "described_group",
    "help_text_of",
    "invocation",
    "noun",
    "render",
    "typed_entries",
    "usage",
    "verb",
]

ASKING: Mapping[int, str] = {
    EXIT_OK: "done",
    EXIT_NOT_ALL_OK: "the station could not do it",
    EXIT_USAGE: "the command line is wrong, or there is no such thing",
    EXIT_NOT_RUNNING: "no station answers",
    EXIT_REFUSED: "the station refuses it by policy",
}
"""Exit statuses of a command that asks the station something."""


@dataclass(frozen=True)
class Invocation:
    """What the command line says before the command."""

    output: Output
    meant: Meant

    @property
    def socket(self) -> Path | None:
        """The socket that was named; None where the only one on this machine is meant, or a station on another."""
        return self.meant.socket

    def client(self, timeout_seconds: float | None = None) -> StationClient:
        """The client of the station that is meant. Raises ``UsageInvalid``, ``NotRunning`` or ``PolicyRefused``."""
        from gateway.cli.client import ANSWER_SECONDS

        return self.meant.client(timeout_seconds or ANSWER_SECONDS)


def invocation(context: typer.Context) -> Invocation:
    """What the command line says before the command."""
    found = context.find_object(Invocation)
    assert found is not None, "the callback of the program sets it"
    return found


def described(text: HelpText) -> type[TyperCommand]:
    """A command class with this help."""

    # The type of a context here has a name in a private module of typer alone, hence Any.
    class DescribedCommand(TyperCommand):
        help_text = text

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            with _context_known(ctx):
                return super().parse_args(ctx, args)

        def get_help(self, ctx: Any) -> str:
            return render(text, ctx, [])

        def get_usage(self, ctx: Any) -> str:
            return usage(ctx)

    return DescribedCommand


def described_group(text: HelpText) -> type[TyperGroup]:
    """A class for a noun or the program, with this help and a list of its commands."""

    class DescribedGroup(TyperGroup):
        help_text = text

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            with _context_known(ctx):
                return super().parse_args(ctx, args)

        def get_help(self, ctx: Any) -> str:
            entries = [(name, command.help or "") for name, command in self.commands.items()]
            if text.order:
                entries.sort(key=lambda entry: text.order.index(entry[0]))
            return render(text, ctx, entries)

        def get_usage(self, ctx: Any) -> str:
            return usage(ctx)

    return DescribedGroup


@contextmanager
def _context_known(context: Any) -> Iterator[None]:
    """Give a mistake its command where typer's parser does not, so that the right usage can be shown."""
    try:
        yield
    except typer.TyperException as mistake:
        if getattr(mistake, "ctx", None) is None:
            vars(mistake)["ctx"] = context
        raise


def noun(text: HelpText) -> typer.Typer:
    """A noun, to which its verbs are added."""
    return typer.Typer(cls=described_group(text), help=text.purpose, rich_markup_mode=None, no_args_is_help=True)


def verb(app: typer.Typer, name: str, text: HelpText) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Add a command to a noun or to the program."""
    return app.command(name, cls=described(text), help=text.purpose)


def usage(context: typer.Context) -> str:
    """The right way to type a command, on one line."""
    words = ["usage:", context.command_path, "[OPTION]…"]
    if isinstance(context.command, TyperGroup):
        words.append("COMMAND …")
    words += [_name(parameter) for parameter in context.command.params if parameter.param_type_name == "argument"]
    return " ".join(words)


def help_text_of(command: Any) -> HelpText:
    """What the help of a command or a noun says beside its options."""
    text = command.help_text
    assert isinstance(text, HelpText)
    return text


def typed_entries(context: typer.Context) -> list[tuple[str, list[tuple[str, str]]]]:
    """What can stand on the command line, under its headings."""
    parameters = context.command.get_params(context)
    return [
        (heading, [(_name(found), _words(found)) for found in parameters if found.param_type_name == kind])
        for heading, kind in (("Arguments", "argument"), ("Options", "option"))
    ]


def render(text: HelpText, context: typer.Context, commands: Sequence[tuple[str, str]]) -> str:
    """The help: purpose, usage, options, commands, columns or outcomes, examples, exit statuses."""
    return laid_out(text, usage(context), typed_entries(context), commands)


def _name(parameter: Any) -> str:
    """How a parameter is typed: ``TARGET``, ``-G, --grain``, ``--limit N``."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar)
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    return f"{names} {parameter.metavar}" if parameter.metavar else names


def _words(parameter: Any) -> str:
    """What a parameter is, with its default where the words do not already say it."""
    if "--help" in parameter.opts:
        return "show this help"
    words = str(parameter.help)
    if parameter.required:
        return words if parameter.param_type_name == "argument" else f"{words} (required)"
    if parameter.default is None or isinstance(parameter.default, bool) or "(default:" in words:
        return words
    return f"{words} (default: {parameter.default})"
