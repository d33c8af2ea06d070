"""What recorded events would set off, as somebody at the terminal sees it: page by page, and the totals."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from device_agent.clock import iso
from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK, PolicyRefused, UsageInvalid
from device_agent.utf8_text import NotUtf8, utf8_text
from gateway.cli.arguments import duration
from gateway.cli.reactor import call_words, trouble_words
from gateway.cli.reactor_views import ReplayedView, ReplayPage, ReplayTotals, TroubleView
from gateway.cli.text import safe

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.cli.client import StationClient
    from gateway.cli.output import Output

FILE_BYTES: Final = 128 * 1024
GIVEN: Final = "given.sls"
"""How a station names the file that was sent along."""

BUSY: Final = "reactor.busy"
TRIES: Final = 30
AGAIN_SECONDS: Final = 1.0


def wanted(now: float, since: str, until: str | None, rule: Path | None, tag: str | None) -> dict[str, Any]:
    """What is asked of the station, from what was typed. Raises ``UsageInvalid``."""
    begin = now - duration("--since", since)
    end = now - duration("--until", until) if until is not None else now
    if end <= begin:
        raise UsageInvalid(
            "--until is before --since, and nothing lies between",
            where="--until",
            found=f"--since {since} --until {until}",
            allowed="a shorter time than that of --since",
        )
    if rule is not None and tag is None:
        raise UsageInvalid(
            "--rule is for the events of --tag",
            where="--tag",
            allowed="a glob over the whole tag, as in the map",
            hint=f"outstation reactor replay --since {since} --rule {rule} --tag 'site/door/*'",
        )
    # Before 1970 there were no events.
    asked: dict[str, Any] = {"since": max(begin, 0.0), "until": end, "tag": tag if tag is not None else "*"}
    return asked if rule is None else {**asked, "rule": _text(rule)}


def run(client: StationClient, output: Output, body: dict[str, Any], rule: Path | None, *, as_json: bool) -> int:
    """Ask for page after page, and print each; the exit status."""
    totals = ReplayTotals()
    said: set[tuple[str, str, str]] = set()
    skipped: list[str] = []
    more: dict[str, int] | None = {}
    try:
        while more is not None:
            page = _page(client, {**body, "after": more})
            output.done()
            skipped = page.skipped
            for event in page.events:
                shown = event if rule is None else _with_name(event, safe(str(rule)))
                _count(totals, shown)
                if as_json:
                    output.record("event", shown)
                else:
                    _say(output, shown, said)
            totals.looked += page.looked
            totals.guarded += page.guarded
            more = page.next
            if more is not None:
                reached = f", at {iso(page.at)}" if page.looked else ""
                output.doing(f"{totals.looked:,} events looked at, {totals.matched:,} match{reached}")
            output.flush()
    finally:
        output.done()
    if as_json:
        output.record("totals", totals)
    else:
        _say_totals(output, totals, skipped)
    return EXIT_NOT_ALL_OK if totals.errors else EXIT_OK


def _page(client: StationClient, body: dict[str, Any]) -> ReplayPage:
    """A page; a station that has much to render is asked again for a while."""
    for _ in range(TRIES):
        try:
            return client.ask("POST", "/reactor/replay", ReplayPage, body=body)
        except PolicyRefused as refused:
            if refused.error_id != BUSY:
                raise
        time.sleep(AGAIN_SECONDS)
    return client.ask("POST", "/reactor/replay", ReplayPage, body=body)


def _text(rule: Path) -> str:
    try:
        with rule.open("rb") as file:
            content = file.read(FILE_BYTES + 1)
    except OSError as error:
        raise UsageInvalid(
            "the file cannot be read", where="--rule", found=f"{rule}: {error.strerror}", allowed="a reactor file"
        ) from None
    if not 0 < len(content) <= FILE_BYTES:
        raise UsageInvalid(
            "the file is too long to be sent along" if content else "the file is empty",
            where="--rule",
            found=str(rule),
            allowed=f"1 to {FILE_BYTES} bytes",
        )
    try:
        return utf8_text(content)
    except NotUtf8 as error:
        raise UsageInvalid(
            "the file is no text in UTF-8",
            where="--rule",
            found=f"{rule}: {error}",
            allowed="UTF-8",
            hint=error.fix(rule),
        ) from None


def _with_name(event: ReplayedView, name: str) -> ReplayedView:
    """With the name that the file has here."""
    reactions = [replace(each, file=name) if each.file == GIVEN else each for each in event.reactions]
    troubles = [replace(each, file=name) if each.file == GIVEN else each for each in event.troubles]
    return replace(event, reactions=reactions, troubles=troubles)


def _count(totals: ReplayTotals, event: ReplayedView) -> None:
    totals.matched += 1
    for each in event.reactions:
        totals.reactions[each.kind] = totals.reactions.get(each.kind, 0) + 1
        totals.files[each.file] = totals.files.get(each.file, 0) + 1
    totals.errors += sum(each.level == "error" for each in event.troubles)
    totals.warnings += sum(each.level == "warning" for each in event.troubles)


def _say(output: Output, event: ReplayedView, said: set[tuple[str, str, str]]) -> None:
    nothing = "" if event.reactions else ": nothing"
    output.line(f"{iso(event.stamp)} {safe(event.site or '-')} {safe(event.tag)}{nothing}")
    for reaction in event.reactions:
        output.line(f"  rule {safe(reaction.rule)}, {safe(reaction.file)}: {call_words(reaction)}")
    for trouble in event.troubles:
        _say_once(output, trouble, said)


def _say_once(output: Output, trouble: TroubleView, said: set[tuple[str, str, str]]) -> None:
    """What is wrong with a file for every event is said with the first of them, and counted for all."""
    known = (trouble.place, trouble.id, trouble.what)
    if known not in said:
        said.add(known)
        output.note(f"  {trouble_words(trouble)}")


def _say_totals(output: Output, totals: ReplayTotals, skipped: list[str]) -> None:
    for each in skipped:
        output.note(safe(each))
    for file, count in sorted(totals.files.items()):
        output.note(f"{safe(file)}: {count:,} reactions")
    kinds = [f"{count:,} {safe(kind)}" for kind, count in sorted(totals.reactions.items())]
    guarded = f", {totals.guarded:,} of the reactor's own" if totals.guarded else ""
    output.note(
        f"{totals.looked:,} events looked at{guarded}, {totals.matched:,} match; "
        f"reactions: {', '.join(kinds) or 'none'}; {totals.errors:,} errors, {totals.warnings:,} warnings; "
        "nothing was done"
    )
