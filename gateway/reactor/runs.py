"""The reactor at work: what happened is matched, rendered, and answered with reactions.

Matching never waits for rendering: an event that matches is a row, and its number stands in a bounded queue from which
others take it. A reaction is a row before it is made, and the row of a job says in the same commit which reaction it
is. So after any end of the station each reaction is made, and none is made into two jobs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar, Final

from device_agent.clock import Clock
from device_agent.errors import NotFound, OutstationError, PolicyRefused, Refused, StationFailed
from device_agent.parts import Part
from gateway.bus import Bus
from gateway.calls.call import CallRequest
from gateway.calls.calls import Calls
from gateway.devices.policy import Operator, Policy
from gateway.jobs.accept import Acceptance
from gateway.metrics import Metrics
from gateway.reactor.about import about
from gateway.reactor.at_hand import AtHand
from gateway.reactor.book import EventState, Made, Matched, ReactionBook
from gateway.reactor.doubted import drop_doubted
from gateway.reactor.plan import Plan, Planner
from gateway.reactor.requests import MARK, mark_of, request_of
from gateway.reactor.rules import RuleMap
from gateway.reactor.seen import SOURCES, Happened, Seen, Source
from gateway.reactor.settings import ReactionSettings
from gateway.reactor.throttling import Throttling
from gateway.store.doubt import Doubt
from gateway.store.reader import StoreUnreadable
from gateway.store.writer import StoreFailed

log = logging.getLogger(__name__)

USER: Final = "reactor"
"""Who issues the jobs of reactions, to the policy and in the audit."""

GUARDED: Final = "Reactor"
"""Events of this user are of reactions themselves, and set off nothing: Salt's guard."""

LOOK_SECONDS: Final = 5.0
"""How often is looked without being told: what was told may have been missed."""

AGAIN_SECONDS: Final = 1.0
TRIES: Final = 60
PRUNE_SECONDS: Final = 600.0


class Reactor(Part):
    """Works on reactions for as long as the station runs."""

    name: ClassVar[str] = "reactor"
    drain_seconds: ClassVar[float] = 1.0

    def __init__(
        self,
        *,
        site: str,
        settings: ReactionSettings,
        planner: Planner,
        seen: Seen,
        book: ReactionBook,
        acceptance: Acceptance,
        calls: Calls,
        throttling: Throttling,
        policy: Callable[[], Policy],
        bus: Bus,
        metrics: Metrics,
        clock: Clock,
        doubt: Doubt,
    ) -> None:
        self._site = site
        self._settings = settings
        self._planner = planner
        self._seen = seen
        self._book = book
        self._acceptance = acceptance
        self._calls = calls
        self._throttling = throttling
        self._policy = policy
        self._bus = bus
        self._metrics = metrics
        self._clock = clock
        self._doubt = doubt
        self._queue: asyncio.Queue[int] = asyncio.Queue(1)
        self._at_hand = AtHand()
        self._taken: set[int] = set()
        """What is in the queue or under way: no event is worked on twice at the same time."""
        self._draining = False
        self._looks = False
        self._looked_by: tuple[RuleMap, bool] | None = None
        self._busy = 0

    async def open(self) -> None:
        """Take up what waits, and go on looking where the last run was."""
        await self._planner.sources.book.open()
        waiting: list[int] = []
        if self._planner.sources.any:
            await self._look_on()
            waiting = sorted({*await self._book.to_do(), *await self._throttling.open()})
            if doubt := self._doubt.past():
                await drop_doubted(self._book, self._seen, waiting, doubt)
                waiting = []
        else:
            await self._book.forget_place()
        self._queue = asyncio.Queue(max(self._settings.waiting, len(waiting)))
        for number in waiting:
            self._queue.put_nowait(number)
        self._taken.update(waiting)
        if waiting:
            log.info("reactions are taken up again events=%d", len(waiting))
        for worker in range(self._settings.at_once):
            self.spawn(self._work(), f"worker {worker}")
        self.spawn(self._match(), "match")
        self.spawn(self._throttling.run(self._take_up), "throttles")
        self.spawn(self._prune(), "prune")

    async def _look_on(self) -> None:
        """There are rules: from where the last run looked, or from now on where none did."""
        await self._seen.open()
        await self._book.place(self._seen)
        self._looks = True

    async def drain(self) -> None:
        """Begin nothing more, and keep how far was looked."""
        self._draining = True
        if self._looks:
            with suppress(StoreFailed):
                await self._book.place(self._seen)

    def gauges(self) -> dict[str, float]:
        """How it stands, for the metrics."""
        return {
            "reactor_events_waiting": float(self._queue.qsize()),
            "reactor_events_under_way": float(self._busy),
            "reactor_events_throttled": float(self._throttling.waiting()),
        }

    # --- matching --------------------------------------------------------------------------------------------------

    async def _match(self) -> None:
        while not self._looks:
            await self._planner.sources.book.changed.wait()
            try:
                await self._look_on()
            except StationFailed as error:
                log.error("the reactor could not look, it tries again error=%s", error)
                await asyncio.sleep(AGAIN_SECONDS)
        with self._bus.subscribe("*") as news:
            while not self._draining:
                while not news.queue.empty():
                    news.queue.get_nowait()
                try:
                    # First how far: what is committed after the rules were read is judged by those that hold then.
                    newest = await self._seen.newest()
                    rules = (await self._planner.sources.now()).map
                    if await self._heed_change(rules):
                        continue
                    more = [await self._page(source, rules, newest[source]) for source in SOURCES]
                except StationFailed as error:
                    log.error("the reactor could not look, it tries again error=%s", error)
                    await asyncio.sleep(AGAIN_SECONDS)
                    continue
                if not any(more):
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_SECONDS):
                            await news.queue.get()

    async def _heed_change(self, rules: RuleMap) -> bool:
        """Keep how far was looked by other rules, which after a kill must not count for the past; look anew then."""
        now = (rules, self._planner.sources.book.leads)
        if now == self._looked_by:
            return False
        await self._book.place(self._seen)
        self._looked_by = now
        return True

    async def _page(self, source: Source, rules: RuleMap, until: int) -> bool:
        # Who does not lead leaves what happens to others; it is not made up for later.
        leads = self._planner.sources.book.leads
        page = await self._seen.next(source, lambda tag: leads and bool(rules.matching(tag)), until)
        rows = [(each, *await self._judged(each)) for each in page.found if not self._guarded(each)]
        added = await self._book.matched(rows, source, page.last) if rows else []
        self._seen.numbers[source] = page.last
        for matched, size in added:
            if matched.state == "waiting" and await self._enqueue(matched.id):
                self._at_hand.keep(matched, size)
        return page.more

    def _guarded(self, happened: Happened) -> bool:
        guarded = happened.event.data.get("user") == GUARDED
        if guarded:
            self._metrics.add("reactor_events_guarded")
        return guarded

    async def _judged(self, happened: Happened) -> tuple[int, EventState, str]:
        """How many reactions lie between an event and what began it, and whether that are too many."""
        depth = await self._depth(happened)
        self._metrics.add("reactor_events_matched")
        if depth <= self._settings.depth:
            return depth, "waiting", ""
        why = (
            f"it is the end of a chain of {depth} reactions, each to what the one before did; "
            f"reactions.depth lets {self._settings.depth} pass"
        )
        self._metrics.refused("reactor", "too_deep", happened.event.tag, why)
        return depth, "stopped", why

    async def _depth(self, happened: Happened) -> int:
        words = (await self._seen.why(happened)).split(" ", 4)
        if len(words) > 3 and words[0] == MARK and words[2] == "depth" and words[3].isdecimal() and len(words[3]) < 9:
            return int(words[3]) + 1
        return 0

    async def _enqueue(self, number: int) -> bool:
        """Give an event its turn; whether it waits for one now."""
        if number in self._taken:
            return False
        while self._queue.full():
            gives_way = number if self._settings.when_full == "newest" else self._queue.get_nowait()
            self._metrics.refused("reactor", "queue_full", "", f"event {gives_way}")
            why = f"{self._settings.waiting} events were waiting for their reactions, and this one gave way"
            try:
                await self._book.dropped(gives_way, why)
            except StoreFailed as error:
                log.error("an event that gave way waits for the next start event=%d error=%s", gives_way, error)
            if gives_way == number:
                return False
            self._taken.discard(gives_way)
            self._at_hand.take(gives_way)
        self._taken.add(number)
        self._queue.put_nowait(number)
        return True

    def _take_up(self, number: int) -> bool:
        """An event that a throttle lets go on now. False: it is under way, or there is no room."""
        if number in self._taken or self._queue.full():
            return False
        self._taken.add(number)
        self._queue.put_nowait(number)
        return True

    # --- reactions -------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            number = await self._queue.get()
            if self._draining:
                return
            self._busy += 1
            try:
                await self._react(number)
            finally:
                self._busy -= 1
                self._taken.discard(number)

    async def _react(self, number: int) -> None:
        matched = self._at_hand.take(number)
        while not self._draining:
            try:
                matched = matched or await self._book.event(number)
                if matched is None:
                    return
                waits = matched.state == "waiting"
                reactions = await (self._render(matched) if waits else self._book.reactions(number))
                if self._throttling.any and await self._render_throttled(matched):
                    reactions = await self._book.reactions(number)
                for made in reactions:
                    if made.state == "waiting":
                        await self._make(matched, made)
                return
            except (StationFailed, Refused) as error:
                log.error("a reaction is tried again event=%s error=%s", number, error)
                # How far it came stands on the disk.
                matched = None
                await asyncio.sleep(AGAIN_SECONDS)

    async def _render(self, matched: Matched) -> list[Made]:
        bounded = await self._planner.bounded(matched.event)
        if bounded:
            await self._throttling.judge(matched, bounded)
        plan = await self._planner.plan(matched.event, without={(each.glob, each.file) for each in bounded})
        self._tell(plan)
        return await self._book.rendered(matched, plan.compiled.reactions, plan.compiled.troubles)

    async def _render_throttled(self, matched: Matched) -> bool:
        ready = await self._throttling.ready(matched.id)
        for held, collected in ready:
            plan = await self._planner.plan(matched.event, alone=(held.glob, held.file), collected=collected)
            self._tell(plan)
            over = self._throttling.rendered(matched.id, held)
            await self._book.rendered_late(matched, plan.compiled.reactions, plan.compiled.troubles, over)
        return bool(ready)

    def _tell(self, plan: Plan) -> None:
        for trouble in plan.compiled.troubles:
            if trouble.level == "note":
                continue
            reason = "bad_file" if trouble.level == "error" else "odd_file"
            self._metrics.refused("reactor", reason, f"{trouble.file}:{trouble.line}", f"{trouble.id}: {trouble.what}")

    async def _make(self, matched: Matched, made: Made) -> None:
        reaction = made.reaction
        for _ in range(TRIES):
            try:
                if reaction.kind in ("runner", "wheel"):
                    await self._call(matched, made)
                else:
                    await self._issue(matched, made)
            except (StoreFailed, StoreUnreadable):
                raise
            except PolicyRefused as refused:
                if refused.error_id == "station.stopping":
                    return
                if refused.error_id in ("jobs.busy", "calls.busy"):
                    await asyncio.sleep(AGAIN_SECONDS)
                    continue
                self._metrics.add("reactions_refused")
                await self._book.ended(made.key, "refused", str(refused))
            except OutstationError as error:
                self._metrics.add("reactions_failed")
                await self._book.ended(made.key, "failed", error.what if isinstance(error, NotFound) else str(error))
            return
        self._metrics.add("reactions_failed")
        await self._book.ended(
            made.key, "failed", f"too many jobs or calls were open for {TRIES * AGAIN_SECONDS:.0f} s"
        )

    async def _issue(self, matched: Matched, made: Made) -> None:
        reaction = made.reaction
        operator = reactor_by(self._policy())
        why, seconds = mark_of(matched, made), self._settings.expires_seconds
        request, missing = request_of(reaction, self._site, seconds, why, self._acceptance.returning)
        if missing:
            log.warning(
                "returners of a reaction are not available file=%s id=%s: %s", reaction.file, reaction.id, missing
            )
        await self._acceptance.submit(
            request, str(operator), operator, beside=lambda jid: self._book.issuing(made.key, jid, missing)
        )
        self._metrics.add("reactions_issued")

    async def _call(self, matched: Matched, made: Made) -> None:
        reaction = made.reaction
        await self._calls.submit(
            CallRequest(
                kind="runner" if reaction.kind == "runner" else "wheel",
                fun=reaction.fun,
                arg=reaction.arg,
                kwarg=reaction.kwarg,
            ),
            reactor_by(self._policy()),
            user=GUARDED,
            why=mark_of(matched, made),
            lane="reaction",
            direct=reaction.direct,
            about=None if reaction.several else about(matched.event, self._site),
            beside=lambda jid: self._book.issuing(made.key, jid),
        )
        self._metrics.add("reactions_issued")

    async def _prune(self) -> None:
        while True:
            try:
                await self._book.prune()
            except StoreFailed as error:
                log.error("old reactions not pruned error=%s", error.found)
            await asyncio.sleep(PRUNE_SECONDS)


def reactor_by(policy: Policy) -> Operator:
    """The reactor, with the roles that the policy gives it: those of an operator, where it says nothing."""
    return Operator(USER, policy.users.get(USER) or frozenset({"operator"}))
