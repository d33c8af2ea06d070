"""``outstation mine``: what devices keep at their station for others to read."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from device_agent.errors import EXIT_OK
from gateway.cli import completion, targets
from gateway.cli.command import ASKING, HelpText, invocation, noun, verb
from gateway.cli.text import safe, shown

app = noun(
    HelpText(
        purpose="Mine: what devices keep at their station for others to read, and how old it is.",
        details="Devices refresh their values on an interval, and read those of others with the function mine.get.",
        examples=[
            ("outstation mine get 'cam-*' network.ip_addrs", "the addresses that cameras have told"),
            ("outstation mine show cam-0001", "all that one device has told, with its age"),
        ],
        exits=ASKING,
    )
)

Json = Annotated[bool, typer.Option("--json", help="one JSON object per value")]

GET = HelpText(
    purpose="Print values of the mine, of the devices that a target means.",
    details="On a master they are those that its sites have told it. Nothing is asked of any device.",
    explained={
        "Targets": targets.TARGETS,
        "Columns": {
            "device": "whose value it is",
            "site": "whose device it is",
            "function": "the function that returned it, or the name that it was given",
            "told": "when the device told it",
            "value": "what it told",
        },
    },
    examples=[
        ("outstation mine get 'cam-*' network.ip_addrs", "of every camera"),
        ("outstation mine get -G os:Debian network.ip_addrs,test.version --json", "two functions, for a script"),
    ],
    exits=ASKING,
)


@verb(app, "get", GET)
@targets.read_as
def get(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="which devices", autocompletion=completion.targets)],
    functions: Annotated[
        str, typer.Argument(metavar="FUNCTION", help="a function or a name in the mine; several with commas between")
    ],
    *,
    read: targets.As,
    as_json: Json = False,
) -> int:
    """Print a table of values."""
    from gateway.cli.mine_views import MinePage

    meant: dict[str, Any] = read(target)
    meant["functions"] = [name for name in functions.split(",") if name]
    output, client = invocation(context).output, invocation(context).client()
    page = client.ask("POST", "/mine", MinePage, body=meant)
    if as_json:
        for value in page.values:
            output.record("value", value)
        return EXIT_OK
    output.table(
        ("device", "site", "function", "told", "value"),
        (
            (safe(each.device), safe(each.site), safe(each.name), output.age(each.kept), shown(each.value))
            for each in page.values
        ),
    )
    output.note(f"{len(page.values):,} values")
    return EXIT_OK


SHOW = HelpText(
    purpose="Print all that one device has in the mine, with its age.",
    explained={
        "Columns": {
            "function": "the function that returned it, or the name that it was given",
            "site": "whose device it is",
            "told": "when the device told it",
            "for": "the devices that may read it, where it is not for all",
            "value": "what it told",
        },
    },
    examples=[
        ("outstation mine show cam-0001", "everything it has told"),
        ("outstation mine show cam-0001 --json", "the same, for a script"),
    ],
    exits=ASKING,
)


@verb(app, "show", SHOW)
def show(
    context: typer.Context,
    device: Annotated[
        str, typer.Argument(metavar="DEVICE", help="the device's name", autocompletion=completion.device_names)
    ],
    site: Annotated[
        str | None,
        typer.Option(metavar="SITE", help="only of this site (default: all)", autocompletion=completion.site_names),
    ] = None,
    as_json: Json = False,
) -> int:
    """Print a table of values; of each device of this id where sites share it."""
    from gateway.cli.mine_views import MinePage

    output, client = invocation(context).output, invocation(context).client()
    page = client.ask("GET", f"/mine/{quote(device, safe='')}", MinePage, query={"site": site})
    if as_json:
        for value in page.values:
            output.record("value", value)
        return EXIT_OK
    output.table(
        ("function", "site", "told", "for", "value"),
        (
            (
                safe(each.name),
                safe(each.site),
                output.age(each.kept),
                f"{safe(each.allow_tgt)} ({safe(each.allow_tgt_type)})" if each.allow_tgt else "all",
                shown(each.value),
            )
            for each in page.values
        ),
    )
    return EXIT_OK
