"""``outstation jobs``: what was run, where it stands, stopping it, and releasing what is held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from device_agent.clock import iso
from device_agent.errors import EXIT_OK
from device_agent.protocol.outcomes import Outcome, State
from gateway.cli import completion, run
from gateway.cli.arguments import written
from gateway.cli.command import ASKING, HelpText, invocation, noun, verb
from gateway.cli.text import dark_since, safe, shown, tally

if TYPE_CHECKING:
    from gateway.cli.views import JobView, SiteProgress

JID_EXAMPLE = "20261121031500000000"
TARGET_CELLS = 40
LETTERS = {
    "grain": "-G ",
    "grain_pcre": "-P ",
    "compound": "-C ",
    "pcre": "-E ",
    "list": "-L ",
    "ipcidr": "-S ",
    "range": "-R ",
    "nodegroup": "-N ",
}

app = noun(
    HelpText(
        purpose="Jobs: what was run, where it stands, and stopping it.",
        examples=[
            ("outstation jobs list --state open", "what is under way"),
            (f"outstation jobs watch {JID_EXAMPLE}", "go on watching after Ctrl-C"),
        ],
        exits=ASKING,
    )
)

Jid = Annotated[str, typer.Argument(metavar="JID", help="the job's id, 20 digits", autocompletion=completion.jids)]
OpenJid = Annotated[
    str, typer.Argument(metavar="JID", help="the job's id, 20 digits", autocompletion=completion.open_jids)
]
Json = Annotated[bool, typer.Option("--json", help="one JSON object per line")]

LIST = HelpText(
    purpose="List jobs, newest first.",
    explained={
        "Columns": {
            "jid": "the job's id, which is also its time of issue in UTC",
            "state": "open, held until it is released, closed, or cancelled and not yet closed",
            "function": "what was run",
            "target": "on which devices as it was typed, with the letter of its kind",
            "user": "who asked",
            "expected": "how many devices are meant, as far as sites have said",
            "outcomes": "how many ended how; waiting are those without an outcome",
        }
    },
    examples=[
        ("outstation jobs list", "the newest 20"),
        ("outstation jobs list --state open --json", "what is under way, for a script"),
    ],
    exits=ASKING,
)


@verb(app, "list", LIST)
def list_jobs(
    context: typer.Context,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="how many jobs")] = 20,
    state: Annotated[
        Literal["open", "held", "closed"] | None,
        typer.Option(metavar="open|held|closed", help="only these (default: all)"),
    ] = None,
    as_json: Json = False,
) -> int:
    """Print a table of jobs."""
    output = invocation(context).output
    jobs = invocation(context).client().jobs(limit, state)
    if as_json:
        for job in jobs:
            output.record("job", job)
        return EXIT_OK
    rows = [
        (
            safe(job.jid),
            state_word(job),
            safe(job.fun),
            target_words(job),
            safe(job.user or "-"),
            f"{job.expected:,}",
            outcome_words(job),
        )
        for job in jobs
    ]
    if not output.table(("jid", "state", "function", "target", "user", "expected", "outcomes"), rows, ("expected",)):
        output.note("no jobs")
    return EXIT_OK


SHOW = HelpText(
    purpose="Show one job: what, for whom, where it stands, and each device that is not ok.",
    explained={"Outcomes": run.OUTCOMES},
    examples=[
        (f"outstation jobs show {JID_EXAMPLE}", "where it stands, and what is not ok"),
        (f"outstation jobs show {JID_EXAMPLE} --outcome unreachable --json", "only these devices, for a script"),
    ],
    exits=ASKING,
)


@verb(app, "show", SHOW)
def show(
    context: typer.Context,
    jid: Jid,
    outcome: Annotated[
        str | None,
        typer.Option(
            metavar="OUTCOME",
            help="list the devices with this outcome (default: all that are not ok)",
            autocompletion=lambda: list(run.OUTCOMES),
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="list every device")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="the job, then every outcome, one JSON object per line")
    ] = False,
) -> int:
    """Print a job and its outcomes."""
    from gateway.cli.results import Results

    if outcome is not None and outcome not in run.OUTCOMES:
        raise typer.BadParameter(f"found {outcome!r}; there are {', '.join(run.OUTCOMES)}", param_hint="--outcome")
    if outcome is not None and every:
        raise typer.BadParameter("it is this or --outcome", param_hint="--all")
    output = invocation(context).output
    client = invocation(context).client()
    job = client.job(jid)
    results = Results(output, as_json=as_json, fold=False)
    if as_json:
        output.record("job", job)
        for record in client.outcomes(jid, outcome):
            results.add(record)
        return EXIT_OK
    arguments = [shown(value) for value in job.arg] + [f"{safe(name)}={shown(job.kwarg[name])}" for name in job.kwarg]
    if job.sealed:
        arguments = ["(its arguments are sealed to its devices)"]
    output.facts(
        [
            ("jid", safe(job.jid)),
            ("state", state_word(job)),
            ("function", " ".join([safe(job.fun), *arguments])),
            *([("typed", f"{safe(job.typed)} ({safe(job.typed_type)})")] if job.typed else []),
            ("target", f"{safe(job.tgt)} ({safe(job.tgt_type)})"),
            ("user", safe(job.user or "-")),
            *([("why", safe(job.why))] if job.why else []),
            *([("files of", safe(job.commits))] if job.commits else []),
            ("origin", safe(job.origin or "-")),
            ("issued", output.time(job.issued, "-")),
            ("expires", f"{'-' if job.expires is None else iso(job.expires)}, late devices: {safe(job.late)}"),
            ("run limit", "-" if job.run_limit is None else written(job.run_limit)),
            ("expected", f"{job.expected:,}"),
            ("outcomes", outcome_words(job)),
            *(("site", site_words(site)) for site in job.sites),
        ]
    )
    not_ok = [name for name in job.counts if name != Outcome.OK]
    wanted: list[str | None] = [outcome] if outcome else [None] if every else [*not_ok]
    for one in wanted:
        for record in client.outcomes(jid, one):
            results.add(record)
    return EXIT_OK


WATCH = HelpText(
    purpose="Watch a job until it is closed, as `outstation run` does: past outcomes first, then those to come.",
    explained={"Outcomes": run.OUTCOMES},
    examples=[
        (f"outstation jobs watch {JID_EXAMPLE}", "go on after Ctrl-C or --detach"),
        (f"outstation jobs watch {JID_EXAMPLE} --json", "every outcome once, for a script"),
    ],
    exits=run.WATCH_EXITS,
)


@verb(app, "watch", WATCH)
def watch_job(
    context: typer.Context,
    jid: OpenJid,
    as_json: run.Json = False,
    verbose: run.Verbose = False,
) -> int:
    """Watch a job that was created before."""
    from gateway.cli.watch import watch

    return watch(invocation(context).client(), jid, invocation(context).output, as_json=as_json, verbose=verbose)


CANCEL = HelpText(
    purpose="Cancel a job: devices that have not started it do not; what has started goes on.",
    examples=[
        (f"outstation jobs cancel {JID_EXAMPLE}", "stop what has not begun"),
        (f"outstation jobs cancel {JID_EXAMPLE} && outstation jobs watch {JID_EXAMPLE}", "and see how it ends"),
    ],
    exits=ASKING,
)


@verb(app, "cancel", CANCEL)
def cancel(context: typer.Context, jid: OpenJid, as_json: Json = False) -> int:
    """Ask the station to cancel a job."""
    output = invocation(context).output
    job = invocation(context).client().cancel(jid)
    if as_json:
        output.record("job", job)
        return EXIT_OK
    output.line(f"{safe(job.jid)}: {state_word(job)}: {outcome_words(job)}")
    if job.state == "open":
        output.note(f"what has started goes on: outstation jobs watch {safe(job.jid)}")
    return EXIT_OK


RELEASE = HelpText(
    purpose="Release a held job, so that it goes to its devices.",
    details=(
        "A rule of the policy can hold jobs until an approver or an admin, other than who asked for it, has looked at "
        "them. A job that nobody releases ends as expired. `outstation jobs show JID` says what it would do."
    ),
    examples=[
        ("outstation jobs list --state held", "what waits for a release"),
        (f"outstation jobs release {JID_EXAMPLE}", "let it go"),
    ],
    exits=ASKING,
)


@verb(app, "release", RELEASE)
def release(context: typer.Context, jid: OpenJid, as_json: Json = False) -> int:
    """Ask the station to release a job."""
    output = invocation(context).output
    job = invocation(context).client().release(jid)
    if as_json:
        output.record("job", job)
        return EXIT_OK
    output.line(f"{safe(job.jid)}: {state_word(job)}: {outcome_words(job)}")
    output.note(f"see how it ends: outstation jobs watch {safe(job.jid)}")
    return EXIT_OK


def state_word(job: JobView) -> str:
    """``open``, ``closed``; ``cancelled`` or ``held`` while it is open."""
    if job.state != "open":
        return safe(job.state)
    return "cancelled" if job.cancelled else "held" if job.held else "open"


def outcome_words(job: JobView) -> str:
    """How many ended how, and how many have not yet."""
    words = [tally(job.counts)] if job.counts else []
    words += [f"{job.waiting[state]:,} {state}" for state in State if job.waiting.get(state)]
    return ", ".join(words) or "-"


def site_words(site: SiteProgress) -> str:
    """How far a site is with a job."""
    words = f"{safe(site.site)}: {safe(site.state)}, {site.done:,} of {site.expected:,}"
    return words if site.connected and site.state != "dark" else f"{words}, {dark_since(site.last_seen)}"


def target_words(job: JobView) -> str:
    """A target as it was typed, cut where a list is long."""
    tgt, kind = (job.typed, job.typed_type) if job.typed else (job.tgt, job.tgt_type)
    words = LETTERS.get(kind, "") + safe(tgt)
    return words if len(words) <= TARGET_CELLS else f"{words[: TARGET_CELLS - 1]}…"
