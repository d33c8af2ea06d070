"""``outstation fire``: an event of this station, from whoever may run jobs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from device_agent.errors import EXIT_OK, UsageInvalid
from gateway.cli.arguments import carried, read
from gateway.cli.command import ASKING, HelpText, invocation, verb
from gateway.cli.text import safe

TEXT = HelpText(
    purpose="Fire an event of this station, as Salt's event.send does.",
    details=(
        "It is on the station's disk when this returns, goes to everybody who listens, and from a gateway up to the "
        "masters. DATA is a mapping, in YAML or JSON. Tags that the station fires itself (salt/job/…, outstation/… and "
        "the like) are refused."
    ),
    explained={"Columns": {"stamp": "when it was accepted, in UTC", "site": "whose event it is", "tag": "what"}},
    examples=[
        ("outstation fire site/door/opened", "a tag alone"),
        ("outstation fire site/door/opened '{door: north, badge: 4711}' --json", "with data, for a script"),
    ],
    exits=ASKING,
)


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    verb(app, "fire", TEXT)(fire)


def fire(
    context: typer.Context,
    tag: Annotated[str, typer.Argument(metavar="TAG", help="what happened, words with slashes between")],
    data: Annotated[str, typer.Argument(metavar="[DATA]", help="a mapping with the rest")] = "{}",
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object, with the station's stamp")] = False,
) -> int:
    """Fire one event; the station's stamp."""
    output = invocation(context).output
    from msgspec.structs import replace

    carried_data = mapping(data)
    fired = invocation(context).client().fire(tag, carried_data)
    if as_json:
        output.record("event", replace(fired, data=carried_data))
    else:
        output.line("\t".join([safe(fired.stamp), safe(fired.site or "-"), safe(fired.tag)]))
    return EXIT_OK


def mapping(text: str) -> dict[str, Any]:
    """The data of an event as it is typed. Raises ``UsageInvalid``."""
    import yaml

    try:
        found = read(text)
        if isinstance(found, dict) and carried(found):
            return found
        what = "the data of an event is a mapping of what JSON can carry"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark is not None else ""
        what = f"the data of an event cannot be read: {error.problem}{place}"
    except (yaml.YAMLError, ValueError, RecursionError):
        what = "the data of an event cannot be read"
    raise UsageInvalid(
        what,
        where="DATA",
        found=text[:200],
        allowed="YAML or JSON, as in '{door: north, badge: 4711}'",
    )
