"""``outstation fire``: an event of this station, from whoever may run jobs."""

from __future__ import annotations

from collections.abc import Sequence
from json import JSONDecodeError
from typing import Annotated, Any

import typer

from device_agent.errors import EXIT_OK, UsageInvalid
from gateway.cli.command import ASKING, HelpText, invocation, verb
from gateway.cli.text import safe

TEXT = HelpText(
    purpose="Fire an event of this station, as Salt's event.send does.",
    details=(
        "It is on the station's disk when this returns, goes to everybody who listens, and from a gateway up to the "
        "masters. DATA is a mapping, in YAML or JSON; data with a line break or a tab is JSON. NAME=VALUE is a name of "
        "the mapping, with a value that is read as in `outstation run`. Tags that the station fires itself "
        "(salt/job/…, outstation/… and the like) are refused."
    ),
    explained={"Columns": {"stamp": "when it was accepted, in UTC", "site": "whose event it is", "tag": "what"}},
    examples=[
        ("outstation fire site/door/opened door=north badge=4711", "with data"),
        ("outstation fire site/door/opened '{door: north, badge: 4711}' --json", "the same, for a script"),
    ],
    exits=ASKING,
)


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    verb(app, "fire", TEXT)(fire)


def fire(
    context: typer.Context,
    tag: Annotated[str, typer.Argument(metavar="TAG", help="what happened, words with slashes between")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[DATA] [NAME=VALUE]…", help="a mapping with the rest")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object, with the station's stamp")] = False,
) -> int:
    """Fire one event; the station's stamp."""
    output = invocation(context).output
    from msgspec.structs import replace

    carried_data = event_data(arguments or [])
    fired = invocation(context).client().fire(tag, carried_data)
    if as_json:
        output.record("event", replace(fired, data=carried_data))
    else:
        output.line("\t".join([safe(fired.stamp), safe(fired.site or "-"), safe(fired.tag)]))
    return EXIT_OK


def event_data(typed: Sequence[str]) -> dict[str, Any]:
    """The data of an event, as Salt's ``event.send`` makes it: DATA goes over NAME=VALUE. Raises ``UsageInvalid``."""
    from gateway.typed_arguments import named, value

    by_name: dict[str, Any] = {}
    whole: dict[str, Any] | None = None
    for text in typed:
        name, rest = named(text)
        if name is None and whole is None:
            whole = mapping(rest)
        elif name is None:
            raise UsageInvalid(
                "an event has one mapping as its data", where="DATA", found=text[:200], allowed="[DATA] [NAME=VALUE]…"
            )
        elif name in by_name:
            raise UsageInvalid(f"the argument {name} is given twice", where="NAME=VALUE", found=text[:200])
        else:
            by_name[name] = value(rest)
    return by_name | (whole or {})


def mapping(text: str) -> dict[str, Any]:
    """The data of an event as it is typed. Raises ``UsageInvalid``."""
    import yaml

    from gateway.render_yaml import TooLarge
    from gateway.typed_arguments import UNREAD, can_be_sent
    from gateway.typed_yaml import fault, read, read_typed_json

    try:
        # YAML folds a line break in a value to a blank; JSON has none that could be lost.
        found = read_typed_json(text) if UNREAD.search(text) else read(text)
        if isinstance(found, dict) and can_be_sent(found):
            return found
        what = "the data of an event is a mapping of what JSON can carry"
    except yaml.MarkedYAMLError as error:
        what = f"the data of an event cannot be read: {fault(text, error)}"
    except JSONDecodeError as error:
        place = f"{error.msg} (line {error.lineno}, column {error.colno})"
        what = f"the data of an event with a line break or a tab is read as JSON: {place}"
    except (yaml.YAMLError, TooLarge, ValueError, RecursionError) as error:
        what = f"the data of an event cannot be read: {str(error)[:200]}"
    raise UsageInvalid(
        what,
        where="DATA",
        found=text[:200],
        allowed="YAML or JSON, as in '{door: north, badge: 4711}'",
    )
