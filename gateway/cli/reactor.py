"""``outstation reactor``: the rules by which a station reacts to events, and what they did."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from device_agent.clock import iso
from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK
from gateway.cli import completion
from gateway.cli.command import ASKING, HelpText, invocation, noun, verb
from gateway.cli.output import Output
from gateway.cli.text import safe, shown

if TYPE_CHECKING:
    from gateway.cli.reactor_views import ReactionView, TroubleView

app = noun(
    HelpText(
        purpose="Reactor: the rules by which a station reacts to events, and what they did.",
        details="The rules are `reactor:` in the station's settings, as in Salt; see docs/reactor.md.",
        examples=[
            ("outstation reactor check", "every file, with the line of what is wrong"),
            ("outstation reactor test site/door/opened --data '{door: north}'", "what an event would set off"),
        ],
        exits=ASKING,
    )
)

WORDS_CHARACTERS: Final = 200
THROTTLED = {
    "ready": "let through",
    "waits": "collected",
    "turn": "waits for its turn",
    "held": "held back",
    "joined": "collected",
    "running": "let through",
    "done": "let through",
}
"""What a throttle made of an event."""

Json = Annotated[bool, typer.Option("--json", help="JSON, for a script")]

LIST = HelpText(
    purpose="Print the rules in their order, with the files that they stand for now.",
    explained={
        "Columns": {
            "tag": "the glob that the tag of an event has to match",
            "from": "`settings`, or `added` while the station ran, by `reactor.add`",
            "files": "the files of its paths, in the order in which they are read",
        }
    },
    examples=[
        ("outstation reactor list", "and how many reactions ended how"),
        ("outstation reactor list --json", "one JSON object, for a script"),
    ],
    exits=ASKING,
)


@verb(app, "list", LIST)
def list_rules(context: typer.Context, as_json: Json = False) -> int:
    """Print a table of rules."""
    from gateway.cli.reactor_views import RulesPage

    output, client = invocation(context).output, invocation(context).client()
    page = client.ask("GET", "/reactor", RulesPage)
    if as_json:
        output.record("reactor", page)
        return EXIT_OK
    output.table(
        ("tag", "from", "files"),
        (
            (safe(rule.tag), "added" if rule.added else "settings", safe(", ".join(rule.files)) or "none")
            for rule in page.rules
        ),
    )
    for tag in page.taken_away:
        output.note(f"{safe(tag)}: a rule of the settings that reactor.delete took away")
    for skipped in page.skipped:
        output.note(safe(skipped))
    for rule in page.rules:
        for each in rule.throttles:
            bounded = ", ".join(
                f"{count:,} {THROTTLED.get(state, state)}" for state, count in sorted(each.events.items())
            )
            output.note(f"{safe(each.file)} of {safe(rule.tag)}: {safe(each.throttle)}; {bounded or 'no events yet'}")
        _troubles(output, rule.troubles)
    output.note(
        ", ".join(f"{count:,} {safe(state)}" for state, count in sorted(page.reactions.items())) or "no reactions"
    )
    return EXIT_OK


CHECK = HelpText(
    purpose="Look through every rule and every file, and name the line of what is wrong.",
    details=(
        "A file is rendered with the newest event that its rule matches, of the last 2,000. Where there is none, its "
        "template is compiled, or its YAML read where it has no template. The station says of each reaction whether it "
        "would refuse it: unknown functions, arguments, roles, rules, grants and returners. Nothing is done."
    ),
    examples=[
        ("outstation reactor check", "one line for each thing that is wrong"),
        ("outstation reactor check --json", "one JSON object, for a script"),
    ],
    exits={**ASKING, EXIT_NOT_ALL_OK: "something is wrong"},
)


@verb(app, "check", CHECK)
def check(context: typer.Context, as_json: Json = False) -> int:
    """Print what is wrong; the exit status says whether anything is."""
    from gateway.cli.reactor_views import RulesPage

    output, client = invocation(context).output, invocation(context).client()
    page = client.ask("GET", "/reactor/check", RulesPage)
    wrong = bool(page.skipped) or any(each.level == "error" for rule in page.rules for each in rule.troubles)
    if as_json:
        output.record("reactor", page)
        return EXIT_NOT_ALL_OK if wrong else EXIT_OK
    for skipped in page.skipped:
        output.line(safe(skipped))
    for rule in page.rules:
        for trouble in rule.troubles:
            output.line(trouble_words(trouble))
        tried = f"with {safe(rule.tried)}" if rule.tried else "without an event: none of the last matches"
        output.note(f"{safe(rule.tag)}: {len(rule.files)} files, {tried}")
    return EXIT_NOT_ALL_OK if wrong else EXIT_OK


TEST = HelpText(
    purpose="Say what an event would set off, without doing any of it.",
    details="DATA is a mapping, in YAML or JSON. It prints what each file says to it, and the reactions in order.",
    examples=[
        ("outstation reactor test site/door/opened --data '{door: north}'", "an event with data"),
        ("outstation reactor test salt/minion/cam-0001/start --json", "the same for a script"),
    ],
    exits={**ASKING, EXIT_NOT_ALL_OK: "a file or a reaction is wrong"},
)


@verb(app, "test", TEST)
def try_out(
    context: typer.Context,
    tag: Annotated[
        str, typer.Argument(metavar="TAG", help="the tag of the event", autocompletion=completion.rule_tags)
    ],
    data: Annotated[str, typer.Option("--data", metavar="DATA", help="the data of the event, a mapping")] = "{}",
    as_json: Json = False,
) -> int:
    """Print rules, renderings and reactions."""
    from gateway.cli.fire import mapping
    from gateway.cli.reactor_views import PlanView

    output, client = invocation(context).output, invocation(context).client()
    plan = client.ask("POST", "/reactor/test", PlanView, body={"tag": tag, "data": mapping(data)})
    wrong = any(each.level == "error" for each in plan.troubles)
    if as_json:
        output.record("plan", plan)
        return EXIT_NOT_ALL_OK if wrong else EXIT_OK
    if not plan.rules:
        output.note("no rule matches this tag")
    for file in plan.files:
        output.line(f"{safe(file.file)} (rule {safe(file.rule)}): {shown(file.rendered)}")
    for reaction in plan.reactions:
        output.line(f"  {call_words(reaction)}")
    _troubles(output, plan.troubles)
    return EXIT_NOT_ALL_OK if wrong else EXIT_OK


REPLAY = HelpText(
    purpose="Say what recorded events would set off by the rules as they are now, without doing any of it.",
    details=(
        "With --rule it is one file of yours instead, which no rule has to name yet, for the events of --tag. It is "
        "sent along: Jinja and YAML, at most 128 KiB, and it includes and imports nothing. Throttles and the depth of "
        "chains are left aside. Each reaction that the station would refuse now is named with its line. The totals at "
        "the end are on stderr."
    ),
    examples=[
        ("outstation reactor replay --since 1d", "yesterday's events by today's rules"),
        (
            "outstation reactor replay --since 1h --rule door.sls --tag 'site/door/*'",
            "a new rule, before it is one",
        ),
    ],
    exits={**ASKING, EXIT_NOT_ALL_OK: "a file or a reaction is wrong"},
)


@verb(app, "replay", REPLAY)
def replay(
    context: typer.Context,
    since: Annotated[
        str, typer.Option("--since", metavar="DURATION", help="events from so long ago on: 30m, 1h, 7d")
    ] = "1h",
    until: Annotated[
        str | None, typer.Option("--until", metavar="DURATION", help="only those before so long ago (default: now)")
    ] = None,
    rule: Annotated[
        Path | None, typer.Option("--rule", metavar="FILE", help="this reactor file instead of the rules; needs --tag")
    ] = None,
    tag: Annotated[
        str | None, typer.Option("--tag", metavar="GLOB", help="only events with such tags, * crosses slashes")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object per event, and then the totals")] = False,
) -> int:
    """Print what each event would set off."""
    from gateway.cli import reactor_replay

    called = invocation(context)
    body = reactor_replay.wanted(called.output.now(), since, until, rule, tag)
    return reactor_replay.run(called.client(), called.output, body, rule, as_json=as_json)


WHY = HelpText(
    purpose="Say what an event set off, or which event a job came of.",
    details="Event, rule, file, reaction, job and outcome, for as long as reactions.keep_hours says.",
    examples=[
        ("outstation reactor why site/door/opened", "the newest events with this tag"),
        ("outstation reactor why 20261121211116003098", "the event behind a job"),
    ],
    exits=ASKING,
)


@verb(app, "why", WHY)
def why(
    context: typer.Context,
    what: Annotated[str, typer.Argument(metavar="EVENT|JID", help="tag or number of an event, or the jid of a job")],
    as_json: Json = False,
) -> int:
    """Print the chain of each event."""
    from gateway.cli.reactor_views import WhyPage

    output, client = invocation(context).output, invocation(context).client()
    page = client.ask("GET", "/reactor/why", WhyPage, query={"what": what})
    for event in page.events:
        if as_json:
            output.record("event", event)
            continue
        told = f"; {safe(event.why)}" if event.why else ""
        output.line(
            f"event {event.number} {safe(event.tag)} of {safe(event.site)}, {iso(event.stamp)}: {event.state}{told}"
        )
        output.line(f"  data: {shown(event.data)}")
        for trouble in event.troubles:
            output.line(f"  {trouble_words(trouble)}")
        for each in event.throttled:
            told = f", {safe(each.why)}" if each.why else ""
            output.line(f"  rule {safe(each.glob)}, {safe(each.file)}: {THROTTLED.get(each.state, each.state)}{told}")
        for reaction in event.reactions:
            output.line(f"  rule {safe(reaction.rule)}, {safe(reaction.file)}: {call_words(reaction)}")
            # The reason is whole: its end is the command that mends it.
            first, *more = reaction.why.splitlines() or [""]
            ended = "; ".join(filter(None, [f"job {reaction.jid}" if reaction.jid else "", safe(first)]))
            output.line(f"    {reaction.state} {ended}".rstrip())
            for line in more:
                output.line(f"    {safe(line)}")
            if reaction.job == "closed" and not reaction.outcomes:
                output.line(f"    no device matched {safe(reaction.tgt_type)} {safe(reaction.tgt)}")
            for outcome in reaction.outcomes:
                words = _line(outcome.why or shown(outcome.value))
                output.line(f"    {safe(outcome.device)} of {safe(outcome.site)}: {safe(outcome.outcome)} {words}")
    return EXIT_OK


def _line(words: str) -> str:
    """On one line, and no longer than somebody reads: a picture is in the job, and with --json here too."""
    whole = safe("; ".join(line.strip() for line in words.splitlines()))
    return whole if len(whole) <= WORDS_CHARACTERS else f"{whole[:WORDS_CHARACTERS]}… ({len(whole)} characters)"


def call_words(reaction: ReactionView) -> str:
    """A reaction on one line."""
    given = [*map(shown, reaction.arg), *(f"{safe(name)}={shown(value)}" for name, value in reaction.kwarg.items())]
    where = f" on {safe(reaction.tgt_type)} {safe(reaction.tgt)}" if reaction.tgt else ""
    return " ".join([f"{safe(reaction.id)}: {safe(reaction.said)}{where}", *given])


def trouble_words(trouble: TroubleView) -> str:
    """A trouble on one line, its place first."""
    named = f" {safe(trouble.id)}:" if trouble.id else ""
    text = f"   [{safe(trouble.text)}]" if trouble.text else ""
    return f"{safe(trouble.place)}: {safe(trouble.level)}:{named} {safe(trouble.what)}{text}"


def _troubles(output: Output, troubles: list[TroubleView]) -> None:
    for trouble in troubles:
        output.note(trouble_words(trouble))
