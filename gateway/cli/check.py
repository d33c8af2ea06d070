"""``outstation check``: is this station healthy, and if not, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK
from gateway.cli.command import ASKING, HelpText, invocation, verb
from gateway.cli.text import safe

if TYPE_CHECKING:
    from gateway.cli.views import StationView

STYLES = {"ok": "green", "info": "", "warning": "yellow", "error": "red"}

TEXT = HelpText(
    purpose="Check whether this station is healthy, and say what to do where it is not.",
    explained={
        "Columns": {
            "severity": "ok, info, warning (it works, not for long), error (something does not work)",
            "check": "what was looked at",
            "finding": "what was found; below it what that means and how to mend it",
        }
    },
    examples=[
        ("outstation check", "everything, in words"),
        ("outstation check --json", "one object per finding, for monitoring"),
    ],
    exits={**ASKING, EXIT_OK: "no check found an error", EXIT_NOT_ALL_OK: "a check found an error"},
)


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    verb(app, "check", TEXT)(check)


def check(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object per finding")] = False,
) -> int:
    """Print what every check found."""
    output = invocation(context).output
    client = invocation(context).client()
    findings = client.findings()
    if not as_json:
        output.note(station_words(client.station()))
    for finding in findings:
        if as_json:
            output.record("finding", finding)
            continue
        severity = safe(finding.severity)
        output.line(
            (f"{severity:<8}", STYLES.get(severity, "")), f"  {safe(finding.check):<16}  {safe(finding.finding)}"
        )
        if finding.severity != "ok":
            for name, words in (("means", finding.meaning), ("fix", finding.fix)):
                if words:
                    output.line(f"{'':<28}{name + ':':<7}{safe(words)}")
    return EXIT_NOT_ALL_OK if any(finding.severity == "error" for finding in findings) else EXIT_OK


def station_words(station: StationView) -> str:
    """Which station was asked."""
    words = f"{safe(station.role)} {safe(station.name)}, outstation {safe(station.version)}"
    if station.uplink is not None:
        words += f", uplink {safe(station.uplink.state)}"
        if station.uplink.master:
            words += f" to {safe(station.uplink.master)}"
        standing_by = sum(link.role == "standby" for link in station.uplink.links)
        if standing_by:
            words += f", {standing_by} standing by"
    return words
