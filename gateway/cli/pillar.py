"""``outstation pillar``: what data a device is given, for those who may see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK
from gateway.cli import completion
from gateway.cli.command import ASKING, HelpText, invocation, noun, verb
from gateway.cli.text import safe, shown

if TYPE_CHECKING:
    from gateway.cli.views import PillarView, ProblemView

app = noun(
    HelpText(
        purpose="Pillar: the data that is given to a device and to no other.",
        examples=[
            ("outstation pillar show cam-0001", "what cam-0001 is given"),
            ("outstation pillar show cam-0001 --json", "the same, for a script"),
        ],
        exits=ASKING,
    )
)

SHOW = HelpText(
    purpose="Show the pillar of one device, and what is wrong with the files that it is made of.",
    details="It takes the role admin, and the audit keeps who looked at which device's; values are in no log and no "
    "audit. The exit status is 1 when something is wrong with it.",
    examples=[
        ("outstation pillar show cam-0001", "every value, by its path"),
        ("outstation pillar show cam-0001 --env dev --json", "of one environment, for a script"),
    ],
    exits=ASKING,
)


@verb(app, "show", SHOW)
def show(
    context: typer.Context,
    device: Annotated[
        str, typer.Argument(metavar="ID", help="the device's name", autocompletion=completion.device_names)
    ],
    site: Annotated[str | None, typer.Option(metavar="SITE", help="only there")] = None,
    env: Annotated[str | None, typer.Option(metavar="ENV", help="of this environment only")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object per device")] = False,
) -> int:
    """Print a pillar, or each of this id where sites share it."""
    output = invocation(context).output
    found = invocation(context).client().pillar(device, site, env)
    for each in found:
        if as_json:
            output.record("pillar", each)
            continue
        output.facts([("id", safe(each.id)), ("site", safe(each.site)), ("from", _source(each)), *_values(each)])
        for problem in each.problems:
            output.note(_told(problem))
    return EXIT_NOT_ALL_OK if any(each.problems or each.pillar.get("_errors") for each in found) else EXIT_OK


def _source(pillar: PillarView) -> str:
    words = {"here": "compiled here", "master": "a master", "kept": "kept from before"}
    age = f", {pillar.age:.0f} s ago" if pillar.age else ""
    return f"{words.get(pillar.source, safe(pillar.source))}{age}"


def _values(pillar: PillarView) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    left: list[tuple[str, object]] = list(reversed(pillar.pillar.items()))
    while left:
        path, value = left.pop()
        if isinstance(value, dict) and value:
            left += [(f"{path}:{name}", inner) for name, inner in reversed(value.items())]
        else:
            rows.append((safe(path), shown(value)))
    return rows


def _told(problem: ProblemView) -> str:
    line = f", line {problem.line}{' of what it renders to' if problem.rendered else ''}" if problem.line else ""
    text = f": {safe(problem.text)}" if problem.text else ""
    return f"{safe(problem.file)}{line}: {safe(problem.what)}{text}"
