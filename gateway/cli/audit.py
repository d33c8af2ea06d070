"""``outstation audit``: who did what, on which device, why, and with what outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from device_agent.clock import iso
from device_agent.errors import EXIT_OK
from gateway.cli.arguments import duration
from gateway.cli.command import ASKING, HelpText, invocation, noun, verb
from gateway.cli.text import safe

if TYPE_CHECKING:
    from gateway.cli.output import Output
    from gateway.cli.views import AuditRow

CELLS = 60
STYLES = {"allow": "green", "hold": "yellow", "deny": "red"}
CSV_COLUMNS = (
    "time",
    "site",
    "user",
    "door",
    "action",
    "verdict",
    "why",
    "jid",
    "function",
    "arguments",
    "target",
    "device",
    "device_site",
    "outcome",
    "retcode",
    "outcome_why",
    "ended",
    "times",
)
CALCULATED = ("=", "+", "-", "@")
"""What a spreadsheet would take for a formula at the start of a cell."""

app = noun(
    HelpText(
        purpose="Audit: who asked for what, what was answered, and what came of it.",
        examples=[
            ("outstation audit list --since 1h", "what was asked in the last hour"),
            ("outstation audit export --since 30d --format csv", "a month, with the outcome on each device"),
        ],
        exits=ASKING,
    )
)

User = Annotated[str | None, typer.Option(metavar="NAME", help="only what this user asked for")]
Device = Annotated[str | None, typer.Option(metavar="ID", help="only what is about this device")]
Job = Annotated[str | None, typer.Option(metavar="JID", help="only this job")]
Action = Annotated[str | None, typer.Option(metavar="ACTION", help="only this: run, release, keys.accept, …")]
Since = Annotated[str | None, typer.Option(metavar="DURATION", help="only so long ago: 30m, 1h, 7d")]
Site = Annotated[str | None, typer.Option(metavar="SITE", help="only what the station of this site wrote")]
Verdict = Annotated[
    Literal["allow", "hold", "deny"] | None,
    typer.Option("--verdict", metavar="allow|hold|deny", help="only what was answered so"),
]

LIST = HelpText(
    purpose="List what was asked of this station and those below it, newest first.",
    explained={
        "Columns": {
            "time": "when, in UTC",
            "site": "the station that was asked",
            "user": "who asked, as the kernel, a token or a master says it",
            "door": "socket, api (a token), above (a master), device, file (the policy itself)",
            "action": "run, cancel, release, keys.accept, operators.new, policy.load, enter, …",
            "verdict": "allow, hold (until it is released), deny",
            "what": "the function and its arguments, and on which target; or what else it was done to",
            "why": "the reason that was given, or of a refusal; `7 times:` where the row counts several",
        }
    },
    examples=[
        ("outstation audit list --verdict deny --since 1d", "what was refused today"),
        ("outstation audit list --device cam-0007 --json", "all that concerns one device, for a script"),
    ],
    exits=ASKING,
)


@verb(app, "list", LIST)
def list_rows(
    context: typer.Context,
    user: User = None,
    device: Device = None,
    jid: Job = None,
    action: Action = None,
    since: Since = None,
    site: Site = None,
    verdict: Verdict = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1_000_000, help="how many rows")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object per row")] = False,
) -> int:
    """Print a table of audit rows."""
    output = invocation(context).output
    query = _query(output, user, device, jid, action, since, site, verdict)
    found = invocation(context).client().audit(query, limit)
    if as_json:
        for row in found:
            output.record("audit", row)
        return EXIT_OK
    rows = [
        (
            iso(row.at),
            safe(row.site),
            safe(row.user),
            safe(row.door),
            safe(row.action),
            (safe(row.verdict), STYLES.get(row.verdict, "")),
            _cut(what(row)),
            _cut(_why(row)),
        )
        for row in found
    ]
    if not output.table(("time", "site", "user", "door", "action", "verdict", "what", "why"), rows):
        output.note("no audit rows")
    return EXIT_OK


EXPORT = HelpText(
    purpose="Write out the audit, oldest first: a job once for each of its devices, with the outcome there.",
    details=(
        "Every row of `audit list` is there with the same fields. A row about a job stands once for each device, with "
        "how it ended there, also after the job itself is no longer kept; one that has no outcome yet stands alone."
    ),
    examples=[
        ("outstation audit export --since 30d --format csv", "for a spreadsheet"),
        ("outstation audit export --user anna --since 1d", "one user's day, as JSON lines"),
    ],
    exits=ASKING,
)


@verb(app, "export", EXPORT)
def export(
    context: typer.Context,
    user: User = None,
    device: Device = None,
    jid: Job = None,
    action: Action = None,
    since: Since = None,
    site: Site = None,
    verdict: Verdict = None,
    form: Annotated[
        Literal["csv", "jsonl"], typer.Option("--format", metavar="csv|jsonl", help="how it is written")
    ] = "jsonl",
) -> int:
    """Write every row and outcome."""
    output = invocation(context).output
    query = _query(output, user, device, jid, action, since, site, verdict)
    found = invocation(context).client().audit_export(query)
    if form == "jsonl":
        for row in found:
            output.record("audit", row)
        return EXIT_OK
    output.line(csv_line(CSV_COLUMNS))
    for row in found:
        output.line(csv_line(_cells(row)))
    return EXIT_OK


def what(row: AuditRow) -> str:
    """What was asked for, in one line."""
    call = " ".join(part for part in (row.fun, row.arguments) if part)
    return safe(f"{call} on {row.subject}" if call else row.subject) or "-"


def _why(row: AuditRow) -> str:
    """The reason, and how many refusals the row stands for."""
    return safe(row.why if row.times == 1 else f"{row.times} times: {row.why}")


def csv_line(cells: tuple[str, ...]) -> str:
    """One line of CSV (RFC 4180) that a terminal can show and a spreadsheet does not calculate."""
    written = []
    for cell in cells:
        text = safe(cell)
        if text.startswith(CALCULATED):
            text = f"'{text}"
        written.append('"' + text.replace('"', '""') + '"' if any(mark in text for mark in '",') else text)
    return ",".join(written)


def _cells(row: AuditRow) -> tuple[str, ...]:
    return (
        iso(row.at),
        row.site,
        row.user,
        row.door,
        row.action,
        row.verdict,
        row.why,
        row.jid,
        row.fun,
        row.arguments,
        row.subject,
        row.device,
        row.device_site,
        row.outcome,
        "" if row.retcode is None else str(row.retcode),
        row.outcome_why,
        "" if row.ended is None else iso(row.ended),
        str(row.times),
    )


def _query(
    output: Output,
    user: str | None,
    device: str | None,
    jid: str | None,
    action: str | None,
    since: str | None,
    site: str | None,
    verdict: str | None,
) -> dict[str, Any]:
    moment = None if since is None else output.now() - duration("--since", since)
    return {
        "user": user,
        "device": device,
        "jid": jid,
        "action": action,
        "since": moment,
        "site": site,
        "verdict": verdict,
    }


def _cut(text: str) -> str:
    return text if len(text) <= CELLS else f"{text[: CELLS - 1]}…"
