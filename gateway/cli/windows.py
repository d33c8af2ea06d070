"""``outstation keys window``: for a while, devices without a token may ask to join."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from device_agent.errors import EXIT_OK
from device_agent.protocol import limits
from gateway.cli.arguments import duration
from gateway.cli.command import ASKING, HelpText, invocation, noun, verb
from gateway.cli.text import safe

if TYPE_CHECKING:
    from gateway.cli.key_views import DoorsView
    from gateway.cli.output import Output

REASONS = {
    "window": "the join window is open",
    "tokens": "join tokens that can still be used",
    "expected": "keys that are expected",
    "rejoining": "devices that belong here and have not taken their answer",
}

app = noun(
    HelpText(
        purpose="The join window: for a while, and for a few, devices without a token may ask to join.",
        details="It is closed by default. What asks waits for `outstation keys accept`. While neither a window, nor a "
        "token, nor an expected key, nor a device that must come again asks for it, the broker lets nobody even ask.",
        examples=[
            ("outstation keys window open --for 10m --max 20", "while the new cameras are plugged in"),
            ("outstation keys window show", "whether it is open, and how many came"),
        ],
        exits=ASKING,
    )
)

Json = Annotated[bool, typer.Option("--json", help="one JSON object")]

OPEN = HelpText(
    purpose="Let devices without a token ask to join, for a while and for a number of them.",
    details="The model is what a device says of itself. The subnet is where it connects from, as the station's own "
    "broker sees it; with a broker that somebody else runs, restrict its enrollment listener in the firewall.",
    examples=[
        ("outstation keys window open --for 10m --max 200", "the default"),
        ("outstation keys window open --max 20 --subnet 192.0.2.0/24 --model 'P32*'", "only these"),
    ],
    exits=ASKING,
)


@verb(app, "open", OPEN)
def open_window(
    context: typer.Context,
    how_long: Annotated[str, typer.Option("--for", metavar="DURATION", help="how long it stays open")] = "10m",
    most: Annotated[
        int, typer.Option("--max", metavar="N", min=1, max=limits.DEVICES_PER_STATION, help="how many devices may come")
    ] = 200,
    subnet: Annotated[str, typer.Option(metavar="CIDR", help="only from this subnet (default: from everywhere)")] = "",
    model: Annotated[str, typer.Option(metavar="GLOB", help="only devices of this model (default: of any)")] = "",
    as_json: Json = False,
) -> int:
    """Open the window."""
    from gateway.cli.key_client import KeyClient

    seconds = duration("--for", how_long, limits.JOIN_WINDOW_SECONDS)
    client = KeyClient(invocation(context).client())
    terms = {"seconds": seconds, "max": most, "subnet": subnet, "model": model}
    return _say(invocation(context).output, client.open_window(terms), as_json)


CLOSE = HelpText(
    purpose="Let no further device ask. Those that wait go on waiting.",
    examples=[
        ("outstation keys window close", "when all have come"),
        ("outstation keys list --state pending", "who has"),
    ],
    exits=ASKING,
)


@verb(app, "close", CLOSE)
def close_window(context: typer.Context, as_json: Json = False) -> int:
    """Close the window."""
    from gateway.cli.key_client import KeyClient

    return _say(invocation(context).output, KeyClient(invocation(context).client()).close_window(), as_json)


SHOW = HelpText(
    purpose="Say whether the join window is open, how many came, and why devices may ask at all.",
    examples=[
        ("outstation keys window show", "the window and the reasons"),
        ("outstation keys window show --json", "for a script"),
    ],
    exits=ASKING,
)


@verb(app, "show", SHOW)
def show_window(context: typer.Context, as_json: Json = False) -> int:
    """Print the window."""
    from gateway.cli.key_client import KeyClient

    return _say(invocation(context).output, KeyClient(invocation(context).client()).window(), as_json)


def _say(output: Output, doors: DoorsView, as_json: bool) -> int:
    if as_json:
        output.record("window", doors)
        return EXIT_OK
    window = doors.window
    facts = [("window", "open" if window is not None and window.open else "closed")]
    if window is not None:
        facts += [
            ("opened", f"{output.time(window.opened)} by {safe(window.opened_by)}"),
            ("closes", output.time(window.closes)) if window.open else ("closed", output.time(window.closed)),
            ("why", safe(window.why)),
            ("came", f"{window.taken} of {window.max}"),
            ("subnet", safe(window.subnet or "")),
            ("model", safe(window.model or "")),
        ]
    facts.append(("waiting", f"{doors.pending} devices"))
    facts.append(("may ask", "yes" if doors.enrollment_open else "no: the broker lets nobody in who asks to join"))
    facts += [
        ("because", f"{count} × {REASONS.get(each, safe(each))}") for each, count in doors.reasons.items() if count
    ]
    output.facts([(what, words) for what, words in facts if words])
    return EXIT_OK
