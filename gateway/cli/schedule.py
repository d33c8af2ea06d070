"""``outstation schedule``: what a station runs by itself, when, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from device_agent.errors import EXIT_OK
from gateway.cli import completion
from gateway.cli.command import ASKING, HelpText, invocation, noun, verb
from gateway.cli.text import safe

if TYPE_CHECKING:
    from gateway.cli.output import Output
    from gateway.cli.schedule_views import EntryView, RunView

app = noun(
    HelpText(
        purpose="Schedule: what a station runs by itself, when, and what came of it.",
        details="It is `schedule:` in the station's settings, as in Salt; see docs/schedules.md. That of a device is "
        "asked with `outstation run DEVICE schedule.list`.",
        order=["list", "show", "run", "enable", "disable"],
        examples=[
            ("outstation schedule list", "every entry, and when it runs next"),
            ("outstation schedule run nightly", "now, beside its times"),
        ],
        exits=ASKING,
    )
)

Json = Annotated[bool, typer.Option("--json", help="JSON, for a script")]
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="the name of the entry", autocompletion=completion.schedule_names)
]
MaybeName = Annotated[str | None, typer.Argument(metavar="[NAME]", help="the name of the entry; without one: all")]

WITHOUT_ENDS = {"closed": "no device matched", "gone": "its job is no longer kept"}
"""What became of a run whose job has no outcome."""

LIST = HelpText(
    purpose="Print the entries of the station's schedule.",
    explained={
        "Columns": {
            "for": "the devices that its job is for; own: the station itself; call: a runner or a wheel",
            "next": "when it runs next, in the zone of the schedule",
            "last": "what became of its last run",
        }
    },
    examples=[
        ("outstation schedule list", "a table"),
        ("outstation schedule list --json", "one JSON object for each, for a script"),
    ],
    exits=ASKING,
)


@verb(app, "list", LIST)
def list_entries(context: typer.Context, as_json: Json = False) -> int:
    """Print a table of entries."""
    from gateway.cli.schedule_views import SchedulePage

    output, client = invocation(context).output, invocation(context).client()
    page = client.ask("GET", "/schedule", SchedulePage)
    if as_json:
        for entry in page.entries:
            output.record("entry", entry)
        return EXIT_OK
    output.table(("name", "function", "for", "next", "last"), (_row(output, entry) for entry in page.entries))
    if not page.enabled:
        output.note("the schedule is switched off: outstation schedule enable")
    elif page.entries:
        output.note(f"times are those of the zone {page.timezone}")
    else:
        output.note("nothing is scheduled: there is no schedule: in the settings of this station")
    return EXIT_OK


SHOW = HelpText(
    purpose="Print an entry of the schedule with its newest runs.",
    examples=[
        ("outstation schedule show nightly", "when it ran, and what came of it"),
        ("outstation schedule show nightly --runs 50 --json", "one JSON object, for a script"),
    ],
    exits=ASKING,
)


@verb(app, "show", SHOW)
def show(
    context: typer.Context,
    name: Name,
    runs: Annotated[int, typer.Option("--runs", min=0, max=100, help="how many runs")] = 10,
    as_json: Json = False,
) -> int:
    """Print an entry."""
    from gateway.cli.schedule_views import EntryView

    output, client = invocation(context).output, invocation(context).client()
    entry = client.ask("GET", f"/schedule/{quote(name, safe='')}?runs={runs}", EntryView)
    _print(output, entry, as_json=as_json)
    return EXIT_OK


RUN = HelpText(
    purpose="Run an entry of the schedule now, beside its times.",
    details="Also one that is switched off. It is done by the station, as the user `schedule`.",
    examples=[
        ("outstation schedule run nightly", "now"),
        ("outstation schedule run nightly --json", "one JSON object, for a script"),
    ],
    exits=ASKING,
)


@verb(app, "run", RUN)
def run(context: typer.Context, name: Name, as_json: Json = False) -> int:
    """Run one now."""
    return _told(context, f"/schedule/{quote(name, safe='')}/run", f"{safe(name)} runs", as_json=as_json)


ENABLE = HelpText(
    purpose="Switch an entry of the schedule on, or the schedule as a whole.",
    details="It lasts, also when the station starts again.",
    examples=[
        ("outstation schedule enable nightly", "this entry"),
        ("outstation schedule enable", "the schedule as a whole"),
    ],
    exits=ASKING,
)


@verb(app, "enable", ENABLE)
def enable(context: typer.Context, name: MaybeName = None, as_json: Json = False) -> int:
    """Switch on."""
    return _switch(context, name, "enable", "on", as_json=as_json)


DISABLE = HelpText(
    purpose="Switch an entry of the schedule off, or the schedule as a whole.",
    details="It lasts, also when the station starts again. What is under way goes on.",
    examples=[
        ("outstation schedule disable nightly", "this entry"),
        ("outstation schedule disable", "the schedule as a whole"),
    ],
    exits=ASKING,
)


@verb(app, "disable", DISABLE)
def disable(context: typer.Context, name: MaybeName = None, as_json: Json = False) -> int:
    """Switch off."""
    return _switch(context, name, "disable", "off", as_json=as_json)


def _switch(context: typer.Context, name: str | None, word: str, state: str, *, as_json: bool) -> int:
    if name is not None:
        return _told(context, f"/schedule/{quote(name, safe='')}/{word}", f"{safe(name)} is {state}", as_json=as_json)
    from gateway.cli.schedule_views import SchedulePage

    output, client = invocation(context).output, invocation(context).client()
    page = client.ask("POST", f"/schedule/{word}", SchedulePage, body={})
    if as_json:
        output.record("schedule", page)
    else:
        output.line(f"the schedule is {state}")
    return EXIT_OK


def _told(context: typer.Context, path: str, done: str, *, as_json: bool) -> int:
    from gateway.cli.schedule_views import EntryView

    output, client = invocation(context).output, invocation(context).client()
    entry = client.ask("POST", path, EntryView, body={})
    if as_json:
        output.record("entry", entry)
    else:
        output.line(done)
    return EXIT_OK


def _row(output: Output, entry: EntryView) -> tuple[str, ...]:
    last = "never" if entry.last is None else f"{output.age(entry.last.at)} {_became(entry.last)}"
    return safe(entry.name), safe(entry.function), _for(entry), _next(entry), last


def _for(entry: EntryView) -> str:
    if not entry.target:
        return entry.makes
    return safe(entry.target) if entry.target_type == "glob" else f"{entry.target_type}: {safe(entry.target)}"


def _next(entry: EntryView) -> str:
    return entry.next_local or ("never" if entry.enabled else "off")


def _became(run: RunView) -> str:
    if run.jid is None:
        return run.state
    ends = ", ".join(f"{count} {end}" for end, count in sorted(run.ends.items()))
    return ends or WITHOUT_ENDS.get(run.job, "under way")


def _print(output: Output, entry: EntryView, *, as_json: bool) -> None:
    if as_json:
        output.record("entry", entry)
        return
    facts = [("name", safe(entry.name)), ("function", safe(entry.function)), ("for", _for(entry))]
    facts += [("enabled", "yes" if entry.enabled else "no"), ("next", _next(entry))]
    if entry.missed:
        facts.append(("missed", f"{entry.missed}"))
    if entry.skipped is not None:
        facts.append(("left out", f"{output.time(entry.skipped)}: {entry.skip_reason}"))
    output.facts(facts)
    output.table(
        ("at", "kind", "late", "what became of it", "jid", "why"),
        (
            (
                output.age(run.at),
                run.kind,
                f"{run.late_seconds:.0f} s" if run.late_seconds else "no",
                _became(run),
                run.jid or "none",
                safe(run.why.partition("\n")[0]) or "none",
            )
            for run in entry.runs
        ),
    )
