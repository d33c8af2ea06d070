"""``outstation events``: what happens, as it happens."""

from __future__ import annotations

from typing import Annotated

import typer

from device_agent.errors import EXIT_OK, NotRunning
from gateway.cli.command import ASKING, HelpText, invocation, verb
from gateway.cli.failures import INTERRUPTED
from gateway.cli.text import safe, shown

HISTORY_ALONE = 100
"""Past events that are shown when none are waited for."""

TEXT = HelpText(
    purpose="Print events as they happen.",
    details="A TAG-GLOB is matched against the whole tag, and * also crosses slashes. Quote it.",
    explained={
        "Columns": {
            "stamp": "when, in UTC",
            "site": "where",
            "tag": "what, with Salt's tags",
            "data": "the rest, as compact JSON",
        }
    },
    examples=[
        ("outstation events 'salt/job/*'", "jobs as they come and go"),
        ("outstation events --history 20 --no-follow --json", "the last 20, for a script"),
    ],
    exits={**ASKING, INTERRUPTED: "Ctrl-C"},
)


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    verb(app, "events", TEXT)(events)


def events(
    context: typer.Context,
    tag: Annotated[str, typer.Argument(metavar="[TAG-GLOB]", help="which events")] = "*",
    history: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help=f"past events to begin with (default: 0; with --no-follow {HISTORY_ALONE})"
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="wait for those to come")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object per event")] = False,
) -> int:
    """Print events until Ctrl-C, or those that there are."""
    output = invocation(context).output
    past = history if history is not None else 0 if follow else HISTORY_ALONE
    for event in invocation(context).client().events(tag, past, follow):
        if as_json:
            output.record("event", event)
        else:
            output.line("\t".join([safe(event.stamp), safe(event.site or "-"), safe(event.tag), shown(event.data)]))
        output.flush()
    if follow:
        raise NotRunning("the station went away", error_id="station.gone", hint="systemctl status 'outstation-*'")
    return EXIT_OK
