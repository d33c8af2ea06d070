"""``outstation sites``: the sites under a master."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK, NotFound, UsageInvalid
from gateway.cli import completion
from gateway.cli.command import ASKING, HelpText, invocation, noun, verb
from gateway.cli.text import safe

if TYPE_CHECKING:
    from gateway.cli.client import StationClient
    from gateway.cli.views import SiteView

Site = Annotated[str, typer.Argument(metavar="SITE", help="the site's name", autocompletion=completion.site_names)]
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
            "state": "connected, or dark when nothing is heard of it; with a reason (store_failed, spool_full, busy) it"
            " takes no job; fenced: a second gateway with a copy of its store knocks and is not let in",
            "role": "active: the site sends everything here; standby: to another master, but takes jobs from here",
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
            _state(site),
            safe(site.role or "-"),
            output.age(site.since, "-"),
            output.age(site.last_seen),
            number(site.devices),
            number(site.present),
            safe(site.version or "-"),
        )
        for site in sites
    ]
    columns = ("site", "state", "role", "since", "last seen", "devices", "present", "version")
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
    site: Site,
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
                ("state", _state(found)[0]),
                *(
                    [("fenced", f"{safe(found.twin.address)}, {number(found.twin.count)} times")]
                    if found.twin is not None and found.twin.address
                    else []
                ),
                *(("takes no job", safe(fault.words)) for fault in found.faults),
                ("role", safe(found.role or "-")),
                ("since", output.time(found.since, "-")),
                ("last seen", output.time(found.last_seen)),
                ("devices", f"{number(found.devices)}, {number(found.present)} present"),
                ("version", safe(found.version or "-")),
                ("fingerprint", safe(found.fingerprint or "-")),
                ("address", safe(found.address or "-")),
                ("confirmed", ", ".join(f"{stream} {at:,}" for stream, at in found.confirmed.items()) or "-"),
            ]
        )
    return EXIT_OK


REVOKE = HelpText(
    purpose="Put a site's gateway out for good: stolen, taken over, or scrapped.",
    details="Its certificate and its keys count no more. Devices hear of it by any path that still reaches them; "
    "a replacement joins under the same name with keys of its own, and takes the devices over.",
    examples=[
        ("outstation sites revoke lisbon --why 'stolen from the cabinet'", "asks first, on a terminal"),
        ("outstation sites revoke lisbon --why stolen --yes", "in a script"),
    ],
    exits=ASKING,
)


@verb(app, "revoke", REVOKE)
def revoke(
    context: typer.Context,
    site: Site,
    why: Annotated[str, typer.Option(metavar="TEXT", help="the reason, for the audit")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    as_json: Json = False,
) -> int:
    """Revoke a site."""
    output = invocation(context).output
    client = invocation(context).client()
    if not yes and not confirmed(f"Revoke {safe(site)}{_with_devices(client, site)}, for good?"):
        output.note("nothing was changed")
        return EXIT_NOT_ALL_OK
    revoked = client.revoke_site(site, why)
    if as_json:
        output.record("site", revoked)
    else:
        output.line(("revoked", "red"), f" {safe(site)}")
    return EXIT_OK


UNFENCE = HelpText(
    purpose="Of two gateways that run with copies of one store, let in the one that is fenced.",
    details="It begins under a new name for its sequences, and so brings what it has beside what the other brought. "
    "The other is fenced in its turn, if it still runs. Stop the wrong one first.",
    examples=[
        ("outstation sites unfence lisbon", "the one that knocks is the right one"),
        ("outstation sites unfence lisbon --json", "the same, for a script"),
    ],
    exits=ASKING,
)


@verb(app, "unfence", UNFENCE)
def unfence(
    context: typer.Context,
    site: Site,
    as_json: Json = False,
) -> int:
    """Let the fenced gateway in."""
    output = invocation(context).output
    done = invocation(context).client().unfence_site(site)
    if as_json:
        output.record("site", done)
    else:
        output.line(f"unfenced {safe(site)}: the gateway that knocks is let in, the one that was is not")
    return EXIT_OK


TOKEN = HelpText(
    purpose="Print the token with which gateways find this master.",
    details="It names the fleet, this master's key and its addresses, and holds nothing secret: who joins with "
    "it still waits until the site is accepted here. It has letters that a shell takes for its own.",
    examples=[
        ("outstation sites token --file site.token", "for `outstation gateway join --token-file site.token`"),
        ("outstation sites token --address tcp://203.0.113.7:4510", "by another address than the root list has"),
    ],
    exits=ASKING,
)


@verb(app, "token", TOKEN)
def token(
    context: typer.Context,
    address: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="tcp://HOST:PORT of this master (default: the root list's)")
    ] = None,
    file: Annotated[Path | None, typer.Option(metavar="FILE", help="write it to this file too")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> int:
    """Print the token for gateways."""
    from gateway.cli import fleet_views

    output = invocation(context).output
    found = fleet_views.site_token(invocation(context).client(), address)
    if as_json:
        output.record("site_token", found)
    else:
        output.line(safe(found.token))
    if file is not None:
        from gateway.fleet.private_file import write_private

        write_private(file, found.token.encode() + b"\n")
    output.note(f"fleet {safe(found.root)} at {safe(', '.join(found.addresses))}")
    output.note("on the gateway:  outstation gateway join 'TOKEN'   and here then:  outstation keys accept SITE")
    return EXIT_OK


def _state(site: SiteView) -> tuple[str, str]:
    """How a site stands, with its colour."""
    words, colour = ("connected", "green") if site.connected else ("dark", "magenta")
    if site.faults:
        words, colour = ", ".join((words, *dict.fromkeys(safe(fault.reason) for fault in site.faults))), "red"
    return (f"{words}, fenced", "red") if site.twin is not None and site.twin.address else (words, colour)


def _with_devices(client: StationClient, site: str) -> str:
    """How many devices a site has; nothing of one behind a relay, which is revoked here all the same."""
    try:
        return f" with {number(client.site(site).devices)} devices"
    except NotFound:
        return ""


def confirmed(question: str) -> bool:
    """Ask on the terminal; without one the answer is no. Raises ``UsageInvalid`` there, since nobody was asked."""
    if not sys.stdin.isatty():
        raise UsageInvalid("nobody can be asked here", allowed="a terminal, or --yes", hint="add --yes")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def number(count: int | None) -> str:
    """A count with separators, or a dash for one that nobody has told."""
    return "-" if count is None else f"{count:,}"
