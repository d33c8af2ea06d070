"""``outstation sites``: the sites under a master."""

from __future__ import annotations

from typing import Annotated

import typer

from device_agent.errors import EXIT_OK
from gateway.cli import completion
from gateway.cli.command import ASKING, HelpText, invocation, noun, verb
from gateway.cli.text import safe

app = noun(
    HelpText(
        purpose="Sites: which gateways answer to this master, and when each was last heard.",
        examples=[
            ("outstation sites list", "every accepted site"),
            ("outstation sites show lisbon", "one site"),
        ],
        exits=ASKING,
    )
)

Json = Annotated[bool, typer.Option("--json", help="one JSON object per site")]

LIST = HelpText(
    purpose="List the accepted sites.",
    explained={
        "Columns": {
            "site": "the site's name",
            "state": "connected, or dark when nothing is heard of it",
            "since": "since when it is so",
            "last seen": "when it was last heard",
            "devices": "how many devices it has told of",
            "present": "how many of them are here now",
            "version": "the release its gateway runs",
        }
    },
    examples=[
        ("outstation sites list", "which sites are connected"),
        ("outstation sites list --json", "the same, for a script"),
    ],
    exits=ASKING,
)


@verb(app, "list", LIST)
def list_sites(context: typer.Context, as_json: Json = False) -> int:
    """Print a table of sites."""
    output = invocation(context).output
    sites = invocation(context).client().sites()
    if as_json:
        for site in sites:
            output.record("site", site)
        return EXIT_OK
    rows = [
        (
            safe(site.site),
            ("connected", "green") if site.connected else ("dark", "magenta"),
            output.age(site.since, "-"),
            output.age(site.last_seen),
            number(site.devices),
            number(site.present),
            safe(site.version or "-"),
        )
        for site in sites
    ]
    columns = ("site", "state", "since", "last seen", "devices", "present", "version")
    if not output.table(columns, rows, ("devices", "present")):
        output.note("no sites; one that wants to join is in: outstation keys list")
    return EXIT_OK


SHOW = HelpText(
    purpose="Show one site.",
    examples=[
        ("outstation sites show lisbon", "its link, devices and key"),
        ("outstation sites show lisbon --json", "the same, for a script"),
    ],
    exits=ASKING,
)


@verb(app, "show", SHOW)
def show(
    context: typer.Context,
    site: Annotated[str, typer.Argument(metavar="SITE", help="the site's name", autocompletion=completion.site_names)],
    as_json: Json = False,
) -> int:
    """Print a site."""
    output = invocation(context).output
    found = invocation(context).client().site(site)
    if as_json:
        output.record("site", found)
    else:
        output.facts(
            [
                ("site", safe(found.site)),
                ("state", "connected" if found.connected else "dark"),
                ("since", output.time(found.since, "-")),
                ("last seen", output.time(found.last_seen)),
                ("devices", f"{number(found.devices)}, {number(found.present)} present"),
                ("version", safe(found.version or "-")),
                ("fingerprint", safe(found.fingerprint or "-")),
                ("address", safe(found.address or "-")),
                ("confirmed", f"up to sequence {number(found.confirmed_sequence)}"),
            ]
        )
    return EXIT_OK


def number(count: int | None) -> str:
    """A count with separators, or a dash for one that nobody has told."""
    return "-" if count is None else f"{count:,}"
