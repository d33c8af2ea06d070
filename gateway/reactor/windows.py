"""What becomes of the events of one throttle and one key: which reacts, which waits, which is held back. Pure.

Times are monotonic seconds, so that a clock that jumps moves no window. ``wall`` seconds are what is kept across a
restart, where a time that lies ahead counts as now: no window lasts longer than it is said to.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from device_agent.clock import iso
from gateway.reactor.throttle import COLLECTED, DAY_SECONDS, Throttle

TURNS: Final = 1000
"""Events that wait for their turn under ``max_concurrent``; more of them are held back."""

HeldState = Literal["ready", "waits", "turn", "held", "joined", "running", "done"]
Place = tuple[str, str, str]
"""The glob of a rule, its file, and the key."""


class Verdict(NamedTuple):
    """What becomes of an event, and why. ``into`` is the event whose reaction stands for this one too."""

    event: int
    state: HeldState
    why: str = ""
    into: int = 0


class Kept(NamedTuple):
    """A window as it is on disk, in wall seconds."""

    last: float | None
    last_event: int
    day: float | None
    passes: int
    due: float | None
    wait: float
    spec: Throttle


@dataclass
class Window:
    """The events of one throttle with one key."""

    place: Place
    spec: Throttle
    last: float | None = None
    last_wall: float = 0.0
    last_event: int = 0
    day: float | None = None
    day_wall: float = 0.0
    passes: int = 0
    due: float | None = None
    due_wall: float = 0.0
    wait: float = 0.0
    newest: int = 0
    waiting: int = 0
    running: set[int] = field(default_factory=set)
    turns: deque[int] = field(default_factory=deque)

    def arrived(self, event: int, now: float, wall: float) -> list[Verdict]:
        """An event came."""
        spec, before = self.spec, self.newest
        if spec.once_after is not None:
            self.newest, self.waiting = event, 1
            self._wait_for(spec.once_after, now, wall)
            over = (
                [Verdict(before, "held", f"{self._said('once_after')}: event {event} came after it")] if before else []
            )
            return [
                *over,
                Verdict(event, "waits", f"{self._said('once_after')}: it waits until nothing comes after it"),
            ]
        if spec.accumulate is not None:
            self.newest, self.waiting = event, self.waiting + 1
            if self.due is None and spec.accumulate.seconds is not None:
                self._wait_for(spec.accumulate.seconds, now, wall)
            if self.waiting >= (spec.accumulate.count or COLLECTED):
                self._wait_for(0.0, now, wall)
            return [Verdict(event, "waits", "accumulate: it waits for others")]
        return [self._gated(event, now, wall)]

    def is_due(self, now: float) -> bool:
        """Whether what waits has waited long enough."""
        return self.due is not None and now >= self.due

    def fell_due(self, now: float, wall: float) -> list[Verdict]:
        """What waited has its reaction, which is the newest's; those before it are part of that."""
        newest, self.newest, self.waiting, self.due = self.newest, 0, 0, None
        return [self._gated(newest, now, wall)] if newest else []

    def ended(self, event: int) -> list[Verdict]:
        """The reactions to an event are over: the next has its turn."""
        self.running.discard(event)
        verdicts = []
        while self.turns and len(self.running) < (self.spec.max_concurrent or TURNS):
            turn = self.turns.popleft()
            self.running.add(turn)
            verdicts.append(Verdict(turn, "ready"))
        return verdicts

    def is_idle(self, now: float) -> bool:
        """Whether nothing that it knows matters any more."""
        within = self.last is not None and self.spec.once_within is not None and now - self.last < self.spec.once_within
        today = self.day is not None and self.spec.max_per_day is not None and now - self.day < DAY_SECONDS
        return not (within or today or self.newest or self.running or self.turns)

    def kept(self) -> Kept:
        """For the disk."""
        return Kept(
            self.last_wall if self.last is not None else None,
            self.last_event,
            self.day_wall if self.day is not None else None,
            self.passes,
            self.due_wall if self.due is not None else None,
            self.wait,
            self.spec,
        )

    def restore(self, kept: Kept, now: float, wall: float) -> None:
        """From the disk."""
        self.last_event, self.passes = kept.last_event, kept.passes
        if kept.last is not None:
            ago = max(0.0, wall - kept.last)
            self.last, self.last_wall = now - ago, wall - ago
        if kept.day is not None:
            ago = max(0.0, wall - kept.day)
            self.day, self.day_wall = now - ago, wall - ago
        if kept.due is not None:
            self._wait_for(min(max(0.0, kept.due - wall), kept.wait), now, wall)
            self.wait = kept.wait

    def _wait_for(self, seconds: float, now: float, wall: float) -> None:
        self.due, self.due_wall, self.wait = now + seconds, wall + seconds, seconds

    def _gated(self, event: int, now: float, wall: float) -> Verdict:
        spec = self.spec
        if spec.once_within is not None and self.last is not None and now - self.last < spec.once_within:
            last = f"the last was event {self.last_event} at {iso(self.last_wall)}"
            return Verdict(event, "held", f"{self._said('once_within')}, {last}")
        if spec.max_per_day is not None:
            if self.day is None or now - self.day >= DAY_SECONDS:
                self.day, self.day_wall, self.passes = now, wall, 0
            if self.passes >= spec.max_per_day:
                since = f"{self.passes} since {iso(self.day_wall)}"
                return Verdict(event, "held", f"{self._said('max_per_day', spec.max_per_day)}: there were {since}")
        full = spec.max_concurrent is not None and len(self.running) >= spec.max_concurrent
        if full and len(self.turns) >= TURNS:
            why = f"{self._said('max_concurrent', spec.max_concurrent)}: {TURNS} events wait for their turn"
            return Verdict(event, "held", why)
        self.last, self.last_wall, self.last_event = now, wall, event
        self.passes += 1
        if full:
            self.turns.append(event)
            return Verdict(event, "turn", f"{self._said('max_concurrent', spec.max_concurrent)}: it waits for its turn")
        if spec.max_concurrent is not None:
            self.running.add(event)
        return Verdict(event, "ready")

    def _said(self, name: str, value: float | None = None) -> str:
        key = f" for {self.place[2][:100]}" if self.place[2] else ""
        if value is not None:
            return f"{name} {value}{key}"
        return f"{name} {getattr(self.spec, name):g} s{key}"
