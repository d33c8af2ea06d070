"""Is the new version healthy? A pure state machine: what was seen goes in, what to do comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

Todo = Literal["wait", "set_up", "mend", "healthy", "roll_back", "withdraw"]

INSTALLED: Final = "install ok installed"
"""What dpkg says of a package that is whole."""

LOCAL_CHECKS: Final = ("store", "broker", "permissions")
"""Checks whose errors are this machine's own. An uplink that is down says nothing of a version."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long is waited for what, in seconds. ``steady`` is how long a version must be healthy without a break."""

    deadline: float = 600.0
    steady: float = 30.0
    package: float = 7200.0
    restarts: int = 3
    seen: int = 2
    """So many looks in a row must say that a unit has failed."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit as systemd shows it. ``answers`` is whether its API does, where it has one."""

    active: str
    sub: str = ""
    result: str = "success"
    restarts: int = 0
    pid: int = 0
    answers: bool = True
    errors: tuple[str, ...] = ()

    @property
    def runs(self) -> bool:
        """Whether it is there."""
        return self.active == "active"


@dataclass(frozen=True, slots=True)
class Seen:
    """One look. ``busy`` is whether a package manager works; ``status`` is dpkg's, empty when nothing is installed."""

    at: float
    busy: bool
    status: str
    version: str
    units: Mapping[str, Unit]


@dataclass(frozen=True, slots=True)
class Watch:
    """What is remembered from look to look. Times are monotonic seconds."""

    before: str
    errors: frozenset[str]
    begun: float
    version: str = ""
    ready: float | None = None
    steady_since: float | None = None
    first_restarts: Mapping[str, int] = field(default_factory=dict)
    pids: Mapping[str, int] = field(default_factory=dict)
    ran: frozenset[str] = frozenset()
    against: int = 0
    set_up: bool = False
    """Setting the package up was tried once more."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do, and why."""

    todo: Todo
    why: str = ""


WAIT: Final = Verdict("wait")


def step(watch: Watch, seen: Seen, limits: Limits) -> tuple[Watch, Verdict]:
    """One look further."""
    unsettled = _package(watch, seen, limits)
    if unsettled is not None:
        counts = not seen.busy or seen.at - watch.begun >= limits.package
        tried = watch.set_up or unsettled.todo == "set_up"
        return replace(watch, against=watch.against + counts, steady_since=None, set_up=tried), unsettled
    if watch.version != seen.version or watch.ready is None:
        restarts = {name: unit.restarts for name, unit in seen.units.items()}
        watch = replace(
            watch,
            version=seen.version,
            ready=seen.at,
            steady_since=None,
            first_restarts=restarts,
            pids={},
            ran=frozenset(),
            against=0,
        )
    pids = {name: unit.pid for name, unit in seen.units.items()}
    watch = replace(watch, ran=watch.ran | {name for name, unit in seen.units.items() if unit.runs})
    wrong = next((words for name, unit in seen.units.items() if (words := _wrong(watch, name, unit))), "")
    steady_since: float | None = None
    if not wrong:
        is_longer = watch.steady_since is not None and pids == watch.pids
        steady_since = watch.steady_since if is_longer else seen.at
    ended = next((words for name, unit in seen.units.items() if (words := _ended(watch, name, unit, limits))), "")
    watch = replace(watch, pids=pids, steady_since=steady_since, against=watch.against + 1 if ended else 0)
    if ended and watch.against >= limits.seen:
        return watch, Verdict("roll_back", ended)
    if steady_since is not None and seen.at - steady_since >= limits.steady:
        return watch, Verdict("healthy", f"healthy for {limits.steady:.0f} s")
    if watch.ready is None or seen.at - watch.ready < limits.deadline:
        return watch, WAIT
    if all(unit.runs or _was_stopped(watch, name, unit) for name, unit in seen.units.items()) and any(
        _was_stopped(watch, name, unit) for name, unit in seen.units.items()
    ):
        return watch, Verdict("withdraw", "somebody stopped a unit before it could be judged")
    why = wrong or "it never ran long enough without starting again"
    return watch, Verdict("roll_back", f"not healthy within {limits.deadline:.0f} s: {why}")


def _package(watch: Watch, seen: Seen, limits: Limits) -> Verdict | None:
    """What is to be done as long as the package itself is not settled; None once it is."""
    installed = seen.status == INSTALLED
    if installed and seen.version != watch.before:
        return None
    if seen.busy and seen.at - watch.begun < limits.package:
        return WAIT
    if watch.against + 1 < limits.seen:
        # Between two steps of a package manager nobody holds its lock for a moment.
        return WAIT
    if installed:
        return Verdict("withdraw", "the version that ran before is installed: it was never replaced")
    if not seen.status or seen.status.startswith(("deinstall", "purge")):
        return Verdict("withdraw", "the package was removed")
    if is_cut_short(seen.status):
        return Verdict("mend", f"{seen.version} was being replaced when that was cut short")
    if not watch.set_up:
        return Verdict("set_up", f"dpkg says {seen.status!r}")
    return Verdict("roll_back", f"the package could not be set up: dpkg says {seen.status!r}")


def is_cut_short(status: str) -> bool:
    """Whether dpkg stopped before all files were there, and takes nothing but the whole package again."""
    return " reinstreq " in status or status.endswith("half-installed")


def _wrong(watch: Watch, name: str, unit: Unit) -> str:
    """What is wrong with a unit now; empty when nothing is."""
    if not unit.runs:
        return f"{name} is {unit.active} ({unit.sub or unit.result})"
    if not unit.answers:
        return f"{name} runs, and its API does not answer"
    new = [check for check in unit.errors if check in LOCAL_CHECKS and check not in watch.errors]
    return f"{name} runs, and outstation check finds an error: {', '.join(new)}" if new else ""


def _ended(watch: Watch, name: str, unit: Unit, limits: Limits) -> str:
    """Why there is no use in waiting any longer for a unit; empty when there is."""
    if unit.active == "failed":
        return f"{name} failed ({unit.result})"
    if unit.active == "missing":
        return f"{name} is not in the new package"
    if unit.restarts - watch.first_restarts.get(name, 0) >= limits.restarts:
        return f"{name} was started again {limits.restarts} times ({unit.result})"
    return ""


def _was_stopped(watch: Watch, name: str, unit: Unit) -> bool:
    """Whether somebody stopped a unit that had run."""
    return unit.active == "inactive" and unit.result == "success" and name in watch.ran
