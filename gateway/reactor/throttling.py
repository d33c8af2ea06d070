"""Throttles at work: each event of a bounded rule is judged once, on disk, before anything is rendered for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any, Final

from device_agent.clock import Clock
from device_agent.errors import StationFailed
from gateway.metrics import Metrics
from gateway.reactor.book import Matched
from gateway.reactor.held import Held, HeldBook
from gateway.reactor.throttle import Bounded, Throttle, key_of
from gateway.reactor.windows import Place, Verdict, Window
from gateway.store.writer import Statement, StoreFailed

log = logging.getLogger(__name__)

WINDOWS: Final = 50_000
"""Most keys that are told apart; those that come after them count as one."""

OTHERS: Final = "(others)"
STEP_SECONDS: Final = 0.25
IDLE_SECONDS: Final = 60.0


class Throttling:
    """The windows in memory, and the loop that notices what falls due."""

    def __init__(self, *, book: HeldBook, metrics: Metrics, clock: Clock) -> None:
        self._book = book
        self._metrics = metrics
        self._clock = clock
        self._windows: dict[Place, Window] = {}
        self._owed: list[Statement] = []
        """What could not be written when it was decided."""
        self._owed_for: set[tuple[int, str, str]] = set()
        self._settling = 0
        """Writes under way that have what was owed in them."""

        self._timed: dict[Place, Window] = {}
        """Those that have something to come."""

        self._to_go: dict[int, None] = {}
        self.any = False
        """Whether anything was ever throttled here, and events have to be looked up."""

        self._wake = asyncio.Event()

    async def open(self) -> list[int]:
        """Read where the windows stand; the events of which something is ready. Raises ``StoreUnreadable``."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        for place, kept in await self._book.windows():
            window = self._windows[place] = Window(place, kept.spec)
            window.restore(kept, now, wall)
        ready = []
        for event, place, state in await self._book.open_rows():
            window = self._windows.setdefault(place, Window(place, Throttle()))
            match state:
                case "ready":
                    ready.append(event)
                    if window.spec.max_concurrent is not None:
                        window.running.add(event)
                case "running":
                    window.running.add(event)
                case "turn":
                    window.turns.append(event)
                case _:
                    window.newest, window.waiting = event, window.waiting + 1
        for window in self._windows.values():
            if window.newest and not window.spec.collects:
                # Nobody collects any more: what waits has waited long enough.
                window.due = now
            self._time(window)
        self.any = bool(self._windows)
        self._wake.set()
        return ready

    def waiting(self) -> int:
        """How many events wait under a throttle."""
        return sum(window.waiting + len(window.turns) for window in self._windows.values())

    async def judge(self, matched: Matched, bounded: Sequence[Bounded]) -> None:
        """Decide for each file once. Raises ``StationFailed``; then it is to be asked again."""
        self.any = True
        known = {(each.glob, each.file) for each in await self._book.of(matched.id)}
        decided: set[tuple[int, str, str]] = set()
        statements: list[Statement] = []
        now, wall = self._clock.monotonic(), self._clock.wall()
        for each in bounded:
            if (each.glob, each.file) in known or (matched.id, each.glob, each.file) in self._owed_for:
                continue
            decided.add((matched.id, each.glob, each.file))
            window = self._window(each, key_of(matched.event, each.throttle.by))
            verdicts = window.arrived(matched.id, now, wall)
            self._count(verdicts)
            statements += self._book.putting(window.place, verdicts, window.kept())
            self._time(window)
        if self._timed:
            self._wake.set()
        await self._write(statements, decided)

    async def ready(self, event: int) -> list[tuple[Held, list[dict[str, Any]]]]:
        """The files that are to be rendered for an event now, each with the events that were collected before it."""
        return [
            (each, await self._book.collected(event, each.glob, each.file))
            for each in await self._book.of(event)
            if each.state == "ready"
        ]

    def rendered(self, event: int, held: Held) -> list[Statement]:
        """To be committed with the reactions of a file that was ready."""
        window = self._windows.get((held.glob, held.file, held.key))
        runs = window is not None and event in window.running
        return self._book.moving(event, held.glob, held.file, "running" if runs else "done")

    async def run(self, go: Callable[[int], bool]) -> None:
        """Notice what falls due, and whose turn it is. ``go`` takes an event up; False: not yet."""
        looked = self._clock.monotonic()
        while True:
            pending = self._to_go or self._owed or self._timed
            if pending:
                await asyncio.sleep(STEP_SECONDS)
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_SECONDS):
                        await self._wake.wait()
            self._wake.clear()
            try:
                await self._fall_due()
                await self._take_turns()
                for window in list(self._timed.values()):
                    self._time(window)
                if self._clock.monotonic() - looked > IDLE_SECONDS:
                    looked = self._clock.monotonic()
                    await self._forget()
                if self._owed:
                    await self._write([])
            except StationFailed as error:
                log.error("throttles not written, tried again error=%s", error)
                await asyncio.sleep(STEP_SECONDS)
            # What is ready is found by its row: before that is on disk there would be nothing to do for it.
            for event in [] if self._owed or self._settling else list(self._to_go):
                if go(event):
                    del self._to_go[event]

    # --- what changes ----------------------------------------------------------------------------------------------

    def _window(self, bounded: Bounded, key: str) -> Window:
        place = (bounded.glob, bounded.file, key)
        if place not in self._windows and len(self._windows) >= WINDOWS:
            self._metrics.refused("reactor", "too_many_keys", bounded.glob, key)
            place = (bounded.glob, bounded.file, OTHERS)
        window = self._windows.setdefault(place, Window(place, bounded.throttle))
        window.spec = bounded.throttle
        return window

    async def _fall_due(self) -> None:
        now, wall = self._clock.monotonic(), self._clock.wall()
        for window in [window for window in self._timed.values() if window.is_due(now)]:
            verdicts = window.fell_due(now, wall)
            statements = self._book.putting(window.place, verdicts, window.kept())
            statements += [self._book.joining(window.place, verdict) for verdict in verdicts]
            await self._decided(verdicts, statements)

    async def _take_turns(self) -> None:
        for window in [window for window in self._timed.values() if window.turns]:
            glob, file, _ = window.place
            for event in list(window.running):
                if await self._book.is_over(event, glob, file):
                    verdicts = window.ended(event)
                    statements = self._book.putting(window.place, verdicts, window.kept())
                    await self._decided(verdicts, [*statements, *self._book.moving(event, glob, file, "done")])
            if not window.running:
                verdicts = window.ended(0)
                await self._decided(verdicts, self._book.putting(window.place, verdicts, window.kept()))

    def _time(self, window: Window) -> None:
        if window.due is not None or window.turns:
            self._timed[window.place] = window
        else:
            self._timed.pop(window.place, None)

    async def _decided(self, verdicts: Sequence[Verdict], statements: Sequence[Statement]) -> None:
        self._count(verdicts)
        self._to_go.update((verdict.event, None) for verdict in verdicts if verdict.state == "ready")
        await self._write(statements)

    async def _forget(self) -> None:
        now = self._clock.monotonic()
        idle = [place for place, window in self._windows.items() if window.is_idle(now)]
        for place in idle:
            del self._windows[place]
        if idle:
            await self._write(self._book.forgetting(idle))

    def _count(self, verdicts: Sequence[Verdict]) -> None:
        self._metrics.add("reactions_held_back", sum(verdict.state == "held" for verdict in verdicts))

    async def _write(
        self, statements: Sequence[Statement], decided: AbstractSet[tuple[int, str, str]] = frozenset()
    ) -> None:
        owed, self._owed = self._owed, []
        self._settling += bool(owed)
        try:
            await self._book.write([*owed, *statements])
        except StoreFailed:
            self._owed = [*owed, *statements, *self._owed]
            self._owed_for |= decided
            raise
        finally:
            self._settling -= bool(owed)
        if not self._owed:
            self._owed_for.clear()
