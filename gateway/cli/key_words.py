"""What the commands about keys have in common: states, options, and how a decision is repeated."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from device_agent.errors import UsageInvalid
from gateway.cli.text import safe

if TYPE_CHECKING:
    from gateway.cli.key_views import KeyView
    from gateway.cli.output import Output

STATES = {
    "pending": "wants to join; nothing is sent to it until somebody accepts it",
    "accepted": "belongs here",
    "quarantined": "a device of which two were seen with one identity: accept it again, or revoke it",
    "rejected": "was turned away",
    "revoked": "belonged here, and never will again",
    "denied": "another key that claims the name of an accepted site",
}
STYLES = {
    "pending": "yellow",
    "accepted": "green",
    "quarantined": "magenta",
    "rejected": "red",
    "revoked": "red",
    "denied": "red",
}

Json = Annotated[bool, typer.Option("--json", help="one JSON object per key")]
OfSite = Annotated[bool, typer.Option("--site", help="the site of this name")]
OfDevice = Annotated[bool, typer.Option("--device", help="the device of this name")]


def kind_of(site: bool, device: bool) -> str | None:
    """The kind of key that the options ask for. Raises ``UsageInvalid`` when both were given."""
    if site and device:
        raise UsageInvalid("a key is that of a site or that of a device", found="--site and --device")
    return "site" if site else "device" if device else None


def say(output: Output, changed: Iterable[KeyView], as_json: bool) -> None:
    """Repeat what was decided, a line for each key."""
    for key in changed:
        if as_json:
            output.record("key", key)
        else:
            output.line((safe(key.state), STYLES.get(key.state, "")), f" {safe(key.label)} {safe(key.fingerprint)}")
