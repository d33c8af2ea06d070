"""``outstation keys accept``: one key by its fingerprint, a list of expected ones, or devices by a pattern."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK, NotFound, UsageInvalid
from device_agent.protocol import limits
from device_agent.utf8_text import NotUtf8, utf8_text
from gateway.cli import completion
from gateway.cli.command import ASKING, HelpText, invocation, verb
from gateway.cli.csv_separator import check_separator
from gateway.cli.key_words import Json, OfDevice, OfSite, kind_of, say
from gateway.cli.sites import confirmed
from gateway.cli.text import safe

if TYPE_CHECKING:
    from gateway.cli.key_client import KeyClient
    from gateway.cli.key_views import KeyPage, KeyView
    from gateway.cli.output import Output

LIST_BYTES = 16 * 1024 * 1024
HEADINGS = ("key", "did", "fingerprint")
SHOWN = 20
KEY = re.compile(r"(?:[a-z2-7]{26}|(?:[a-z2-7]{4}[- ]?){4})\Z", re.IGNORECASE)

DAYS = limits.CERTIFICATE_DAYS
ACCEPT = HelpText(
    purpose="Accept a device or a site, so that it belongs here.",
    details="A device is accepted by its fingerprint, as the device itself shows it: type it, or be asked for it. "
    "A list of expected keys lets devices in as they come. A pattern over serial numbers proves nothing: it needs an "
    "open join window, and what it lets in is marked as unproven for ever.",
    examples=[
        ("outstation keys accept B8A44F --fingerprint FINGERPRINT --name gate", "the device with this fingerprint"),
        ("outstation keys accept lisbon --grant 'camera.*' --days 7", "a site, and what it may order by itself"),
    ],
    exits=ASKING,
)


def add(app: typer.Typer) -> None:
    """Add the command to its noun."""
    verb(app, "accept", ACCEPT)(accept)


def accept(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="a site's name; a device's did, or the serial number it claims",
            autocompletion=completion.key_names,
        ),
    ] = None,
    fingerprint: Annotated[
        str | None, typer.Option(metavar="FINGERPRINT", help="what the device shows; which of a site's keys")
    ] = None,
    called: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="what a device is called, or a template: {serial}, {model}, {did}, {number:04} (default: {serial})",
        ),
    ] = None,
    expected: Annotated[
        Path | None, typer.Option(metavar="FILE", help="expect the keys in this CSV file: did or fingerprint, and name")
    ] = None,
    serial: Annotated[
        str | None,
        typer.Option("--serial", "--pattern", metavar="GLOB", help="devices that claim such a serial number"),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="with --serial: do not ask")] = False,
    grant: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="functions a site may order by itself; more than once")
    ] = None,
    origin: Annotated[str, typer.Option(metavar="ORIGIN", help="with --grant: for this origin, such as salt")] = "",
    only: Annotated[
        bool, typer.Option("--only", help="with --grant: these, and no more what was granted before")
    ] = False,
    days: Annotated[int, typer.Option(metavar="N", min=0, max=DAYS, help="days a certificate lasts; 0: as it is")] = 0,
    request: Annotated[
        Path | None, typer.Option(metavar="FILE", help="what `gateway init` printed at a site that never knocked")
    ] = None,
    bundle: Annotated[
        Path | None, typer.Option(metavar="FILE", help="with --request: write what the site needs")
    ] = None,
    site: OfSite = False,
    device: OfDevice = False,
    as_json: Json = False,
) -> int:
    """Accept keys."""
    from gateway.cli.key_client import KeyClient

    output = invocation(context).output
    if sum(given is not None for given in (name, expected, serial)) != 1:
        raise UsageInvalid(
            "one of NAME, --expected and --serial says which keys are meant", hint=str(context.command_path)
        )
    client = KeyClient(invocation(context).client())
    if expected is not None:
        return _expect(output, client, _listed(expected), as_json)
    if serial is not None:
        return _accept_matching(output, client, serial, called, yes, as_json)
    assert name is not None
    kind = kind_of(site, device)
    body: dict[str, Any] = {"fingerprint": fingerprint, "kind": kind}
    if grant or origin or only or days:
        body |= {"grants": grant or [], "origin": origin, "only": only, "days": days}
    if request is not None:
        changed = client.decide(name, "accept", {**body, "request": _read(request)})
        _write(bundle, changed)
    else:
        chosen = _chosen(client, name, kind)
        if chosen[0].kind == "device":
            typed = fingerprint or _asked_for(chosen)
            meant = next((key for key in chosen if _same(typed, key.fingerprint)), chosen[0])
            name, body = meant.did, {**body, "fingerprint": typed, "kind": "device", "name": called}
        changed = client.decide(name, "accept", body)
    say(output, changed.keys, as_json)
    return EXIT_OK


def _chosen(client: KeyClient, name: str, kind: str | None) -> list[KeyView]:
    """The keys that may be meant, all of one kind."""
    found = client.find(name, kind)
    if not found:
        raise NotFound(f"no key of {name} is waiting for that", hint="outstation keys list")
    if len({key.kind for key in found}) > 1:
        raise UsageInvalid(
            f"{name} is a site and a device here",
            error_id="keys.site_or_device",
            allowed="one of them: --site or --device",
            hint=f"outstation keys show {name}",
        )
    waiting = [key for key in found if key.state not in ("accepted", "revoked")]
    return waiting or found


def _asked_for(chosen: Sequence[KeyView]) -> str:
    """The fingerprint of a device, typed on the terminal; it is not shown there, or nobody would compare it."""
    label = safe(chosen[0].serial or chosen[0].did)
    if not sys.stdin.isatty():
        raise UsageInvalid(
            "the fingerprint of a device is needed: it alone says which device asks",
            error_id="keys.fingerprint_needed",
            allowed="what the device itself shows: on its screen, its console, or its label",
            hint=f"outstation keys accept {label} --fingerprint FINGERPRINT",
        )
    sys.stderr.write(f"The fingerprint that {label} itself shows, on its screen, console or label: ")
    sys.stderr.flush()
    return sys.stdin.readline().strip()


def _same(typed: str, shown: str) -> bool:
    from device_agent.trust.keys import same_fingerprint

    return same_fingerprint(typed, shown)


def _accept_matching(
    output: Output, client: KeyClient, serial: str, called: str | None, yes: bool, as_json: bool
) -> int:
    found = client.matching(serial)
    if not found:
        raise NotFound(
            f"no device that waits in the join window claims such a serial number: {serial}",
            hint="outstation keys list --state pending",
        )
    output.note(
        f"{len(found)} devices claim a serial number like {safe(serial)}, and nothing proves that they have it:"
    )
    for key in found[:SHOWN]:
        output.note(f"  {safe(key.serial)}  {safe(key.model)}  {safe(key.fingerprint)}  {safe(key.address or '-')}")
    if len(found) > SHOWN:
        output.note(f"  … and {len(found) - SHOWN} more:  outstation keys list --state pending")
    if not yes and not confirmed(f"Accept {len(found)} devices, marked as unproven for ever?"):
        output.note("nothing was changed")
        return EXIT_NOT_ALL_OK
    return _said(output, client.accept_matching(serial, [key.did for key in found], called), as_json)


def _expect(output: Output, client: KeyClient, listed: Sequence[tuple[str, str]], as_json: bool) -> int:
    status = EXIT_OK
    expected = 0
    for page in client.expect(listed):
        expected += page.expected
        status = max(status, _said(output, page, as_json))
    output.note(f"{expected} keys are expected:  outstation keys list --expected")
    return status


def _said(output: Output, page: KeyPage, as_json: bool) -> int:
    say(output, page.keys, as_json)
    for did, why in page.waiting.items():
        output.note(f"{safe(did)} still waits: {safe(why)}")
    return EXIT_NOT_ALL_OK if page.waiting else EXIT_OK


def _listed(path: Path) -> list[tuple[str, str]]:
    """The keys in a CSV file, each with its name or with none. Raises ``UsageInvalid``."""
    listed: list[tuple[str, str]] = []
    for number, line in enumerate(_read(path).splitlines(), 1):
        cells = [cell.strip() for cell in next(csv.reader([line]), [])]
        if not any(cells) or cells[0].startswith("#") or (not listed and cells[0].lower() in HEADINGS):
            continue
        if not KEY.match(cells[0]):
            check_separator(path, number, line, lambda cells: bool(KEY.match(cells[0])) or cells[0].lower() in HEADINGS)
            raise UsageInvalid(
                "neither a did nor a fingerprint",
                error_id="expected.key",
                where=f"{path}:{number}",
                found=cells[0][:60],
                allowed="a did (26 letters and digits) or a fingerprint (4 groups of 4), and a name after a comma",
            )
        listed.append((cells[0], cells[1] if len(cells) > 1 else ""))
    if not listed:
        raise UsageInvalid("there is no key in this file", where=str(path), allowed="lines of: did or fingerprint,name")
    return listed


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return utf8_text(file.read(LIST_BYTES))
    except OSError as error:
        raise UsageInvalid("the file cannot be read", where=str(path), found=str(error)) from None
    except NotUtf8 as error:
        raise error.of_file(UsageInvalid, path) from None


def _write(path: Path | None, changed: KeyPage) -> None:
    if path is None:
        sys.stdout.write(f"{changed.bundle}\n")
        return
    try:
        path.write_text(f"{changed.bundle}\n", encoding="ascii")
    except OSError as error:
        raise UsageInvalid("the bundle cannot be written", where=str(path), found=str(error)) from None
