"""``outstation devices``: what a station knows of its devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from device_agent.errors import EXIT_OK
from gateway.cli import completion, ssh_devices, ssh_import, targets
from gateway.cli.command import ASKING, HelpText, invocation, noun, verb
from gateway.cli.text import safe, shown, tally

if TYPE_CHECKING:
    from gateway.cli.match_views import Because
    from gateway.cli.output import Output
    from gateway.cli.views import DeviceView

app = noun(
    HelpText(
        purpose="Devices: which there are, whether they are here, and what they say of themselves.",
        examples=[
            ("outstation devices list", "every device"),
            ("outstation devices show cam-0001", "one device with its grains"),
        ],
        exits=ASKING,
    )
)

Json = Annotated[bool, typer.Option("--json", help="one JSON object per device")]
Site = Annotated[
    str | None,
    typer.Option(metavar="SITE", help="only of this site (default: all)", autocompletion=completion.site_names),
]

LIST = HelpText(
    purpose="List devices, all of them or those that a target matches.",
    explained={
        "Targets": targets.TARGETS,
        "Columns": {
            "id": "the device's name, which targets match",
            "site": "whose device it is",
            "link": "how it is reached",
            "present": "yes when it is here now",
            "last seen": "when it was last heard",
            "agent": "the release of its agent",
        },
    },
    examples=[
        ("outstation devices list 'cam-1*'", "by name"),
        ("outstation devices list -G os:Debian --json", "by grain, for a script"),
    ],
    exits=ASKING,
)


@verb(app, "list", LIST)
@targets.read_as
def list_devices(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="[TARGET]", help="which devices")] = "*",
    *,
    read: targets.As,
    site: Site = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="at most so many devices (default: all)")
    ] = None,
    as_json: Json = False,
) -> int:
    """Print a table of devices."""
    meant = read(target)
    output = invocation(context).output
    query = {**meant, "site": site, "stations": "true" if (target, meant["tgt_type"]) == ("*", "glob") else None}
    found = invocation(context).client().devices(query, limit)
    if as_json:
        for device in found:
            output.record("device", device)
        return EXIT_OK
    rows = (
        (
            safe(device.id),
            safe(device.site or "-"),
            safe(device.link or "-"),
            ("yes", "green") if device.present else ("no", "yellow"),
            output.age(device.last_seen),
            safe(device.agent or "-"),
        )
        for device in found
    )
    if not output.table(("id", "site", "link", "present", "last seen", "agent"), rows):
        output.note(f"no device matched {safe(target)}{f' at site {safe(site)}' if site else ''}")
    return EXIT_OK


MATCH = HelpText(
    purpose="Show which devices a target means, those that are away too, and why; nothing is done to them.",
    explained={
        "Targets": targets.TARGETS,
        "Columns": {
            "id": "the device's name",
            "site": "whose device it is",
            "present": "yes when it is here now",
            "why": "the terms of the target that were true of it, each with what of the device made it so",
        },
    },
    examples=[
        ("outstation devices match -C 'G@os:Debian and not cam-1*'", "whom a job would mean, and why"),
        ("outstation devices match -N dock-cameras --json", "a nodegroup, for a script"),
    ],
    exits=ASKING,
)


@verb(app, "match", MATCH)
@targets.read_as
def match(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="which devices", autocompletion=completion.targets)],
    *,
    read: targets.As,
    site: Site = None,
    as_json: Json = False,
) -> int:
    """Print a table of devices with reasons, and how many they are."""
    from gateway.cli.match_views import MatchPage

    meant: dict[str, Any] = read(target)
    output, client = invocation(context).output, invocation(context).client()
    if site is not None:
        meant["site"] = site
    first = page = client.ask("POST", "/match", MatchPage, body=meant)
    found = list(page.devices)
    while page.next is not None:
        page = client.ask("POST", "/match", MatchPage, body={**meant, "after": page.next})
        found += page.devices
    if as_json:
        for device in found:
            output.record("device", device)
        return EXIT_OK
    rows = (
        (
            safe(device.id),
            safe(device.site or "-"),
            ("yes", "green") if device.present else ("no", "yellow"),
            ", ".join(_because(because, device.id) for because in device.why),
        )
        for device in found
    )
    output.table(("id", "site", "present", "why"), rows)
    away = first.matched - first.present
    output.note(f"{first.matched:,} of {first.known:,} devices match: {first.present:,} here, {away:,} away")
    if (first.tgt, first.tgt_type) != (target, meant["tgt_type"]):
        output.note(f"signed as {safe(first.tgt_type)}: {safe(first.tgt)}")
    return EXIT_OK


def _because(because: Because, device: str) -> str:
    """A term, with the value that made it true unless that is the id, which stands beside it."""
    if because.value is None or because.value == device:
        return safe(because.term)
    return f"{safe(because.term)} ({shown(because.value)})"


SHOW = HelpText(
    purpose="Show one device with its grains.",
    examples=[
        ("outstation devices show cam-0001", "everything that is known of it"),
        ("outstation devices show cam-0001 --json", "the same, for a script"),
    ],
    exits=ASKING,
)


@verb(app, "show", SHOW)
def show(
    context: typer.Context,
    device: Annotated[
        str, typer.Argument(metavar="ID", help="the device's name", autocompletion=completion.device_names)
    ],
    site: Site = None,
    as_json: Json = False,
) -> int:
    """Print a device, or each of this id where sites share it."""
    output = invocation(context).output
    for found in invocation(context).client().device(device, site):
        if as_json:
            output.record("device", found)
            continue
        output.facts(
            [
                ("id", safe(found.id)),
                ("site", safe(found.site or "-")),
                ("link", safe(found.link or "-")),
                ("present", "yes" if found.present else "no"),
                ("last seen", output.time(found.last_seen)),
                ("first seen", output.time(found.first_seen)),
                ("agent", safe(found.agent or "-")),
                *_enrollment(found, output),
                *_ssh(found),
                *([("refused", tally(found.refused))] if found.refused else []),
                *([("refused there", tally(found.refused_there))] if found.refused_there else []),
                *(("grain", f"{safe(name)} = {shown(grain)}") for name, grain in sorted((found.grains or {}).items())),
            ]
        )
    return EXIT_OK


ssh_devices.add_to(app)
ssh_import.add_to(app)


def _enrollment(device: DeviceView, output: Output) -> Iterator[tuple[str, str]]:
    """By which key it belongs to its site; who let it in, when, and by which proof."""
    if not device.state:
        return
    yield "state", safe(device.state)
    yield "fingerprint", safe(device.fingerprint or "-")
    if device.accepted_by:
        proof = f", by {safe(device.proof)}" if device.proof else ""
        unproven = ", unproven: it is what it says of itself" if device.unproven else ""
        yield "accepted", f"{output.time(device.accepted_at or None)} by {safe(device.accepted_by)}{proof}{unproven}"
    for name, fact in (("serial", device.serial), ("model", device.model)):
        if fact:
            yield name, safe(fact)


def _ssh(device: DeviceView) -> Iterator[tuple[str, str]]:
    """Where it is reached over SSH, and by which host keys it is known."""
    if not device.ssh:
        return
    through = f" through {safe(device.ssh.jump)}" if device.ssh.jump else ""
    alone = "" if device.ssh.enabled else ", left alone"
    yield "ssh", f"{safe(device.ssh.address)} by {safe(device.ssh.login)}{through}{alone}"
    if device.ssh.state:
        why = f": {safe(device.ssh.why)}" if device.ssh.why else ""
        yield "over ssh", f"{safe(device.ssh.state)}{why}"
    if device.ssh.trouble and device.ssh.trouble != device.ssh.why:
        yield "ssh trouble", safe(device.ssh.trouble)
    for fingerprint in device.ssh.fingerprints:
        yield "host key", safe(fingerprint)
