"""``outstation keys``: which sites may join."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from device_agent.errors import EXIT_OK, NotFound
from gateway.cli import completion
from gateway.cli.command import ASKING, HelpText, invocation, noun, verb
from gateway.cli.text import safe

if TYPE_CHECKING:
    from gateway.cli.views import KeyView

STATES = {
    "pending": "a site that wants to join; nothing is sent to it",
    "accepted": "a site that belongs here",
    "rejected": "a site that was turned away",
    "denied": "another key that claims the name of an accepted site",
}
STYLES = {"pending": "yellow", "accepted": "green", "rejected": "red", "denied": "red"}

app = noun(
    HelpText(
        purpose="Keys: which sites may join this station.",
        explained={"States": STATES},
        examples=[
            ("outstation keys list", "who has knocked"),
            ("outstation keys accept lisbon", "let the site in"),
        ],
        exits=ASKING,
    )
)

Json = Annotated[bool, typer.Option("--json", help="one JSON object per key")]
Site = Annotated[str, typer.Argument(metavar="SITE", help="the site's name", autocompletion=completion.key_names)]
Fingerprint = Annotated[
    str | None,
    typer.Option(metavar="FINGERPRINT", help="which key of this name (default: the only one that can be meant)"),
]

LIST = HelpText(
    purpose="List the keys of sites; the station's own is said on stderr.",
    explained={
        "Columns": {
            "site": "the name that the key claims",
            "state": "see below",
            "fingerprint": "what to compare with what the gateway itself shows",
            "first seen": "when it first knocked",
            "last seen": "when it last did",
            "address": "from where",
        },
        "States": STATES,
    },
    examples=[
        ("outstation keys list", "who has knocked"),
        ("outstation keys list --json", "the station's own key first, for a script"),
    ],
    exits=ASKING,
)


@verb(app, "list", LIST)
def list_keys(context: typer.Context, as_json: Json = False) -> int:
    """Print a table of keys."""
    output = invocation(context).output
    answer = invocation(context).client().keys()
    if as_json:
        if answer.station is not None:
            output.record("station", answer.station)
        for key in answer.keys:
            output.record("key", key)
        return EXIT_OK
    rows = [
        (
            safe(key.site),
            (safe(key.state), STYLES.get(key.state, "")),
            safe(key.fingerprint),
            output.age(key.first_seen),
            output.age(key.last_seen),
            safe(key.address or "-"),
        )
        for key in answer.keys
    ]
    if not output.table(("site", "state", "fingerprint", "first seen", "last seen", "address"), rows):
        output.note("no keys: no site has knocked yet")
    if answer.station is not None:
        output.note(f"this station's public key:  {safe(answer.station.public_key)}")
        output.note(f"             fingerprint:  {safe(answer.station.fingerprint)}")
    return EXIT_OK


ACCEPT = HelpText(
    purpose="Accept the key of a site, so that it belongs here.",
    details="Compare the fingerprint with what the gateway shows before you accept it.",
    examples=[
        ("outstation keys accept lisbon", "the key that waits under this name"),
        ("outstation keys accept lisbon --fingerprint FINGERPRINT", "this one of several"),
    ],
    exits=ASKING,
)


@verb(app, "accept", ACCEPT)
def accept(context: typer.Context, site: Site, fingerprint: Fingerprint = None, as_json: Json = False) -> int:
    """Accept a key."""
    return _decide(context, site, "accept", fingerprint, as_json)


REJECT = HelpText(
    purpose="Reject the key of a site, so that it is turned away.",
    examples=[
        ("outstation keys reject lisbon", "the key under this name"),
        ("outstation keys reject lisbon --fingerprint FINGERPRINT", "this one of several"),
    ],
    exits=ASKING,
)


@verb(app, "reject", REJECT)
def reject(context: typer.Context, site: Site, fingerprint: Fingerprint = None, as_json: Json = False) -> int:
    """Reject a key."""
    return _decide(context, site, "reject", fingerprint, as_json)


def _decide(context: typer.Context, site: str, verdict: str, fingerprint: str | None, as_json: bool) -> int:
    output = invocation(context).output
    changed: list[KeyView] = invocation(context).client().decide_key(site, verdict, fingerprint)
    if not changed:
        raise NotFound(f"no key of {site} is waiting for that", hint="outstation keys list")
    for key in changed:
        if as_json:
            output.record("key", key)
        else:
            output.line((safe(key.state), STYLES.get(key.state, "")), f" {safe(key.site)} {safe(key.fingerprint)}")
    return EXIT_OK
