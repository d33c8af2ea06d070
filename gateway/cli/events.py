"""``outstation events``: what happens, as it happens."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from device_agent.errors import EXIT_OK, NotRunning, UsageInvalid
from gateway.cli.command import ASKING, HelpText, invocation, verb
from gateway.cli.failures import INTERRUPTED
from gateway.cli.output import Output
from gateway.cli.text import safe, shown

MISSED = "outstation/missed"
"""Not an event of the station: what its API tells a listener who was too slow."""

HISTORY_ALONE = 100
"""Past events that are shown when none are waited for."""

TEXT = HelpText(
    purpose="Print events as they happen.",
    details=(
        "A TAG-GLOB is matched against the whole tag, and * also crosses slashes. Quote it. "
        "Who reads too slowly misses events; how many is said on stderr."
    ),
    explained={
        "Columns": {
            "stamp": "when, in UTC",
            "site": "where",
            "tag": "what, with Salt's tags",
            "data": "the rest, as compact JSON",
        }
    },
    examples=[
        ("outstation events 'salt/job/*' --pretty", "jobs as they come and go, as Salt shows them"),
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
    pretty: Annotated[
        bool, typer.Option("--pretty", help="the tag and the data as JSON in many lines, as Salt's state.event")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object per event")] = False,
) -> int:
    """Print events until Ctrl-C, or those that there are."""
    if pretty and as_json:
        raise UsageInvalid("--pretty and --json are two ways to say one thing", hint="choose one of them")
    output = invocation(context).output
    past = history if history is not None else 0 if follow else HISTORY_ALONE
    for event in invocation(context).client().events(tag, past, follow):
        if event.tag == MISSED:
            _say_missed(output, event.data.get("missed"))
        if as_json:
            output.record("event", event)
        elif event.tag == MISSED:
            continue
        elif pretty:
            # Pure ASCII, so no terminal obeys anything in it.
            output.line(safe(event.tag) + "\t" + json.dumps(event.data, indent=4, sort_keys=True))
        else:
            # The stamp has a column of its own.
            rest = {key: value for key, value in event.data.items() if key != "_stamp"}
            output.line("\t".join([safe(event.stamp), safe(event.site or "-"), safe(event.tag), shown(rest)]))
        output.flush()
    if follow:
        raise NotRunning("the station went away", error_id="station.gone", hint="systemctl status 'outstation-*'")
    return EXIT_OK


def _say_missed(output: Output, count: object) -> None:
    output.note(
        ("missed: ", "yellow"),
        f"{count if isinstance(count, int) else 'some'} events so far: this reader is slower than they come",
    )
