"""The schedule of an agent at work: it waits for what is due, runs it, and keeps what it did.

Whether anybody can be reached does not matter to it. A turn is on flash before it is run, so an end of the agent at any
moment repeats nothing and forgets nothing; those of plain intervals are written once a minute, for the sake of the
flash. What was under way when the agent ended is returned as ``unknown``.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Any, Final

from device_agent.clock import Clock
from device_agent.ended import Ended, FunctionFailed
from device_agent.own import Own
from device_agent.protocol.jid import JidMaker
from device_agent.restarts import Lend
from device_agent.schedule.book import ScheduleBook, Where
from device_agent.schedule.kept import Kept, KeptFile, Run
from device_agent.schedule.runs import Identity, Runs, Spawn
from device_agent.schedule.turns import FULL, Turn, Turns
from device_agent.trust.reach import Reach

log = logging.getLogger(__name__)

TICK_SECONDS: Final = 1.0
WRITE_SECONDS: Final = 60.0
"""How long the turns of plain intervals may be in memory alone."""

RUNNING: Final = 16
"""Most runs under way at once."""

PILLAR_FIRST_SECONDS: Final = 5.0
PILLAR_AGAIN_SECONDS: Final = 60.0

Allowed = Callable[[str, list[Any], dict[str, Any]], Sequence[str]]
"""Whether the site may order a call. Raises ``Refused``."""


class AgentSchedule:
    """Implements ``Schedule`` (``port.py``) for an agent."""

    def __init__(self, path: Path, settings: Mapping[str, Any], zone: tzinfo, clock: Clock) -> None:
        self.draining = False
        self._book = ScheduleBook(settings, zone)
        self._file = KeptFile(path)
        self._clock = clock
        self._kept = Kept()
        self._jids = JidMaker()
        self._running: Counter[str] = Counter()
        self._turns = Turns("", self._busy)
        self._runs: Runs | None = None
        self._waiting: list[tuple[Turn, str]] = []
        """Turns whose state is not on flash yet."""
        self._written = -math.inf
        self._dirty = False
        self._own = Own()

    # --- for the agent -------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Read what was kept. Raises ``ConfigInvalid``."""
        self._kept = await self._file.load()
        self._jids = JidMaker(self._kept.jid)
        self._turns.states = self._kept.states
        self._turns.forgot = self._kept.lost
        self._book.restore(self._kept.changes, self._kept.pillar)

    def begin(self, identity: Identity, own: Own, lend: Lend, spawn: Spawn, allowed: Allowed) -> None:
        """Be ready to run. ``allowed`` judges what the pillar names, which nobody signed, and
        returns the folders that its paths must not leave.
        """
        self._own = own
        own.pillar.on_change(self._pillar_came)
        self._turns.named(identity.did)
        self._runs = Runs(
            identity,
            own,
            lend=lend,
            spawn=spawn,
            judge=lambda run: allowed(run.fun, run.arg, run.kwarg) if self._book.is_pillar(run.name) else (),
            leaves=lambda: self.draining,
            under_way=self._under_way,
            over=self._over,
            clock=self._clock,
            zone=self.zone,
        )
        for jid, run in list(self._kept.running.items()):
            self._running[run.name] += 1
            self._runs.go_on(jid, run)
        self._renew()
        self._kept.lost = self._turns.forgot = False

    async def run_due(self) -> None:
        """Run what is due, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._load_pillar(), name="schedule/pillar")
            group.create_task(self._work(), name="schedule/work")

    async def close(self) -> None:
        """Keep what is in memory alone."""
        if self._dirty:
            try:
                await self._keep()
            except OSError as error:
                log.error("the schedule cannot be kept error=%s", error)

    # --- for functions -------------------------------------------------------------------------------------------

    @property
    def zone(self) -> tzinfo:
        return self._book.zone

    @property
    def enabled(self) -> bool:
        return self._book.enabled

    def written(self, where: Where | None = None) -> dict[str, dict[str, Any]]:
        return self._book.written(where)

    def kept(self) -> dict[str, dict[str, Any]]:
        return copy.deepcopy(self._book.saved.entries)

    def is_pillar(self, name: str) -> bool:
        return self._book.is_pillar(name)

    def next_fire(self, name: str) -> float | None:
        return self._turns.next_fire(name) if name in self._turns.entries and self.enabled else None

    def status(self, name: str) -> dict[str, Any]:
        state = self._turns.states.get(name)
        found: dict[str, Any] = {}
        if name in self._book.errors:
            found["_error"] = self._book.errors[name]
        entry = self._turns.entries.get(name)
        if state is None or entry is None:
            return found
        found |= {"_next_fire_time": self.next_fire(name), "_last_run": state.last_run or None, "_runs": state.runs}
        if entry.seconds:
            found["_seconds"] = entry.seconds
        if state.skipped:
            found |= {"_skipped": True, "_skip_reason": state.skip_reason, "_skipped_time": state.skipped}
        if state.jid:
            found |= {"_last_jid": state.jid, "_last_outcome": state.outcome, "_last_why": state.why}
        return found | {"_missed": state.missed, "_running": self._running[name]}

    async def put(self, name: str, value: dict[str, Any], reach: Reach | None, *, persist: bool) -> None:
        self._book.put(name, value, reach or "", persist=persist)
        await self._changed()

    async def remove(self, name: str, *, persist: bool) -> None:
        self._book.remove(name, persist=persist)
        self._turns.forget(name)
        await self._changed()

    async def switch(self, name: str | None, *, on: bool, persist: bool) -> None:
        self._book.switch(name, on=on, persist=persist)
        await self._changed()

    async def move(self, name: str, at: float, to: float | None) -> None:
        self._turns.skip(name, at)
        if to is not None:
            self._turns.run_at(name, to)
        await self._keep()

    async def run(self, name: str) -> str:
        jid = self._jids.next(self._clock.wall())
        turn = self._turns.asked(name, self._clock.wall())
        self._begin(turn, jid)
        try:
            await self._keep()
        except OSError:
            self._running[name] -= 1
            self._kept.running.pop(jid, None)
            raise
        self._start(turn, jid)
        return jid

    async def save(self) -> None:
        self._book.save()
        await self._changed()

    async def reload(self) -> bool:
        pillar = await self._own.pillar.refresh()
        self._book.revert()
        self._book.take_pillar(pillar.get("schedule", {}))
        await self._changed()
        return bool(self._book.pillar)

    # --- turns ---------------------------------------------------------------------------------------------------

    def _renew(self) -> None:
        self._turns.enabled = self._book.enabled
        before = dict(self._book.errors)
        self._turns.replace(self._book.entries(), self._clock.wall())
        for name, why in self._book.errors.items():
            if before.get(name) != why:
                log.error("an entry of the schedule is left out name=%s why=%r", name, why)

    async def _changed(self) -> None:
        self._renew()
        await self._keep()

    async def _keep(self) -> None:
        kept = self._kept
        kept.changes, kept.pillar, kept.states = self._book.saved, self._book.pillar, self._turns.states
        self._dirty = False
        try:
            await self._file.save(kept)
        except OSError:
            self._dirty = True
            raise
        self._written = self._clock.monotonic()

    async def _work(self) -> None:
        failed = False
        while True:
            wall, now = self._clock.wall(), self._clock.monotonic()
            for turn in [] if self.draining else self._turns.tick(wall, now):
                self._take(turn, wall)
            if self._waiting or (self._dirty and now - self._written >= WRITE_SECONDS):
                try:
                    await self._keep()
                except OSError as error:
                    if not failed:
                        log.error("the schedule cannot be kept, what is due waits for it error=%s", error)
                    failed = True
                else:
                    failed = False
                    waiting, self._waiting = self._waiting, []
                    for turn, jid in waiting:
                        self._start(turn, jid)
            await asyncio.sleep(TICK_SECONDS)

    async def _load_pillar(self) -> None:
        """Ask for the pillar once, as soon as there is somebody to ask."""
        wait = random.uniform(0.0, PILLAR_FIRST_SECONDS)
        while True:
            await asyncio.sleep(wait)
            try:
                await self._own.pillar.load()
            except FunctionFailed as error:
                log.info("the schedule goes on with the pillar that was kept error=%r", error.why)
                wait = PILLAR_AGAIN_SECONDS
            else:
                return

    def _pillar_came(self) -> None:
        if self._book.take_pillar(self._own.pillar.held.get("schedule", {})):
            log.info("the schedule in the pillar is another one entries=%d", len(self._book.pillar))
            self._renew()
            self._dirty, self._written = True, -math.inf

    def _take(self, turn: Turn, wall: float) -> None:
        name = turn.entry.name
        self._dirty = True
        if turn.reason:
            level = logging.WARNING if turn.late else logging.INFO
            log.log(level, "scheduled run left out name=%s reason=%s late=%.0f", name, turn.reason, turn.late)
            return
        jid = self._jids.next(wall)
        self._begin(turn, jid)
        if turn.late:
            log.warning("a scheduled run was missed, it runs now name=%s late=%.0f jid=%s", name, turn.late, jid)
        if turn.entry.seconds and not turn.entry.run_missed:
            self._start(turn, jid)
        else:
            self._waiting.append((turn, jid))

    def _begin(self, turn: Turn, jid: str) -> None:
        entry = turn.entry
        self._running[entry.name] += 1
        self._kept.jid = jid
        self._turns.states[entry.name].jid = jid
        if not entry.seconds or entry.run_missed or turn.kind == "asked":
            self._kept.running[jid] = self._run_of(turn)

    def _run_of(self, turn: Turn) -> Run:
        entry = turn.entry
        return Run(
            name=entry.name,
            fun=entry.function,
            arg=entry.arg,
            kwarg=entry.kwarg,
            due=turn.due,
            begun=self._clock.wall(),
            late=turn.late,
            returns=entry.return_job,
            metadata=entry.metadata,
        )

    def _busy(self, name: str) -> int:
        return self._running[name] if self._running.total() < RUNNING else FULL

    def _start(self, turn: Turn, jid: str) -> None:
        assert self._runs is not None, "it runs before anything is due"
        self._runs.start(jid, self._run_of(turn), self._book.live.reach.get(turn.entry.name, "shell"))

    async def _under_way(self, jid: str, run: Run) -> None:
        """It is on flash that a run restarts the device. Raises ``OSError``."""
        self._kept.running[jid] = run
        await self._keep()

    async def _over(self, jid: str, run: Run, ended: Ended | None) -> None:
        self._running[run.name] -= 1
        if ended is None:
            return
        state = self._turns.states.get(run.name)
        if state is not None and state.jid == jid:
            state.outcome, state.why, state.ended = ended.outcome, ended.why, self._clock.wall()
        self._dirty = True
        if self._kept.running.pop(jid, None) is not None:
            try:
                await self._keep()
            except OSError as error:
                log.error("the end of a scheduled run cannot be kept name=%s error=%s", run.name, error)
