"""What the API says of a station's schedule, as types."""

from __future__ import annotations

from msgspec import Struct


class RunView(Struct, frozen=True, kw_only=True):
    """A run.

    ``ends``: how many devices its job ended on, by outcome; of a call its state. ``job``: whether the job is ``open``,
    ``closed`` or ``gone``; empty from a station of an older release.
    """

    due: float
    at: float
    kind: str
    late_seconds: float
    state: str
    jid: str | None = None
    why: str = ""
    ends: dict[str, int] = {}
    job: str = ""


class EntryView(Struct, frozen=True, kw_only=True):
    """An entry. ``next_local``: when it runs next, in the zone of the schedule."""

    name: str
    function: str
    makes: str
    target: str = ""
    target_type: str = "glob"
    enabled: bool
    next: float | None = None
    next_local: str | None = None
    last_run: float | None = None
    missed: int = 0
    skip_reason: str = ""
    skipped: float | None = None
    last: RunView | None = None
    runs: list[RunView] = []


class SchedulePage(Struct, frozen=True, kw_only=True):
    """The schedule of a station."""

    enabled: bool
    timezone: str
    entries: list[EntryView]
