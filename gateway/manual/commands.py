"""The pages of commands, section 1: one for the program, and one for each word that can follow it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from device_agent.command_line import words
from device_agent.command_line.help_text import HelpText
from gateway.cli import meant
from gateway.cli.command import help_text_of, typed_entries, usage
from gateway.cli.program import PROGRAM, app
from gateway.manual.roff import Page

ENVIRONMENT = (
    (meant.SOCKET_VARIABLE, "the station's socket, as `--socket`"),
    (meant.API_VARIABLE, "a station on another machine, as `--api`"),
    (meant.TOKEN_FILE_VARIABLE, "who is asking there, as `--token-file`"),
    (meant.AUTHORITIES_VARIABLE, "certificates to trust there, as `--ca`"),
    ("NO_COLOR", "no colours, also on a terminal"),
)
AGENT = "agent"
"""The word whose page is that of the program which a device has; here it is told in the page of the program."""


def pages() -> Iterator[Page]:
    """The page of the program, and of each of its commands."""
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    context = typer.Context(root, info_name="outstation")
    names = [name for name in PROGRAM.order if name in root.commands]
    yield _program(root, context, names)
    for name in names:
        if name != AGENT:
            yield _command(root.commands[name], typer.Context(root.commands[name], context, info_name=name))


def agent_page() -> Page:
    """The page of the program that a device has."""
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    group = root.commands[AGENT]
    context = typer.Context(group, info_name=words.PROGRAM)
    page = Page(words.PROGRAM, 1, words.noun(words.PROGRAM).purpose)
    _synopsis(page, group, context)
    page.heading("Commands")
    _verbs(page, group, context, program=words.PROGRAM)
    _see(page, f"{words.PROGRAM}(8)", f"{words.PROGRAM}.yaml(5)")
    return page


def _program(root: TyperGroup, context: typer.Context, names: Sequence[str]) -> Page:
    page = Page("outstation", 1, PROGRAM.purpose)
    page.heading("Synopsis")
    page.paragraph(usage(context).removeprefix("usage: "))
    page.heading("Description")
    page.paragraph(PROGRAM.details)
    for heading, entries in typed_entries(context):
        page.heading(heading)
        page.entries(entries)
    page.heading("Commands")
    page.entries([(name, f"{root.commands[name].help} See **{_page_of(name)}**.") for name in names])
    _examples(page, PROGRAM)
    _exits(page, PROGRAM)
    page.heading("Environment")
    page.entries(ENVIRONMENT)
    page.heading("Files")
    page.entries(
        [
            ("/etc/outstation/", "settings: outstation-gateway.yaml(5), outstation-agent.yaml(5)"),
            ("/run/outstation/", "the sockets of the stations of this machine"),
            ("/var/lib/outstation/", "what they keep"),
        ]
    )
    _see(page, "outstation(7)", *(_page_of(name) for name in names))
    return page


def _page_of(name: str) -> str:
    return f"{words.PROGRAM}(1)" if name == AGENT else f"outstation-{name}(1)"


def _command(command: Any, context: typer.Context) -> Page:
    text = help_text_of(command)
    page = Page(f"outstation-{command.name}", 1, text.purpose)
    _synopsis(page, command, context)
    if isinstance(command, TyperGroup):
        if text.details:
            page.heading("Description")
            page.paragraph(text.details)
        page.heading("Commands")
        _verbs(page, command, context)
    else:
        page.heading("Description")
        page.paragraph(text.details or text.purpose)
        for heading, entries in typed_entries(context):
            if entries:
                page.heading(heading)
                page.entries(entries)
        for heading, explained in text.explained.items():
            page.heading(heading)
            page.entries(list(explained.items()))
        _examples(page, text)
        _exits(page, text)
    _see(page, "outstation(1)", "outstation(7)")
    return page


def _synopsis(page: Page, command: Any, context: typer.Context) -> None:
    page.heading("Synopsis")
    for _, path in _leaves(command, context):
        page.paragraph(f"**{path.command_path}**{usage(path).removeprefix(f'usage: {path.command_path}')}")


def _leaves(command: Any, context: typer.Context) -> Iterator[tuple[Any, typer.Context]]:
    """The commands at the end of the words, each with its place; itself for one that has no words after it."""
    if not isinstance(command, TyperGroup):
        yield command, context
        return
    for name, inner in command.commands.items():
        yield from _leaves(inner, typer.Context(inner, context, info_name=name))


def _verbs(page: Page, group: Any, context: typer.Context, program: str = "") -> None:
    for command, path in _leaves(group, context):
        text = words.text(command.name, program) if program else help_text_of(command)
        page.subheading(usage(path).removeprefix("usage: "))
        page.paragraph(f"{text.purpose} {text.details}")
        for _, entries in typed_entries(path):
            page.entries(entries)
        for heading, explained in text.explained.items():
            page.paragraph(f"{heading}:")
            page.entries(list(explained.items()))
        for line, what in text.examples:
            page.paragraph(f"For example, {what}:")
            page.literal([line])
        page.paragraph("Exit statuses:")
        page.entries([(str(status), what) for status, what in text.exits.items()])


def _examples(page: Page, text: HelpText) -> None:
    page.heading("Examples")
    for line, what in text.examples:
        page.paragraph(f"{what[:1].upper()}{what[1:]}:")
        page.literal([line])


def _exits(page: Page, text: HelpText) -> None:
    page.heading("Exit status")
    page.entries([(str(status), what) for status, what in text.exits.items()])


def _see(page: Page, *names: str) -> None:
    page.heading("See also")
    page.paragraph(", ".join(f"**{name}**" for name in names))
