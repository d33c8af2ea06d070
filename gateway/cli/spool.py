"""``outstation spool``: what waits for a master, and what became of everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK, UsageInvalid
from gateway.cli.arguments import duration
from gateway.cli.command import ASKING, HelpText, invocation, noun, verb
from gateway.cli.failures import INTERRUPTED
from gateway.cli.text import safe

if TYPE_CHECKING:
    from gateway.cli.output import Output
    from gateway.cli.spool_views import SpoolView

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

app = noun(
    HelpText(
        purpose="Spool: what waits on this disk for a master, and the ledger of all that ever did.",
        details="For each class: accepted = delivered + pending + dropped. It always adds up.",
        examples=[
            ("outstation spool status", "what waits, and what was dropped and why"),
            ("outstation spool drill --for 10m", "what an outage of ten minutes does here"),
        ],
        exits=ASKING,
    )
)

STATUS = HelpText(
    purpose="Show the ledger: accepted = delivered + pending + dropped, for each class.",
    details="It reads a few counters, whatever waits. On a station with sites below it, also what each of them says, "
    "beside what has come of it here.",
    explained={
        "Columns": {
            "class": "returns (jobs and answers), events, audit, telemetry",
            "accepted": "what was ever put on this disk for a master",
            "delivered": "what a master has confirmed to have on its own disk",
            "pending": "what waits",
            "size": "how much of its budget that takes",
            "dropped": "given up: budget, coalesced (a newer state took its place), disk_full, store_failed, damage,"
            " not_taken",
            "received": "of a site: what came of it here; less than is confirmed here is a loss at this master",
        }
    },
    examples=[
        ("outstation spool status", "the ledger"),
        ("outstation spool status --json", "the same, for a script"),
    ],
    exits=ASKING,
)


@verb(app, "status", STATUS)
def status(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> int:
    """Print the ledger."""
    from gateway.cli import spool_views

    output = invocation(context).output
    found = spool_views.status(invocation(context).client())
    if as_json:
        output.record("spool", found)
        return EXIT_OK
    waiting = any(entry.pending for entry in found.classes)
    if found.enabled or waiting:
        own(output, found)
    if waiting and not found.enabled:
        output.note("no master above takes what waits: add one to masters: in the settings")
    elif not found.enabled and not found.sites:
        output.note("no master above and no site below: nothing waits here")
    if found.sites:
        _below(output, found)
    return EXIT_OK


DRILL = HelpText(
    purpose="Cut the uplink on purpose, and see that nothing is lost.",
    details="Every link to a master is dropped and none is made for so long; the site works on. Then the uplink is "
    "mended, what waited goes up, and the ledger is printed as it was before and as it is after. Ctrl-C mends the "
    "uplink at once; so does a restart of the gateway, and the end of the time, whatever becomes of this command.",
    examples=[
        ("outstation spool drill --for 10m", "an outage of ten minutes"),
        ("outstation spool drill --end", "mend the uplink of a drill that somebody else began"),
    ],
    exits={
        **ASKING,
        EXIT_OK: "everything that waited has gone up, and nothing was dropped",
        EXIT_NOT_ALL_OK: "something was dropped, or waits still",
        INTERRUPTED: "Ctrl-C: the uplink is mended",
    },
)
LONGEST_DRILL_SECONDS = 86_400.0

VERIFY = HelpText(
    purpose="Count the rows of the spool, and hold the ledger against them.",
    details="It reads every row that waits: seconds for a million of them. The station works on meanwhile. It also "
    "says whether the store lost commits that were on disk, until `outstation spool acknowledge`.",
    explained={
        "Columns": {
            "class": "as in `outstation spool status`",
            "ledger": "how many are pending, by the ledger",
            "rows": "how many there are",
        }
    },
    examples=[
        ("outstation spool verify", "status 1 if they differ, or if the store lost something"),
        ("outstation spool verify --json", "the same, for a script"),
    ],
    exits={
        **ASKING,
        EXIT_OK: "the ledger is equal to the recount, and the store has all that it acknowledged",
        EXIT_NOT_ALL_OK: "it is not, or the store lost something and no operator acknowledged it, or it cannot be told",
    },
)
VERIFY_SECONDS = 600.0


@verb(app, "verify", VERIFY)
def verify(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> int:
    """Print the recount."""
    from gateway.cli import spool_views

    output = invocation(context).output
    found = spool_views.verify(invocation(context).client(VERIFY_SECONDS))
    if as_json:
        output.record("recount", found)
    else:
        output.table(
            ("class", "ledger", "rows", "ledger size", "rows size", ""),
            [
                (
                    entry.name,
                    f"{entry.pending:,}",
                    f"{entry.rows:,}",
                    size(entry.pending_bytes),
                    size(entry.rows_bytes),
                    ("equal", "green") if entry.equal else ("differs", "red"),
                )
                for entry in found.classes
            ],
            ("ledger", "rows", "ledger size", "rows size"),
        )
    if found.store.lost:
        output.note(f"the store lost commits that were on disk: {safe(found.store.words)}")
        output.note("when you have looked at it: outstation spool acknowledge")
    return EXIT_OK if found.equal and not found.store.lost else EXIT_NOT_ALL_OK


ACKNOWLEDGE = HelpText(
    purpose="Acknowledge that the store of this station lost commits that were on disk.",
    details="`outstation check` and `outstation spool verify` report the loss until then. No counter changes.",
    examples=[
        ("outstation spool verify", "what is gone"),
        ("outstation spool acknowledge", "after you have looked at that, and at the disk"),
    ],
    exits={**ASKING, EXIT_OK: "the loss is acknowledged, or there was none"},
)


@verb(app, "acknowledge", ACKNOWLEDGE)
def acknowledge(context: typer.Context) -> int:
    """Acknowledge a loss."""
    from gateway.cli import spool_views

    called = invocation(context)
    store = spool_views.acknowledge(called.client()).store
    if store.acknowledged:
        called.output.note(f"acknowledged by {safe(store.acknowledged)}: {safe(store.words)}")
    else:
        called.output.note("nothing was lost: there is nothing to acknowledge")
    return EXIT_OK


@verb(app, "drill", DRILL)
def drill(
    context: typer.Context,
    length: Annotated[str, typer.Option("--for", metavar="DURATION", help="how long: 30s, 10m, 1h")] = "",
    wait: Annotated[str, typer.Option(metavar="DURATION", help="how long what waited may take to go up")] = "10m",
    end: Annotated[bool, typer.Option("--end", help="mend the uplink of a drill that runs")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> int:
    """Cut the uplink for a time, and print the ledger before and after."""
    from gateway.cli import spool_drill

    if bool(length) == end:
        raise UsageInvalid(
            "a drill is begun with its length, or ended",
            found="both --for and --end" if end else "neither --for nor --end",
            allowed="--for DURATION, or --end",
            hint="outstation spool drill --for 10m",
        )
    called = invocation(context)
    if end:
        return spool_drill.end(called.client(), called.output)
    seconds, patience = duration("--for", length, LONGEST_DRILL_SECONDS), duration("--wait", wait)
    return spool_drill.run(called.client(), called.output, seconds, patience, as_json=as_json)


def own(output: Output, found: SpoolView) -> None:
    """The ledger of this station as a table."""
    output.table(
        ("class", "accepted", "delivered", "pending", "size", "of", "dropped"),
        [
            (
                entry.name,
                f"{entry.accepted:,}",
                f"{entry.delivered:,}",
                f"{entry.pending:,}",
                size(entry.pending_bytes),
                size(entry.budget_bytes),
                _dropped(entry.dropped),
            )
            for entry in found.classes
        ],
        ("accepted", "delivered", "pending", "size", "of"),
    )


def _below(output: Output, found: SpoolView) -> None:
    output.table(
        ("site", "class", "accepted", "delivered", "pending", "dropped", "confirmed here", "received", "told"),
        [
            (
                safe(site.site),
                entry.name,
                f"{entry.accepted:,}",
                f"{entry.delivered:,}",
                f"{entry.pending:,}",
                _dropped(entry.dropped),
                f"{entry.confirmed:,}",
                f"{entry.received:,}" if not entry.missing else (f"{entry.received:,}: {entry.missing:,} lost", "red"),
                output.age(site.at),
            )
            for site in found.sites
            for entry in site.classes
        ],
        ("accepted", "delivered", "pending", "confirmed here", "received"),
    )


def _dropped(reasons: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {safe(reason)}" for reason, count in sorted(reasons.items())) or "0"


def size(count: int) -> str:
    """Bytes as a person reads them."""
    amount, place = float(count), 0
    while amount >= 1024 and place < len(UNITS) - 1:
        amount, place = amount / 1024, place + 1
    return f"{amount:.0f} {UNITS[place]}" if place == 0 else f"{amount:.1f} {UNITS[place]}"
