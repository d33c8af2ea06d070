"""What recorded events would set off: by the rules as they are now, or by one file that is not in the map yet.

Nothing is done, and throttles and the depth of chains are left aside. The page names each reaction that the station
would refuse to the user ``reactor`` now. A page is bounded in rows, events, reactions and time, so that no request
keeps the station busy; the client goes on where the last page ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from device_agent.clock import Clock
from device_agent.errors import Refused, UsageInvalid
from device_agent.protocol import tags
from device_agent.protocol.messages import Event
from gateway.devices.policy import Operator
from gateway.reactor.explain import reaction_told, trouble_told
from gateway.reactor.foreseen import ForeseenTroubles
from gateway.reactor.past import Past, Place
from gateway.reactor.plan import Plan, Planner, text_of
from gateway.reactor.rules import Rule, RuleMap
from gateway.reactor.runs import GUARDED
from gateway.reactor.sls import Trouble
from gateway.reactor.sources import ENVIRONMENT, Known, label
from gateway.render_frames import Tree
from gateway.render_sls import PYTHON

EVENTS: Final = 50
"""Most events that a page renders."""

REACTIONS: Final = 1000
"""After so many a page ends: it has those of the event that reached them, and no other's."""

SECONDS: Final = 5.0
"""After so long a page ends, behind the event that it is at."""

GIVEN: Final = "salt://given.sls"
"""A file that was sent along. Its place says that it is not of this machine's disk, so it is never run as Python."""

GIVEN_NAME: Final = "given.sls"
GIVEN_CHARACTERS: Final = 128 * 1024


class Wanted(Struct, frozen=True, kw_only=True):
    """Which events, in wall seconds from ``since`` on and before ``until``, and by what rule, where not by the map."""

    since: float
    until: float
    tag: str
    given: str | None = None
    after: Place = Place()


class Replay:
    """Answers of ``replay``. ``planning`` is a planner whose files look as who asks, and not as the reactor."""

    def __init__(
        self,
        *,
        planner: Planner,
        planning: Callable[[Operator], Planner],
        foreseen: ForeseenTroubles,
        past: Past,
        clock: Clock,
    ) -> None:
        self._foreseen = foreseen
        self._planner = planner
        self._planning = planning
        self._past = past
        self._clock = clock

    async def page(self, wanted: Wanted, operator: Operator) -> dict[str, Any]:
        """What the events behind ``after`` would set off, and where the next page begins.

        Raises ``UsageInvalid``, ``StationFailed``, and ``Refused`` (``busy``) when not one event could be rendered.
        """
        if wanted.given is None:
            planner, known = self._planner, await self._planner.sources.now()
        else:
            planner, known = self._planning(operator), given_rules(wanted.tag, wanted.given)
        page = await self._past.page(wanted.after, wanted.since, wanted.until)
        ends = self._clock.monotonic() + SECONDS
        told: list[dict[str, Any]] = []
        looked = guarded = reactions = 0
        at = 0.0
        for row in page:
            full = len(told) >= EVENTS or reactions >= REACTIONS or self._clock.monotonic() >= ends
            # However slow it is, each page goes on by one.
            if looked and full:
                break
            if tags.matches(wanted.tag, row.tag) and known.map.matching(row.tag):
                event = await self._past.event(row)
                if event is not None and event.data.get("user") == GUARDED:
                    guarded += 1
                elif event is not None:
                    try:
                        plan = await planner.plan(event, known=known)
                    except Refused:
                        if not looked:
                            raise
                        break
                    reactions += len(plan.compiled.reactions)
                    foreseen = await self._foreseen.of_reactions(plan.compiled.reactions, partial(text_of, known))
                    told.append(_told(row.number, event, plan, foreseen))
            looked += 1
            at = row.stamp
        place = page.place
        return {
            "events": told,
            "looked": looked,
            "guarded": guarded,
            "at": at,
            "next": {"event": place.event, "outcome": place.outcome} if page.more else None,
            "skipped": list(known.map.skipped),
        }


def given_rules(glob: str, text: str) -> Known:
    """One rule, of one file that was sent along, with nothing beside it. Raises ``UsageInvalid``."""
    first = text.split("\n", 1)[0].strip()
    if first == PYTHON:
        raise UsageInvalid(
            "a file in Python is run from the station's own disk alone",
            where="rule:1",
            found=first,
            allowed="Jinja and YAML",
            hint="name the file in the map of the station, and replay without a file",
        )
    content = text.encode(errors="replace")
    digest = hashlib.sha256(f"{GIVEN}\0".encode() + content).hexdigest()
    return Known(
        RuleMap((Rule(1, glob, (GIVEN,)),)),
        Tree(digest, {ENVIRONMENT: {label(GIVEN): content}}),
        {GIVEN: (GIVEN,)},
    )


def _told(number: int, event: Event, plan: Plan, foreseen: list[Trouble]) -> dict[str, Any]:
    return {
        "number": number,
        "tag": event.tag,
        "stamp": event.stamp,
        "site": event.site,
        "rules": [rule.glob for rule in plan.rules],
        "reactions": [reaction_told(replace(each, file=_named(each.file))) for each in plan.compiled.reactions],
        "troubles": [
            trouble_told(replace(each, file=_named(each.file))) for each in (*plan.compiled.troubles, *foreseen)
        ],
    }


def _named(file: str) -> str:
    return GIVEN_NAME if file == GIVEN else file
