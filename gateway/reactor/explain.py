"""What the reactor would do, what is wrong with its files, and why it did what it did: for people."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from msgspec.structs import asdict, replace

from device_agent.errors import NotFound
from device_agent.protocol import tags
from device_agent.protocol.messages import Event, decode_stored
from device_agent.protocol.stations import station_device
from gateway.bus import Bus
from gateway.jobs.progress import progress_of
from gateway.reactor.book import Made, Matched, ReactionBook
from gateway.reactor.foreseen import ForeseenTroubles
from gateway.reactor.held import HeldBook
from gateway.reactor.plan import Plan, Planner, text_of
from gateway.reactor.report import Report
from gateway.reactor.rules import Rule
from gateway.reactor.site_reactions import SiteReactions
from gateway.reactor.sls import Compiled, Reaction, Trouble
from gateway.reactor.sources import Known
from gateway.reactor.throttle import throttle_of
from gateway.store.reader import Reader

EVENTS: Final = 20
OUTCOMES: Final = 100
TRIED: Final = 2000
"""Newest events that a check looks through for one that a rule matches."""

VALUE_CHARACTERS: Final = 2000

_CALL = "SELECT jid, state, value FROM calls WHERE jid = ?"
_OUTCOMES = "SELECT site, device, outcome, value, why FROM outcomes WHERE jid = ? ORDER BY id LIMIT ?"


class Explain:
    """Answers of ``list``, ``check``, ``test`` and ``why``."""

    def __init__(
        self,
        *,
        planner: Planner,
        foreseen: ForeseenTroubles,
        book: ReactionBook,
        held: HeldBook,
        bus: Bus,
        reader: Reader,
        sites: SiteReactions,
    ) -> None:
        self._foreseen = foreseen
        self._planner = planner
        self._book = book
        self._held = held
        self._bus = bus
        self._reader = reader
        self._sites = sites

    async def listed(self) -> dict[str, Any]:
        """Every rule with its files, and how many reactions ended how."""
        known = await self._planner.sources.now()
        counts = await self._held.counts()
        rules = [
            {
                "tag": rule.glob,
                "added": rule.added,
                "paths": list(rule.paths),
                "files": known.of(rule.paths),
                "troubles": [trouble_told(known.troubles[path]) for path in rule.paths if path in known.troubles],
                "throttles": _throttles(known, rule, counts),
            }
            for rule in known.map.rules
        ]
        sources = self._planner.sources
        return {
            "rules": rules,
            "taken_away": sources.book.taken_away(await sources.settled()),
            "skipped": list(known.map.skipped),
            "reactions": await self._book.counts(),
        }

    async def checked(self) -> dict[str, Any]:
        """Each rule's files, with the newest event that it matches where there is one among the newest."""
        known = await self._planner.sources.now()
        newest = (await self._bus.history("*", TRIED))[::-1]
        rules = []
        for rule in known.map.rules:
            event = next((each for each in newest if tags.matches(rule.glob, each.tag)), None)
            found = await self._planner.checked(known, rule, event)
            troubles = [*found.troubles]
            troubles += await self._foreseen.of_reactions(found.reactions, partial(text_of, known))
            for file in known.of(rule.paths):
                troubles += await self._foreseen.of_text(file, rule.glob, text_of(known, file), found)
            rules.append(
                {
                    "tag": rule.glob,
                    "added": rule.added,
                    "files": known.of(rule.paths),
                    "tried": "" if event is None else event.tag,
                    "troubles": [trouble_told(each) for each in troubles],
                }
            )
        return {"rules": rules, "skipped": [*known.map.skipped, *_unused(known)]}

    async def tested(self, tag: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """What an event would set off. Nothing is done."""
        event, known = self._bus.event(tag, dict(data)), await self._planner.sources.now()
        plan = await self._planner.plan(event, known=known)
        foreseen = await self._foreseen.of_reactions(plan.compiled.reactions, partial(text_of, known))
        return _plan(
            event, replace(plan, compiled=Compiled(plan.compiled.reactions, [*plan.compiled.troubles, *foreseen]))
        )

    async def why(self, what: str) -> dict[str, Any]:
        """What an event set off, by its tag or number, or what a job came of. Raises ``NotFound``."""
        found: list[Matched] = await self._book.of_jid(what)
        if not found and what.isdecimal() and len(what) < 16:
            found = [event for event in [await self._book.event(int(what))] if event is not None]
        found = found or await self._book.newest(what, EVENTS)
        of_sites = await self._sites.of(what)
        if not found and not of_sites:
            raise NotFound(
                "nothing is known of such an event or job",
                error_id="reactor.nothing",
                found=what[:200],
                allowed="the jid of a reaction's job, the whole tag of an event that matched a rule, or its number",
                hint="outstation reactor test TAG, to see what it would set off",
            )
        told = [await self._reported(site, reports) for site, reports in of_sites]
        return {"events": [*[await self._matched(each) for each in found], *told]}

    async def _reported(self, site: str, reports: list[Report]) -> dict[str, Any]:
        """An event of a site, by what the site told of its reactions."""
        first = reports[0]
        return {
            "number": first.number,
            "tag": first.tag,
            "data": first.data,
            "stamp": first.stamp,
            "site": first.site,
            "depth": first.depth,
            "state": "rendered",
            "why": f"told by {site}" + ("; its data is there" if "data" in first.left_out else ""),
            "troubles": [],
            "reactions": [
                {
                    **asdict(report.call),
                    "arg": _plain(report.call.arg),
                    "kwarg": _plain(report.call.kwarg),
                    "key": report.key,
                    "state": report.state,
                    "jid": report.jid,
                    "why": report.why or (f"its arguments are at {site}" if "arguments" in report.left_out else ""),
                    "outcomes": [*await self._outcomes(report.jid), *_ended(site, report)],
                }
                for report in reports
            ],
        }

    async def _matched(self, matched: Matched) -> dict[str, Any]:
        event = matched.event
        return {
            "number": matched.id,
            "tag": event.tag,
            "data": event.data,
            "stamp": event.stamp,
            "site": event.site,
            "depth": matched.depth,
            "state": matched.state,
            "why": matched.why,
            "troubles": [trouble_told(each) for each in matched.troubles],
            "throttled": [asdict(each) for each in await self._held.of(matched.id)],
            "reactions": [await self._made(made) for made in await self._book.reactions(matched.id)],
        }

    async def _made(self, made: Made) -> dict[str, Any]:
        told = reaction_told(made.reaction)
        outcomes = []
        job = ""
        if made.jid is not None:
            job = await progress_of(self._reader, made.jid)
            outcomes = [*await self._outcomes(made.jid), *await self._called(made)]
        return {
            **told,
            "key": made.key,
            "state": made.state,
            "jid": made.jid or "",
            "why": made.why,
            "job": job,
            "outcomes": outcomes,
        }

    async def _outcomes(self, jid: str) -> list[dict[str, Any]]:
        """How a job ended, on its devices so far."""
        return [
            {
                "site": site,
                "device": device,
                "outcome": outcome,
                "value": _short(None if value is None else decode_stored(value)),
                "why": why,
            }
            for site, device, outcome, value, why in await self._reader.rows(_OUTCOMES, (jid, OUTCOMES))
        ]

    async def _called(self, made: Made) -> list[dict[str, Any]]:
        """How a runner or a wheel ended, which is the outcome of the station itself."""
        return [
            {
                "site": self._bus.site,
                "device": station_device(self._bus.site),
                "outcome": state,
                "value": _short(None if value is None else decode_stored(value)) if state == "ok" else None,
                "why": "" if state == "ok" or value is None else str(_short(decode_stored(value))),
            }
            for _, state, value in await self._reader.rows(_CALL, (made.jid,))
            if state != "open"
        ]


def _throttles(known: Known, rule: Rule, counts: dict[tuple[str, str], dict[str, int]]) -> list[dict[str, Any]]:
    """What bounds each file of a rule, and what became of the events that it bounded."""
    found = [(file, throttle_of(known.throttles, rule.glob, file)) for file in known.of(rule.paths)]
    return [
        {"file": file, "throttle": throttle.words(), "events": counts.get((rule.glob, file), {})}
        for file, throttle in found
        if throttle is not None
    ]


def _unused(known: Known) -> list[str]:
    """Throttles of nothing: a word that is written wrong bounds nothing, and would not be noticed."""
    rules = {rule.glob for rule in known.map.rules}
    files = {file for files in known.files.values() for file in files}
    return [
        f"reactor_throttle: {said!r} is no tag glob of a rule and no file of one"
        for said in known.throttles
        if said not in rules and not any(tags.matches(said, file) for file in files)
    ]


def _ended(site: str, report: Report) -> list[dict[str, Any]]:
    """How a runner or a wheel of a site ended, as the outcome of its station."""
    if not report.outcome:
        return []
    device = station_device(site)
    return [{"site": site, "device": device, "outcome": report.outcome, "value": report.value, "why": report.failed}]


def _plan(event: Event, plan: Plan) -> dict[str, Any]:
    return {
        "tag": event.tag,
        "rules": [rule.glob for rule in plan.rules],
        "files": [{"file": each.file, "rule": each.rule, "rendered": _plain(each.data)} for each in plan.files],
        "reactions": [reaction_told(each) for each in plan.compiled.reactions],
        "troubles": [trouble_told(each) for each in plan.compiled.troubles],
    }


def reaction_told(reaction: Reaction) -> dict[str, Any]:
    """A reaction as the API says it."""
    told = asdict(reaction)
    del told["order"]
    return {**told, "arg": _plain(reaction.arg), "kwarg": _plain(reaction.kwarg)}


def trouble_told(trouble: Trouble) -> dict[str, Any]:
    """A trouble as the API says it."""
    return asdict(trouble)


def _plain(value: Any) -> Any:
    """With names that JSON has: YAML may have others."""
    match value:
        case dict():
            return {str(name): _plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case _:
            return value


def _short(value: Any) -> Any:
    return value if len(str(value)) <= VALUE_CHARACTERS else f"{str(value)[:VALUE_CHARACTERS]}…"
