"""The schedule of a station at work: what is due becomes a row, and the row a job or a call.

It needs nobody: with the uplink cut it goes on. A run is a row before it is made, in the commit that says that its time
was taken; and the job or the call says in its own commit which run it is. So after any end of the station each run is
made, and none is made twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import tzinfo
from typing import Any, ClassVar, Final

from msgspec.structs import replace

from device_agent.clock import Clock
from device_agent.errors import NotFound, OutstationError, PolicyRefused, Refused, StationFailed
from device_agent.parts import Part
from device_agent.protocol import tags
from device_agent.schedule.entries import Entry, entries
from device_agent.schedule.turns import Turn, Turns
from device_agent.schedule.zones import zone_of
from gateway.bus import Bus
from gateway.calls.calls import Calls
from gateway.devices.policy import Operator, Policy
from gateway.jobs.accept import Acceptance
from gateway.jobs.open_jobs import OpenJobs
from gateway.metrics import Metrics
from gateway.schedule.book import WHOLE, Ran, ScheduleStore
from gateway.schedule.runs import call_of, job_of
from gateway.store.doubt import Doubt
from gateway.store.reader import StoreUnreadable
from gateway.store.writer import StoreFailed

log = logging.getLogger(__name__)

USER: Final = "schedule"
"""Who issues the jobs of a schedule, to the policy and in the audit."""

MARK: Final = "schedule"
TICK_SECONDS: Final = 1.0
WRITE_SECONDS: Final = 60.0
PRUNE_SECONDS: Final = 600.0
AGAIN_SECONDS: Final = 1.0
TRIES: Final = 60
FENCED: Final = "fenced"
"""Why a run is left out while another gateway with a copy of this store is connected."""

NO_FAILURE: Final = frozenset({"ok", "unreachable", "expired", "cancelled", "site_dark"})
"""Ends that say nothing against an entry: a device that is away is told of elsewhere."""


class StationSchedule(Part):
    """Runs what is due for as long as the station runs."""

    name: ClassVar[str] = "schedule"
    drain_seconds: ClassVar[float] = 1.0

    def __init__(
        self,
        *,
        site: str,
        schedule: Mapping[str, Any],
        timezone: str | None,
        book: ScheduleStore,
        acceptance: Acceptance,
        open_jobs: OpenJobs,
        calls: Calls,
        policy: Callable[[], Policy],
        bus: Bus,
        metrics: Metrics,
        clock: Clock,
        doubt: Doubt,
    ) -> None:
        self.book = book
        self._site = site
        self._written = dict(schedule)
        self._zone = zone_of(timezone)
        self._acceptance = acceptance
        self._open_jobs = open_jobs
        self._calls = calls
        self._policy = policy
        self._bus = bus
        self._metrics = metrics
        self._clock = clock
        self._doubt = doubt
        self._turns = Turns(site, self._under_way)
        self._switches: dict[str, bool] = {}
        self._making: Counter[str] = Counter()
        self._made: dict[str, set[str]] = {}
        self._dirty: set[str] = set()
        self._draining = False

    async def open(self) -> None:
        """Take up what was taken and not made, and go on where the last run was."""
        self._turns.states = await self.book.states()
        self._switches = await self.book.switches()
        for name, ran in (await self.book.newest()).items():
            if ran.jid is not None:
                self._made.setdefault(name, set()).add(ran.jid)
        self._renew()
        doubt = self._doubt.past()
        if doubt:
            log.warning("what was due before now is not made up for: %s", doubt)
            self._turns.pass_over(self._clock.wall())
            self._dirty.update(self._turns.states)
            await self._keep()
        for ran in await self.book.waiting():
            entry = self._turns.entries.get(ran.entry)
            if doubt:
                await self.book.ended(ran.key, "failed", doubt)
            elif entry is None:
                await self.book.ended(ran.key, "failed", "the station was ended, and the entry is no longer there")
            else:
                self._begin(entry, ran)
        self.spawn(self._work(), "work")
        self.spawn(self._prune(), "prune")

    async def drain(self) -> None:
        """Begin nothing more, and keep what is in memory alone."""
        self._draining = True
        with suppress(StoreFailed):
            await self._keep()

    def use(self, schedule: Mapping[str, Any], timezone: str | None) -> None:
        """Other settings count from now on."""
        self._written, self._zone = dict(schedule), zone_of(timezone)
        self._renew()

    # --- for the API -----------------------------------------------------------------------------------------------

    @property
    def enabled(self) -> bool:
        """Whether it runs as a whole."""
        told = self._written.get("enabled", True)
        return self._switches.get(WHOLE, told if isinstance(told, bool) else True)

    @property
    def zone(self) -> tzinfo:
        """The zone of its times."""
        return self._zone

    @property
    def turns(self) -> Turns:
        """Its entries, and what was done of each."""
        return self._turns

    def entry(self, name: str) -> Entry:
        """An entry. Raises ``NotFound``."""
        entry = self._turns.entries.get(name)
        if entry is None:
            known = ", ".join(list(self._turns.entries)[:20]) or "there are none"
            raise NotFound("there is no such entry in the schedule", where="name", found=name[:128], allowed=known)
        return entry

    async def switch(self, name: str | None, *, on: bool) -> None:
        """Switch an entry on or off, or the whole; it lasts. Raises ``NotFound`` and ``StoreFailed``."""
        if name is not None:
            self.entry(name)
        await self.book.switch(WHOLE if name is None else name, on=on)
        self._switches[WHOLE if name is None else name] = on
        self._renew()

    async def run_now(self, name: str) -> str:
        """Run an entry now, beside its times; the key of the run. Raises ``NotFound`` and ``StoreFailed``."""
        entry = self.entry(name)
        turn = self._turns.asked(name, self._clock.wall())
        ran, statements = self.book.taking(turn, self._turns.states[name])
        await self.book.take(statements)
        self._begin(entry, ran)
        return ran.key

    def says(self, entry: Entry) -> str:
        """What an entry makes: a job for its target, one for the station, or a call."""
        if call_of(entry, self._calls.functions) is not None:
            return "call"
        return "job" if entry.target else "own"

    async def failing(self) -> list[tuple[str, str]]:
        """Entries whose last run failed: name, and why."""
        found: list[tuple[str, str]] = []
        for name, ran in (await self.book.newest()).items():
            if name not in self._turns.entries:
                continue
            if ran.state in ("failed", "refused"):
                found.append((name, f"{ran.state}: {ran.why.splitlines()[0] if ran.why else 'no reason'}"))
            elif ran.jid is not None:
                ends = {end: count for end, count in (await self.book.ends(ran.jid)).items() if end not in NO_FAILURE}
                if ends:
                    told = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
                    found.append((name, f"{told} (jid {ran.jid})"))
        return found

    # --- turns -----------------------------------------------------------------------------------------------------

    def _renew(self) -> None:
        self._turns.enabled = self.enabled
        found = entries(self._written, self._zone, "station")
        for name, on in self._switches.items():
            if name in found:
                found[name] = replace(found[name], enabled=on)
        self._turns.replace(found, self._clock.wall())

    async def _work(self) -> None:
        kept = self._clock.monotonic()
        while True:
            now = self._clock.monotonic()
            if not self._draining:
                stopped = bool(self._doubt.stopped())
                for turn in self._turns.tick(self._clock.wall(), now):
                    await self._take(replace(turn, reason=turn.reason or FENCED) if stopped else turn)
            if now - kept >= WRITE_SECONDS:
                kept = now
                with suppress(StoreFailed):
                    await self._keep()
            await asyncio.sleep(TICK_SECONDS)

    async def _take(self, turn: Turn) -> None:
        name = turn.entry.name
        if turn.reason and turn.reason != "missed":
            self._dirty.add(name)
            self._metrics.add("schedule_left_out")
            log.info("scheduled run left out name=%s reason=%s", name, turn.reason)
            return
        ran, statements = self.book.taking(turn, self._turns.states[name])
        events, untold = [], []
        if turn.late:
            # Nobody was there to see it: whoever looks after the site hears of it.
            data = {"name": name, "due": turn.due, "late_seconds": turn.late, "runs": not turn.reason}
            events.append(self._bus.event(tags.schedule_missed(name), data))
            log.warning("a scheduled run was missed name=%s late=%.0f runs_now=%s", name, turn.late, not turn.reason)
            self._metrics.add("schedule_missed")
        while not self._draining:
            try:
                await (self._bus.accept(events, statements) if events else self.book.take(statements))
            except StoreFailed as error:
                if events:
                    # A full disk takes no event: what may make room on it does not wait for that.
                    events, untold = [], events
                    continue
                log.error("a scheduled run waits for the store name=%s error=%s", name, error)
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            await self._bus.fire(untold)
            if not turn.reason:
                self._begin(turn.entry, ran)
            return

    async def _keep(self) -> None:
        names, self._dirty = self._dirty, set()
        states = self._turns.states
        try:
            await self.book.keep({name: states[name] for name in names if name in states})
        except StoreFailed:
            self._dirty |= names
            raise

    async def _prune(self) -> None:
        while True:
            try:
                await self.book.prune()
            except StoreFailed as error:
                log.error("old scheduled runs not pruned error=%s", error.found)
            await asyncio.sleep(PRUNE_SECONDS)

    def _under_way(self, name: str) -> int:
        jids = self._made.get(name, set())
        for jid in list(jids):
            if self._open_jobs.get(jid) is None and self._calls.under_way(jid) is None:
                jids.discard(jid)
        return len(jids) + self._making[name]

    # --- runs ------------------------------------------------------------------------------------------------------

    def _begin(self, entry: Entry, ran: Ran) -> None:
        self._making[entry.name] += 1
        self.spawn(self._make(entry, ran), "run")

    async def _make(self, entry: Entry, ran: Ran) -> None:
        tries = 0
        try:
            while not self._draining and tries < TRIES:
                try:
                    jid = await self._issue(entry, ran)
                except (StoreFailed, StoreUnreadable) as error:
                    log.error("a scheduled run is tried again name=%s error=%s", entry.name, error)
                except PolicyRefused as refused:
                    if refused.error_id == "station.stopping":
                        return
                    if refused.error_id not in ("jobs.busy", "calls.busy"):
                        await self._not_made(ran, "refused", refused)
                        return
                    tries += 1
                except (OutstationError, Refused) as error:
                    await self._not_made(ran, "failed", error)
                    return
                else:
                    self._made.setdefault(entry.name, set()).add(jid)
                    self._metrics.add("schedule_runs")
                    return
                await asyncio.sleep(AGAIN_SECONDS)
            if not self._draining:
                why = f"too many jobs or calls were open for {TRIES * AGAIN_SECONDS:.0f} s"
                await self._not_made(ran, "failed", StationFailed(why))
        finally:
            self._making[entry.name] -= 1

    async def _issue(self, entry: Entry, ran: Ran) -> str:
        operator = Operator(USER, self._policy().users.get(USER) or frozenset({"operator"}))
        why = f"{MARK} {entry.name}" + (f" late {ran.late:.0f} s" if ran.late else "")
        call = call_of(entry, self._calls.functions)
        if call is not None:
            return await self._calls.submit(
                call, operator, user=USER, why=why, beside=lambda jid: self.book.issuing(ran.key, jid)
            )
        return await self._acceptance.submit(
            job_of(entry, self._site, why), str(operator), operator, beside=lambda jid: self.book.issuing(ran.key, jid)
        )

    async def _not_made(self, ran: Ran, state: Any, error: OutstationError) -> None:
        self._metrics.add("schedule_failed")
        log.warning("a scheduled run was not made name=%s state=%s error=%s", ran.entry, state, error)
        with suppress(StoreFailed):
            await self.book.ended(ran.key, state, str(error))
