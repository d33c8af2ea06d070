"""``outstation keys``: which devices and sites belong here, and what lets devices in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK, NotFound
from gateway.cli import completion, join_tokens, key_acceptance, windows
from gateway.cli.command import ASKING, HelpText, invocation, noun, verb
from gateway.cli.key_words import STATES, STYLES, Json, OfDevice, OfSite, kind_of, say
from gateway.cli.sites import confirmed
from gateway.cli.text import safe, tally

if TYPE_CHECKING:
    from gateway.cli.key_client import KeyClient
    from gateway.cli.key_views import KeyView, StationKey
    from gateway.cli.output import Output, Styled

app = noun(
    HelpText(
        purpose="Keys: which devices and sites belong to this station, and what lets devices in.",
        details="On a gateway they are those of devices, on a master those of sites, on a relay both.",
        explained={"States": STATES},
        examples=[
            ("outstation keys list", "who has knocked, and who belongs here"),
            ("outstation keys accept B8A44F --fingerprint FINGERPRINT", "let a device in"),
        ],
        exits=ASKING,
    )
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="a site's name; a device's name, did, or the serial number it claims",
        autocompletion=completion.key_names,
    ),
]
Fingerprint = Annotated[
    str | None,
    typer.Option(metavar="FINGERPRINT", help="which key of this name (default: the only one that can be meant)"),
]
LIST = HelpText(
    purpose="List the keys of devices and sites; the station's own is said on stderr.",
    explained={
        "Columns": {
            "name": "the name; the did of a device that has none yet",
            "kind": "device or site",
            "state": "see below",
            "fingerprint": "what to compare with what the device or the gateway itself shows",
            "serial": "the serial number that a device claims",
            "first seen": "when it first knocked",
            "last seen": "when it last did",
            "address": "from where, if that is known",
            "remark": "why a device still waits; unproven when nothing proved which one it is; what was refused of it",
        },
        "States": STATES,
    },
    examples=[
        ("outstation keys list --state pending", "who has knocked"),
        ("outstation keys list --json", "the station's own key first, for a script"),
    ],
    exits=ASKING,
)
COLUMNS = ("name", "kind", "state", "fingerprint", "serial", "first seen", "last seen", "address", "remark")


@verb(app, "list", LIST)
def list_keys(
    context: typer.Context,
    state: Annotated[str | None, typer.Option(metavar="STATE", help="only keys in this state (default: all)")] = None,
    sites: Annotated[bool, typer.Option("--sites", help="only those of sites")] = False,
    devices: Annotated[bool, typer.Option("--devices", help="only those of devices")] = False,
    expected: Annotated[bool, typer.Option("--expected", help="the keys that are expected, instead")] = False,
    as_json: Json = False,
) -> int:
    """Print a table of keys."""
    from gateway.cli.key_client import KeyClient

    output = invocation(context).output
    client = KeyClient(invocation(context).client())
    if expected:
        return _list_expected(output, client, as_json)
    station: StationKey | None = None
    rows = []
    for page in client.pages({"state": state, "kind": kind_of(sites, devices)}):
        if station is None and page.station is not None:
            station = page.station
            if as_json:
                output.record("station", station)
        for key in page.keys:
            if as_json:
                output.record("key", key)
            else:
                rows.append(_row(output, key))
    if as_json:
        return EXIT_OK
    if not output.table(COLUMNS, rows):
        chosen = state or sites or devices
        output.note("no such keys; all: outstation keys list" if chosen else "no keys: nobody has knocked yet")
    if station is not None:
        output.note(f"this station's public key:  {safe(station.public_key)}")
        output.note(f"             fingerprint:  {safe(station.fingerprint)}")
    return EXIT_OK


def _row(output: Output, key: KeyView) -> list[str | Styled]:
    return [
        safe(key.label),
        safe(key.kind),
        (safe(key.state), STYLES.get(key.state, "")),
        safe(key.fingerprint),
        safe(key.serial or "-"),
        output.age(key.first_seen),
        output.age(key.last_seen),
        safe(key.address or "-"),
        safe("; ".join(words for words in (key.detail, "unproven" if key.unproven else "", _refused(key)) if words)),
    ]


def _refused(key: KeyView) -> str:
    return f"refused {tally(key.refused)}" if key.refused else ""


def _list_expected(output: Output, client: KeyClient, as_json: bool) -> int:
    rows = []
    for entry in client.expected():
        if as_json:
            output.record("expected", entry)
        rows.append((safe(entry.key), safe(entry.name or "-"), output.age(entry.added), safe(entry.added_by)))
    if not as_json and not output.table(("key", "name", "added", "added by"), rows):
        output.note("no key is expected:  outstation keys accept --expected FILE")
    return EXIT_OK


SHOW = HelpText(
    purpose="Show everything that is known of a key.",
    examples=[
        ("outstation keys show cam-0001", "by its name"),
        ("outstation keys show B8A44F --json", "each device that claims this serial number"),
    ],
    exits=ASKING,
)


@verb(app, "show", SHOW)
def show(
    context: typer.Context, name: Name, site: OfSite = False, device: OfDevice = False, as_json: Json = False
) -> int:
    """Print a key, or each that is meant."""
    from gateway.cli.key_client import KeyClient

    output = invocation(context).output
    found = KeyClient(invocation(context).client()).find(name, kind_of(site, device))
    if not found:
        raise NotFound(f"no key of {name}", hint="outstation keys list")
    for key in found:
        if as_json:
            output.record("key", key)
            continue
        facts = [
            ("name", safe(key.name or "-")),
            ("kind", safe(key.kind)),
            ("site", safe(key.site)),
            ("state", safe(key.state)),
            ("fingerprint", safe(key.fingerprint)),
            ("did", safe(key.did)),
            ("serial", safe(key.serial)),
            ("model", safe(key.model)),
            ("address", safe(key.address or "")),
            ("proof", safe(f"{key.proof}{', unproven' if key.unproven else ''}")),
            ("accepted by", safe(key.accepted_by)),
            ("accepted", output.time(key.accepted_at, "")),
            ("confirmed", output.time(key.confirmed_at, "")),
            ("first seen", output.time(key.first_seen)),
            ("last seen", output.time(key.last_seen)),
            ("remark", safe(key.detail)),
            ("refused", tally(key.refused)),
        ]
        output.facts([(what, words) for what, words in facts if words])
    return EXIT_OK


key_acceptance.add(app)

REJECT = HelpText(
    purpose="Turn away the key of a device or a site that wants to join.",
    details="What is expected is expected no more. A device that belongs here already is not rejected but revoked.",
    examples=[
        ("outstation keys reject lisbon", "the key under this name"),
        ("outstation keys reject B8A44F --fingerprint FINGERPRINT", "this one of several"),
    ],
    exits=ASKING,
)


@verb(app, "reject", REJECT)
def reject(
    context: typer.Context,
    name: Name,
    fingerprint: Fingerprint = None,
    site: OfSite = False,
    device: OfDevice = False,
    as_json: Json = False,
) -> int:
    """Reject a key."""
    from gateway.cli.key_client import KeyClient

    output = invocation(context).output
    client = KeyClient(invocation(context).client())
    changed = client.decide(name, "reject", {"fingerprint": fingerprint, "kind": kind_of(site, device)})
    if not changed.keys and not changed.expected_no_more:
        raise NotFound(f"no key of {name} is waiting for that", hint="outstation keys list")
    say(output, changed.keys, as_json)
    for key in changed.expected_no_more:
        output.note(f"expected no more: {safe(key)}")
    return EXIT_OK


REVOKE = HelpText(
    purpose="Put a device or a site out for good: stolen, cloned, or scrapped.",
    details="Its key counts no more, here or anywhere. What replaces it joins with a key of its own.",
    examples=[
        ("outstation keys revoke cam-0001 --why 'stolen from the gate'", "asks first, on a terminal"),
        ("outstation keys revoke cam-0001 --why stolen --yes", "in a script"),
    ],
    exits=ASKING,
)


@verb(app, "revoke", REVOKE)
def revoke(
    context: typer.Context,
    name: Name,
    why: Annotated[str, typer.Option(metavar="TEXT", help="the reason, for the audit")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    site: OfSite = False,
    device: OfDevice = False,
    as_json: Json = False,
) -> int:
    """Revoke a key."""
    from gateway.cli.key_client import KeyClient

    output = invocation(context).output
    client = KeyClient(invocation(context).client())
    if not yes and not confirmed(f"Revoke {safe(name)}, for good?"):
        output.note("nothing was changed")
        return EXIT_NOT_ALL_OK
    changed = client.decide(name, "revoke", {"why": why, "kind": kind_of(site, device)})
    say(output, changed.keys, as_json)
    return EXIT_OK


app.add_typer(windows.app, name="window")
app.add_typer(join_tokens.app, name="token")
