"""The jobs this station works on now, in memory. Everything here can be rebuilt from the store (``recover``)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from device_agent.protocol.links import Sealed
from device_agent.protocol.messages import Job
from device_agent.protocol.outcomes import State

LOCAL = "local"
ABOVE = "above"
"""Where a job came from; a third kind of origin is the name of the site that issued it."""


class BranchState(StrEnum):
    """How far a site below is with a job."""

    WAITING = "waiting"
    SENT = "sent"
    ANSWERED = "answered"
    CLOSED = "closed"


@dataclass(slots=True)
class Waiting:
    """One of this station's own devices without an outcome. Times are monotonic seconds."""

    state: State = State.QUEUED
    tries: int = 0
    due: float = 0.0
    since: float = 0.0
    link: str = ""
    """Over which it was handed out."""
    away: float = 0.0
    """It restarts, and may not be heard for so many seconds."""


@dataclass(slots=True)
class Branch:
    """A site below that answers for its devices, each known as (leaf site, device id).

    ``awaiting`` are expected and have no outcome, ``ended`` have one. ``due`` is the monotonic time to offer again.
    """

    site: str
    state: BranchState = BranchState.WAITING
    awaiting: set[tuple[str, str]] = field(default_factory=set)
    ended: dict[tuple[str, str], str] = field(default_factory=dict)
    due: float = 0.0
    tries: int = 0
    said_close: bool = False
    unproven: set[tuple[str, str]] = field(default_factory=set)
    """Devices of which a relay brought an outcome that their site did not sign."""

    @property
    def expected(self) -> int:
        """How many devices the site answers for, as far as it has said."""
        return len(self.awaiting) + len(self.ended)

    @property
    def all_ended(self) -> bool:
        """The site has said its last word, and every device it answers for has an outcome."""
        return self.state is BranchState.CLOSED and not self.awaiting


@dataclass(slots=True)
class OpenJob:
    """A job without its close. ``deadline`` is the monotonic time of its expiry.

    ``sealed`` is what came from above for the sites that are reached through here; ``made`` what was sealed here, by
    leaf site and device ("" for the group), with the epoch it was sealed under.
    """

    job: Job
    body: bytes
    origin: str
    accepted: float
    deadline: float
    sealed: list[Sealed] = field(default_factory=list)
    made: dict[tuple[str, str], tuple[int, Sealed]] = field(default_factory=dict)
    sealing: dict[str, tuple[float, int]] = field(default_factory=dict)
    """By site, when new seals may be asked for again, and how often they were asked for in vain."""
    master: str = ""
    """CURVE key of the master that gave it over the uplink, as far as is known since the start."""
    recovered: bool = False
    """Taken up again at a start: what its sites said meanwhile, or since a backup, is not known."""
    cancelled: bool = False
    held: bool = False
    returners: tuple[str, ...] = ()
    """Where this station sends its returns as well."""
    own_expected: int = 0
    waiting: dict[str, Waiting] = field(default_factory=dict)
    committing: set[str] = field(default_factory=set)
    branches: dict[str, Branch] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    manifest_final: bool = False
    closing: bool = False
    look_at: float = 0.0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def expected(self) -> int:
        """How many devices must end in an outcome, as far as is known."""
        return self.own_expected + sum(branch.expected for branch in self.branches.values())

    @property
    def all_answered(self) -> bool:
        """Every site below has said who will answer."""
        return all(branch.state in (BranchState.ANSWERED, BranchState.CLOSED) for branch in self.branches.values())

    @property
    def all_ended(self) -> bool:
        """Every expected device has an outcome."""
        return not self.waiting and all(branch.all_ended for branch in self.branches.values())

    def pulse(self) -> None:
        """Wake those who watch."""
        self.changed.set()
        self.changed = asyncio.Event()


class OpenJobs:
    """Open jobs by jid."""

    def __init__(self) -> None:
        self._jobs: dict[str, OpenJob] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[OpenJob]:
        return iter(list(self._jobs.values()))

    def ours(self) -> int:
        """How many this station works on for itself or for a master, and not only hears of from a site."""
        return sum(1 for opened in self._jobs.values() if opened.origin in (LOCAL, ABOVE))

    def issued_by(self, site: str) -> int:
        """How many a site below has issued."""
        return sum(1 for opened in self._jobs.values() if opened.origin == site)

    def get(self, jid: str) -> OpenJob | None:
        """The open job, or None when it is closed or unknown."""
        return self._jobs.get(jid)

    def add(self, opened: OpenJob) -> None:
        """Work on a job from now on."""
        self._jobs[opened.job.jid] = opened

    def remove(self, jid: str) -> None:
        """The job is closed."""
        opened = self._jobs.pop(jid, None)
        if opened is not None:
            opened.pulse()
