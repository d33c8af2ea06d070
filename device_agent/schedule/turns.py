"""Whose turn it is: the entries of a schedule, what was done of each, and the clock. Pure; it is told the time.

It is told both clocks, so it notices when the wall clock jumps. Intervals go by the time that has passed, and a jump
moves them along. Times of the calendar go by the wall clock: what a jump forward leaps over is missed, once; a clock
that is put back by less than ``CORRECTED_SECONDS`` repeats nothing, as with cron, and one that is put back further was
wrong before, so its times come anew. What was to run once is never repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

from msgspec import Struct

from device_agent.schedule.entries import Entry
from device_agent.schedule.timing import LATE_SECONDS, barred, just_before, last_due, next_due, splay

JUMP_SECONDS: Final = 5.0
"""The wall clock went so much faster or slower than time did: somebody set it."""

CORRECTED_SECONDS: Final = 3 * 3600.0
"""A clock put back further than this was wrong, cron(8)."""

EXPLICIT: Final = 64
"""Most times that one entry is to skip, or to run beside its rhythm."""

STATES: Final = 1024
"""States that are kept, also of entries that are not there now."""

FULL: Final = 1_000_000
"""So many run where no more may run at all, of whatever entry."""

Kind = Literal["due", "start", "explicit", "asked"]


class State(Struct, omit_defaults=True):
    """What was done of an entry. Times are wall seconds, 0 for never."""

    rhythm: str = ""
    base: float = 0.0
    """What an interval counts from."""
    last_due: float = 0.0
    """The newest due time that was taken."""
    ahead: float = 0.0
    """The same by a clock that was put back far since: should that one have been right, it counts again."""
    last_run: float = 0.0
    runs: int = 0
    jid: str = ""
    outcome: str = ""
    why: str = ""
    ended: float = 0.0
    skip_reason: str = ""
    skipped: float = 0.0
    missed: int = 0
    skips: list[float] = []
    """Times at which it is not to run."""
    explicit: list[float] = []
    """Times at which it is to run beside its rhythm."""


class Turn(Struct, frozen=True):
    """An entry whose time has come. With a ``reason`` it does not run, and that is why."""

    entry: Entry
    due: float
    kind: Kind = "due"
    late: float = 0.0
    """Seconds since its time, where it was missed and is run now."""
    reason: str = ""


class Turns:
    """The turns of one schedule. ``running`` says how many runs of an entry are under way."""

    def __init__(self, device: str, running: Callable[[str], int]) -> None:
        self.enabled = True
        self.forgot = False
        """What was done is not known any more: what is over counts as done."""
        self.states: dict[str, State] = {}
        self._device = device
        self._running = running
        self._entries: dict[str, Entry] = {}
        self._next: dict[str, float | None] = {}
        self._starting: set[str] = set()
        self._clocks: tuple[float, float] | None = None

    @property
    def entries(self) -> Mapping[str, Entry]:
        """The entries by name."""
        return self._entries

    def named(self, device: str) -> None:
        """Whose schedule it is, which a splay is drawn for."""
        self._device = device
        self._next.clear()

    def replace(self, entries: Mapping[str, Entry], wall: float) -> None:
        """These are the entries from now on. What was done of one counts as long as its rhythm is the same."""
        for name, entry in entries.items():
            state = self.states.get(name)
            if state is None or (state.rhythm != entry.rhythm and name not in self._entries):
                # New, or not here for a while and another one now.
                self.states[name] = self._first(entry, wall)
                if entry.run_on_start:
                    self._starting.add(name)
            elif state.rhythm != entry.rhythm:
                self._rhythm_changed(state, entry, wall)
            elif name not in self._entries and entry.run_on_start:
                self._starting.add(name)
        self._entries = dict(entries)
        self._starting.intersection_update(entries)
        self._next.clear()
        for name in [name for name in self.states if name not in entries][: max(0, len(self.states) - STATES)]:
            del self.states[name]

    def forget(self, name: str) -> None:
        """Nothing was done of an entry."""
        self.states.pop(name, None)
        self._next.pop(name, None)
        self._starting.discard(name)

    def next_fire(self, name: str) -> float | None:
        """When an entry runs next, with its splay; None when it will not."""
        if name not in self._next:
            entry, state = self._entries[name], self.states[name]
            due = self._due(entry, state)
            fire = None if due is None else due + splay(entry, due, self._device)
            explicit = min(state.explicit, default=None)
            self._next[name] = min((each for each in (fire, explicit) if each is not None), default=None)
        return self._next[name]

    def soonest(self) -> float | None:
        """When the next of all runs."""
        fires = [fire for name in self._entries if (fire := self.next_fire(name)) is not None]
        return min(fires, default=None)

    def skip(self, name: str, at: float) -> None:
        """Do not run an entry at this time."""
        state = self.states[name]
        state.skips = [*state.skips, at][-EXPLICIT:]

    def run_at(self, name: str, at: float) -> None:
        """Run an entry at this time as well."""
        state = self.states[name]
        state.explicit = sorted([*state.explicit, at])[:EXPLICIT]
        self._next.pop(name, None)

    def pass_over(self, wall: float) -> None:
        """What was due before now is not run and not made up for: it may have run where these states do not know."""
        for name, entry in self._entries.items():
            state = self.states[name]
            state.last_due = max(state.last_due, wall)
            if entry.seconds:
                state.base = wall
            state.explicit = [at for at in state.explicit if at > wall]
        self._next.clear()

    def asked(self, name: str, wall: float) -> Turn:
        """A run that somebody asks for now."""
        return Turn(self._entries[name], wall, "asked")

    def tick(self, wall: float, monotonic: float) -> list[Turn]:
        """Whose turn it is. The states say so already when this returns: put them on disk before anything is run."""
        self._heed_jump(wall, monotonic)
        turns: list[Turn] = []
        for name, entry in self._entries.items():
            fire = self.next_fire(name)
            if name in self._starting:
                turns.append(self._start(entry, wall))
            elif fire is not None and fire <= wall:
                turn = self._turn(entry, self.states[name], wall)
                self._next.pop(name, None)
                if turn is not None:
                    turns.append(turn)
        self._starting.clear()
        return turns

    # --- inside --------------------------------------------------------------------------------------------------

    def _first(self, entry: Entry, wall: float) -> State:
        # What is to run once and is over already was missed while we knew nothing of it.
        last = 0.0 if entry.once is not None and not self.forgot else wall
        return State(rhythm=entry.rhythm, base=wall, last_due=last)

    @staticmethod
    def _rhythm_changed(state: State, entry: Entry, wall: float) -> None:
        state.rhythm, state.base, state.ahead = entry.rhythm, wall, 0.0
        state.last_due = 0.0 if entry.once is not None else wall
        state.skips, state.explicit = [], []

    def _due(self, entry: Entry, state: State) -> float | None:
        return next_due(entry, state.last_due, state.base)

    def _start(self, entry: Entry, wall: float) -> Turn:
        state = self.states[entry.name]
        if entry.seconds:
            state.base = state.last_due = wall
        self._next.pop(entry.name, None)
        return self._judged(entry, state, wall, Turn(entry, wall, "start"))

    def _turn(self, entry: Entry, state: State, wall: float) -> Turn | None:
        explicit = min(state.explicit, default=None)
        due = self._due(entry, state)
        if explicit is not None and explicit <= wall and (due is None or explicit <= due):
            state.explicit.remove(explicit)
            return self._judged(entry, state, wall, self._timed(entry, explicit, explicit, wall, "explicit"))
        if due is None:
            return None
        fire = due + splay(entry, due, self._device)
        if fire > wall:
            return None
        if wall - fire > LATE_SECONDS:
            newest = max(due, last_due(entry, wall, state.base) or due)
            put_off = newest + splay(entry, newest, self._device)
            if newest > due and wall - put_off <= LATE_SECONDS:
                # Those before it are over, and this one is on time: it stands for all of them.
                state.missed += 1
                state.last_due = just_before(newest)
                return None if put_off > wall else self._taken(entry, state, newest, put_off, wall)
            due = newest
            fire = min(put_off, wall - LATE_SECONDS - 1.0)
        return self._taken(entry, state, due, fire, wall)

    def _taken(self, entry: Entry, state: State, due: float, fire: float, wall: float) -> Turn:
        state.last_due = due
        return self._judged(entry, state, wall, self._timed(entry, due, fire, wall, "due"))

    @staticmethod
    def _timed(entry: Entry, due: float, fire: float, wall: float, kind: Kind) -> Turn:
        late = wall - fire
        if late <= LATE_SECONDS:
            return Turn(entry, due, kind)
        return Turn(entry, due, kind, late=wall - due, reason="" if entry.run_missed else "missed")

    def _judged(self, entry: Entry, state: State, wall: float, turn: Turn) -> Turn:
        reason = self._reason(entry, state, wall, turn)
        if turn.late:
            state.missed += 1
        if not reason:
            state.last_run = wall
            state.runs += 1
            return turn
        state.skip_reason, state.skipped = reason, wall
        if reason == "in_skip_range" and entry.run_after_skip_range and entry.skip_during_range is not None:
            self.run_at(entry.name, entry.skip_during_range.over(wall, entry.zone) + 1.0)
        return Turn(entry, turn.due, turn.kind, turn.late, reason)

    def _reason(self, entry: Entry, state: State, wall: float, turn: Turn) -> str:
        if not self.enabled:
            return "disabled"
        if turn.kind == "due":
            fire = turn.due + splay(entry, turn.due, self._device)
            skipped = [at for at in state.skips if min(abs(at - turn.due), abs(at - fire)) < 1.0]
            state.skips = [at for at in state.skips if at not in skipped and at > turn.due]
            if skipped:
                return "skip_explicit"
        found = barred(entry, wall) or turn.reason
        if not found and self._running(entry.name) >= (entry.maxrunning if entry.jid_include else FULL):
            return "maxrunning"
        return found

    def _heed_jump(self, wall: float, monotonic: float) -> None:
        before, self._clocks = self._clocks, (wall, monotonic)
        if before is None:
            self._heed_start(wall)
            return
        jump = (wall - before[0]) - (monotonic - before[1])
        if abs(jump) < JUMP_SECONDS:
            return
        self._next.clear()
        for name, entry in self._entries.items():
            state = self.states[name]
            if entry.seconds:
                state.base += jump
                state.last_due += jump
            elif entry.once is None:
                self._heed_far(state, wall, back=jump < -CORRECTED_SECONDS and state.last_due > wall)

    def _heed_start(self, wall: float) -> None:
        """What was kept may be of a clock that was ahead."""
        for name, entry in self._entries.items():
            state = self.states[name]
            if entry.seconds and state.last_due > wall:
                state.base = state.last_due = wall
            elif entry.once is None:
                self._heed_far(state, wall, back=state.last_due > wall + CORRECTED_SECONDS)
        self._next.clear()

    @staticmethod
    def _heed_far(state: State, wall: float, *, back: bool) -> None:
        """Its times come anew; but a device without a clock of its own starts in 1970, and what it ran, it ran."""
        if back:
            state.ahead = max(state.ahead, state.last_due)
            state.last_due = wall
        elif state.ahead <= wall:
            state.last_due, state.ahead = max(state.last_due, state.ahead), 0.0
