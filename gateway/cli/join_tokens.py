"""``outstation keys token``: a text or a QR code that lets a device in by itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from device_agent.clock import iso
from device_agent.errors import EXIT_OK
from device_agent.protocol import limits
from gateway.cli import completion
from gateway.cli.arguments import duration
from gateway.cli.command import ASKING, HelpText, invocation, noun, verb
from gateway.cli.text import safe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.cli.key_views import JoinTokenView
    from gateway.cli.output import Output

STATES = {
    "open": "it lets devices in",
    "used": "as many came by it as it was made for",
    "expired": "its time is over",
    "revoked": "somebody ended it",
}
STYLES = {"open": "green", "used": "", "expired": "yellow", "revoked": "red"}

app = noun(
    HelpText(
        purpose="Join tokens: each lets a device in by itself, once, for a day.",
        details="A token proves the device to the site and the site to the device, over a broker that nobody trusts.",
        explained={"States": STATES},
        examples=[
            ("outstation keys token new", "shown as text, and on a terminal as a QR code"),
            ("outstation keys token new --count 20 --png label.png", "labels: label-1.png to label-20.png"),
        ],
        exits=ASKING,
    )
)

Json = Annotated[bool, typer.Option("--json", help="one JSON object per token")]

NEW = HelpText(
    purpose="Make join tokens and show them this once, as text and on a terminal as a QR code.",
    details="Whoever has the text can let one device into this site. The station keeps its secret until it is used, "
    "expired or revoked, since that is how it knows the device again; then it is deleted.",
    examples=[
        ("outstation keys token new --serial B8A44F --name gate", "for one device, and called so"),
        ("outstation keys token new --uses 50 --for 8h --name 'cam-{number:03}'", "for fifty, while they are mounted"),
    ],
    exits=ASKING,
)


@verb(app, "new", NEW)
def new(
    context: typer.Context,
    uses: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=limits.DEVICES_PER_STATION, help="how many devices each token lets in"),
    ] = 1,
    serial: Annotated[str, typer.Option(metavar="SERIAL", help="only this serial number (default: any)")] = "",
    how_long: Annotated[str, typer.Option("--for", metavar="DURATION", help="how long it can be used")] = "24h",
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="what the device is called, or a template: {serial}, {model}, {did}, {number:04} (default: {serial})",
        ),
    ] = "",
    address: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="where the device finds the broker (default: what the station knows)"),
    ] = "",
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="write the QR code as PNG")] = None,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="write the QR code as SVG")] = None,
    count: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="how many tokens")] = 1,
    as_json: Json = False,
) -> int:
    """Make tokens."""
    from gateway.cli.key_client import KeyClient

    output = invocation(context).output
    seconds = duration("--for", how_long, limits.JOIN_TOKEN_SECONDS)
    _refuse_taken(png, svg, count)
    wish = {"uses": uses, "serial": serial, "seconds": seconds, "name": name, "address": address, "count": count}
    tokens = KeyClient(invocation(context).client()).new_tokens(wish)
    for token in tokens:
        if as_json:
            output.record("join_token", token)
        else:
            output.line(safe(token.text))
    _draw(output, tokens, png, svg, as_json)
    if not as_json:
        until = iso(tokens[0].expires) if tokens and tokens[0].expires is not None else "-"
        each = "token" if len(tokens) == 1 else "tokens"
        output.note(f"{len(tokens)} {each}, until {until}; not shown again, so keep it to yourself")
        output.note("end one:  outstation keys token revoke ID   (outstation keys token list)")
    return EXIT_OK


def _refuse_taken(png: Path | None, svg: Path | None, count: int) -> None:
    from gateway.cli import qr

    if png is not None:
        qr.refuse_taken(png, "png", count)
    if svg is not None:
        qr.refuse_taken(svg, "svg", count)


def _draw(output: Output, tokens: Sequence[JoinTokenView], png: Path | None, svg: Path | None, as_json: bool) -> None:
    from gateway.cli import qr

    texts = [token.text for token in tokens]
    if png is not None:
        for path in qr.write_files(png, "png", texts):
            output.note(f"written: {safe(str(path))}")
    if svg is not None:
        for path in qr.write_files(svg, "svg", texts):
            output.note(f"written: {safe(str(path))}")
    if as_json or not output.on_terminal or len(texts) != 1:
        return
    if qr.width(texts[0]) > os.get_terminal_size().columns:
        output.note(f"the QR code needs a terminal of {qr.width(texts[0])} columns:  --png FILE")
        return
    output.raw(qr.terminal_lines(texts[0]))


LIST = HelpText(
    purpose="List join tokens, newest first; never their text.",
    explained={
        "Columns": {
            "id": "what `keys token revoke` takes",
            "state": "see below",
            "left": "how many devices may still come by it, of how many",
            "serial": "the serial number it is for",
            "name": "what its devices are called",
            "expires": "until when it can be used",
            "made by": "who made it",
        },
        "States": STATES,
    },
    examples=[
        ("outstation keys token list", "which there are"),
        ("outstation keys token list --json", "for a script"),
    ],
    exits=ASKING,
)


@verb(app, "list", LIST)
def list_tokens(context: typer.Context, as_json: Json = False) -> int:
    """Print a table of tokens."""
    from gateway.cli.key_client import KeyClient

    output = invocation(context).output
    tokens = KeyClient(invocation(context).client()).tokens()
    if as_json:
        for token in tokens:
            output.record("join_token", token)
        return EXIT_OK
    rows = [
        (
            safe(token.id),
            (safe(token.state), STYLES.get(token.state, "")),
            f"{token.left} of {token.uses}",
            safe(token.serial or "-"),
            safe(token.name or "-"),
            "-" if token.expires is None else iso(token.expires),
            safe(token.made_by),
        )
        for token in tokens
    ]
    if not output.table(("id", "state", "left", "serial", "name", "expires", "made by"), rows):
        output.note("no tokens:  outstation keys token new")
    return EXIT_OK


REVOKE = HelpText(
    purpose="End a join token: nobody comes by it any more.",
    details="Devices that came by it stay: `outstation keys revoke` puts them out.",
    examples=[
        ("outstation keys token revoke 360c73b90e7c0fcf", "by its id"),
        ("outstation keys token list", "which ids there are"),
    ],
    exits=ASKING,
)


@verb(app, "revoke", REVOKE)
def revoke(
    context: typer.Context,
    token_id: Annotated[
        str, typer.Argument(metavar="ID", help="the token's id", autocompletion=completion.join_token_ids)
    ],
    as_json: Json = False,
) -> int:
    """End a token."""
    from gateway.cli.key_client import KeyClient

    output = invocation(context).output
    token = KeyClient(invocation(context).client()).revoke_token(token_id)
    if as_json:
        output.record("join_token", token)
    else:
        output.line((safe(token.state), STYLES.get(token.state, "")), f" {safe(token.id)}")
    return EXIT_OK
