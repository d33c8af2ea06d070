"""``outstation returners``: where returns are sent as well, what waits and what is lost."""

from __future__ import annotations

from typing import Annotated

import typer

from device_agent.clock import iso
from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK
from gateway.cli.command import ASKING, HelpText, invocation, noun, verb
from gateway.cli.text import safe

app = noun(
    HelpText(
        purpose="Returners: where the returns of jobs are sent as well.",
        details="A job names them: `outstation run … --return smtp`, or `ret:` in a reaction; see docs/returners.md.",
        examples=[
            ("outstation returners list", "what each of them had, and what waits"),
            ("outstation run 'cam-*' test.ping --return rawfile_json", "a job whose returns are sent on"),
        ],
        exits=ASKING,
    )
)

LIST = HelpText(
    purpose="Print the returners of the station, and what they never had.",
    explained={
        "Columns": {
            "waiting": "jobs of which not all returns were had yet",
            "sent, failed, lost": "returns, attempts in vain, and returns that were given up, since the station began",
        }
    },
    examples=[
        ("outstation returners list", "a table, and the newest 100 that were lost"),
        ("outstation returners list --json", "one JSON object for each, for a script"),
    ],
    exits={**ASKING, EXIT_NOT_ALL_OK: "the last attempt of one of them was in vain"},
)


@verb(app, "list", LIST)
def list_returners(
    context: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="JSON, for a script")] = False
) -> int:
    """Print a table; the exit status says whether all of them take what they are sent."""
    from gateway.cli.returners_views import ReturnersPage

    output, client = invocation(context).output, invocation(context).client()
    page = client.ask("GET", "/returners", ReturnersPage)
    status = EXIT_NOT_ALL_OK if any(each.why for each in page.returners) else EXIT_OK
    if as_json:
        for returner in page.returners:
            output.record("returner", returner)
        for lost in page.lost:
            output.record("lost", lost)
        return status
    output.table(
        ("name", "waiting", "sent", "failed", "lost"),
        (
            (safe(each.name), f"{each.waiting}", f"{each.sent}", f"{each.failed}", f"{each.lost}")
            for each in page.returners
        ),
        numbers=("waiting", "sent", "failed", "lost"),
    )
    for each in page.returners:
        if each.why:
            output.note(f"{safe(each.name)}: {safe(each.why)}")
    for lost in page.lost:
        where = f"{safe(lost.device)} of {safe(lost.site)}" if lost.site else "what was left of it"
        output.note(f"lost: {lost.jid} {where}, {safe(lost.returner)}, {iso(lost.at)}: {safe(lost.why)}")
    if not page.returners:
        output.note("no returners: none is configured in the settings of this station")
    return status
