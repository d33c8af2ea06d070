"""``outstation check``: is this box healthy, and if not, what to do. With a station that runs, and without."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from device_agent.errors import EXIT_CONFIG, EXIT_NOT_ALL_OK, EXIT_NOT_RUNNING, EXIT_OK
from gateway.cli.command import ASKING, HelpText, invocation, verb

if TYPE_CHECKING:
    from gateway.cli.check_asked import Report

TEXT = HelpText(
    purpose="Check whether this box is healthy, and say what to do where it is not.",
    details=(
        "A station that runs is asked; of one that does not, settings, files, ports and certificates are looked at. "
        "With --fix it mends what is safe to mend on this machine: owners and modes of the station's own files, a "
        "missing state folder, a socket that nobody answers at. It says what it will do and asks before."
    ),
    explained={
        "Columns": {
            "severity": "error (something does not work), warning (it works, not for long), info, ok; the worst first",
            "check": "what was looked at",
            "finding": "what was found; below it what that means, and what to try",
        }
    },
    examples=[
        ("outstation check", "what is wrong, in words"),
        ("outstation check --fix --yes", "mend what is safe to mend, without asking; as root"),
    ],
    exits={
        **ASKING,
        EXIT_OK: "no check found an error",
        EXIT_NOT_ALL_OK: "a check found an error",
        EXIT_CONFIG: "a settings file is wrong, and the station does not run",
        EXIT_NOT_RUNNING: "the station does not run",
    },
)


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    verb(app, "check", TEXT)(check)


def check(
    context: typer.Context,
    every: Annotated[
        bool, typer.Option("--all", help="every finding with all its words, the healthy ones too")
    ] = False,
    fix: Annotated[bool, typer.Option("--fix", help="mend what is safe to mend, after asking")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="with --fix: do not ask")] = False,
    tell: Annotated[
        bool, typer.Option("--tell", help="make events of what has changed, and print that alone; the timer does it")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="settings of the station (default: those under /etc/outstation)"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object per finding")] = False,
) -> int:
    """Print what every check found."""
    from gateway.cli import check_asked, check_fix, check_words

    called = invocation(context)
    check_fix.allowed(called, local=config is not None, fix=fix, yes=yes, tell=tell)
    reports = check_asked.reports(called, config, tell=tell)
    if fix and check_fix.mended(called.output, reports, ask=not yes):
        reports = check_asked.reports(called, config, tell=False)
    for report in reports:
        if as_json:
            check_words.as_json(called.output, report)
        elif tell:
            check_words.news(called.output, report)
        else:
            check_words.show(called.output, report, every=every)
    return max((_status(report) for report in reports), default=EXIT_OK)


def _status(report: Report) -> int:
    if not report.running:
        wrong = any(finding.check == "settings" for finding in report.findings)
        return EXIT_CONFIG if wrong else EXIT_NOT_RUNNING
    return EXIT_NOT_ALL_OK if any(finding.severity == "error" for finding in report.findings) else EXIT_OK
