"""Who said what, and whether it is true in the end: every message has an id, and all of them are reconciled. Pure.

What is looked at in the end is ``Evidence``; ``evidence.py`` collects it. Each rule that does not hold is a ``Finding``
with the ids it is about.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise

IDS_NAMED = 20
ANSWER_SECONDS = 20.0
WITNESS_SECONDS = 1.0
"""Twice the time by which the witness may be behind: the machine is busy."""

PROVISIONAL = frozenset({"site_dark"})
"""Outcomes in whose place the site's own word comes."""

COALESCED = "coalesced"
"""The drop of a state in whose place a newer one came."""

DISK_DROPS = frozenset({"disk_full", "budget", "damage"})


NOT_STARTED = frozenset({"refused", "expired", "unreachable", "cancelled"})
"""Outcomes that say that nothing ran."""


@dataclass(frozen=True)
class Gap:
    """The gateway's store went back at ``until``, or got a copy then: it goes on under a new epoch from there.

    ``whole``: the folder is that of ``since``, witness and all, so of what came between nothing can be known. Otherwise
    the gateway was killed at ``since``, and its witness may be so much behind as docs/damage.md says.
    """

    since: float
    until: float
    whole: bool = False
    copied: bool = False


@dataclass(frozen=True)
class Finding:
    """A rule that does not hold, and where."""

    rule: str
    what: str
    ids: Sequence[str] = ()

    def __str__(self) -> str:
        named = ", ".join(self.ids[:IDS_NAMED])
        more = f" and {len(self.ids) - IDS_NAMED} more" if len(self.ids) > IDS_NAMED else ""
        return f"{self.rule}: {self.what}" + (f": {named}{more}" if named else "")


@dataclass(frozen=True)
class Order:
    """A job as its owner has it in the end."""

    closed: bool
    expected: int
    cancelled: bool = False


@dataclass(frozen=True)
class Book:
    """What one station has on disk: ids of events in the order of their rows, jobs, and outcomes by job and device."""

    events: Sequence[str] = ()
    orders: Mapping[str, Order] = field(default_factory=dict)
    outcomes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    executions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Evidence:
    """Everything that is looked at in the end."""

    masters: Mapping[str, Book]
    site_name: str
    site: Book
    reports: Mapping[str, Mapping[str, Mapping[str, int]]] = field(default_factory=dict)
    """For each swarm what was executed: by jid, ``devices``, ``executions``, ``most``."""
    drops: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By class and reason; empty where there is no ledger."""
    drops_outside: Sequence[str] = ()
    """Drops that were seen to grow while the disk was not full, in words."""
    delivered: Mapping[str, int] = field(default_factory=dict)
    """By class, what the site says was delivered."""
    received: Mapping[str, int] = field(default_factory=dict)
    """By class, what the masters say they received and did not refuse."""
    endings: Sequence[str] = ()
    """Processes that ended by themselves and should not have, in words."""
    ran: Mapping[str, int] = field(default_factory=dict)
    """How often each mark was left on the SSH device."""
    verified: bool | None = None
    """What ``spool verify`` says; None where there is no such command."""
    verify_words: str = ""
    undrained: str = ""
    """What was still under way when the wait was over."""


class Coordinator:
    """Keeps what was said of every message; several threads tell it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.events: dict[str, str] = {}
        """Fate by id, in the order in which they were fired."""
        self.states: dict[str, list[str]] = {}
        """Events of which only the newest counts, by tag."""
        self.orders: dict[str, str] = {}
        """Owner by jid, of the accepted ones."""
        self.refused_orders = 0
        self.unknown_orders = 0
        self.cancels: Counter[str] = Counter()
        self.marks: dict[str, str] = {}
        """By jid, what a job leaves on the SSH device."""
        self.at: dict[str, float] = {}
        """When each event and job was answered."""
        self.gaps: list[Gap] = []

    def fired(self, ids: Sequence[str], fate: str, state: str = "") -> None:
        """Events were fired together; ``state`` is their tag where only the newest of it counts."""
        with self._lock:
            self.events.update(dict.fromkeys(ids, fate))
            self.at.update(dict.fromkeys(ids, time.monotonic()))
            if state:
                self.states.setdefault(state, []).extend(ids)

    def ordered(self, station: str, jid: str, fate: str, mark: str = "") -> None:
        """A job was given to a station; ``mark`` is what it leaves on the SSH device."""
        with self._lock:
            if fate == "accepted":
                self.orders[jid] = station
                self.at[jid] = time.monotonic()
                if mark:
                    self.marks[jid] = mark
            elif fate == "refused":
                self.refused_orders += 1
            else:
                self.unknown_orders += 1

    def went_back(self, gap: Gap) -> None:
        """The gateway's store is not the newest there was."""
        with self._lock:
            self.gaps.append(gap)

    def _older(self, name: str) -> bool:
        """Whether an event or a job is from before a store that went back: it may be said again."""
        return any(self.at.get(name, 0.0) < gap.until for gap in self.gaps)

    def _with_folder(self, name: str) -> bool:
        """Whether it went with a folder that was put back, of which no station can know."""
        at = self.at.get(name, 0.0)
        # One that was answered a moment before the copy was made may have been under way.
        return any(
            gap.since - (ANSWER_SECONDS if gap.whole else WITNESS_SECONDS) < at < gap.until
            for gap in self.gaps
            if not gap.copied
        )

    def cancelled(self, jid: str, fate: str) -> None:
        """A cancel was asked for."""
        del jid
        with self._lock:
            self.cancels[fate] += 1

    def tally(self) -> str:
        """What was asked so far, in words."""
        with self._lock:
            fates = Counter(self.events.values())
            return (
                f"events {fates['accepted']} accepted, {fates['refused']} refused, {fates['unknown']} unanswered; "
                f"jobs {len(self.orders)} accepted, {self.refused_orders} refused, {self.unknown_orders} unanswered; "
                f"cancels {sum(self.cancels.values())}"
            )

    def reconcile(self, evidence: Evidence) -> list[Finding]:
        """Every rule that does not hold."""
        found = [
            *self._events(evidence),
            *self._drops(evidence),
            *self._jobs(evidence),
            *self._returns(evidence),
            *_executions(evidence),
            *self._over_ssh(evidence),
            *_figures(evidence),
        ]
        found += [Finding("ended", "a process ended by itself", [words]) for words in evidence.endings]
        if evidence.undrained:
            found.append(Finding("undrained", evidence.undrained))
        return found

    def _events(self, evidence: Evidence) -> list[Finding]:
        found: list[Finding] = []
        union = {each for book in evidence.masters.values() for each in book.events}
        on_site = set(evidence.site.events)
        needed = self._needed()
        for name in ("events", "telemetry"):
            missing = [each for each in needed if each not in union and class_of(each) == name]
            missing = [each for each in missing if not self._with_folder(each)]
            drops = evidence.drops.get(name, {})
            dropped = sum(count for reason, count in drops.items() if reason != COALESCED)
            if len(missing) <= dropped:
                continue
            here = sum(each in on_site for each in missing)
            found.append(
                Finding(
                    "events_lost",
                    f"{len(missing)} accepted {name} are at no master (the site has {here} of them on disk), and the"
                    f" ledger names {dropped} drops",
                    missing,
                )
            )
        claimed = [each for each, fate in self.events.items() if fate == "refused" and each in union]
        if claimed:
            found.append(Finding("events_refused", f"{len(claimed)} events were refused and are there", claimed))
        for name, book in evidence.masters.items():
            twice = [each for each, times in Counter(book.events).items() if times > 1 and not self._older(each)]
            if twice:
                found.append(Finding("events_twice", f"{name} has {len(twice)} events more than once", twice))
            disorder = _out_of_order([each for each in book.events if not self._older(each)])
            if disorder:
                found.append(Finding("events_order", f"{name} has events before older ones", disorder))
        return found

    def _needed(self) -> list[str]:
        """Every accepted event, but of the states only those that no newer one has taken the place of."""
        overtaken: set[str] = set()
        for ids in self.states.values():
            # One that was never answered may have been accepted, and then it is the newest.
            told = [each for each in ids if self.events[each] != "refused"]
            overtaken.update(told[:-1])
        return [each for each, fate in self.events.items() if fate == "accepted" and each not in overtaken]

    def _drops(self, evidence: Evidence) -> list[Finding]:
        found: list[Finding] = []
        returns = dict(evidence.drops.get("returns", {}))
        if any(not gap.whole and not gap.copied for gap in self.gaps):
            # The log had them, and the ledger says that they are gone.
            returns.pop("damage", None)
        if sum(returns.values()):
            found.append(Finding("returns_dropped", f"the ledger names drops of returns: {returns}"))
        if evidence.drops_outside:
            found.append(Finding("drops_outside", "drops while the disk was not full", list(evidence.drops_outside)))
        return found

    def _jobs(self, evidence: Evidence) -> list[Finding]:
        books = {**evidence.masters, evidence.site_name: evidence.site}
        wrong: dict[str, list[str]] = {"job_missing": [], "job_open": [], "job_outcomes": []}
        for jid, owner in self.orders.items():
            order = books[owner].orders.get(jid)
            if order is None and owner == evidence.site_name and self._older(jid):
                continue  # It went with the log, or the folder.
            if order is None:
                wrong["job_missing"].append(f"{jid} of {owner}")
                continue
            if not order.closed:
                wrong["job_open"].append(f"{jid} of {owner}")
                continue
            outcomes = len(books[owner].outcomes.get(jid, {}))
            if outcomes != order.expected:
                wrong["job_outcomes"].append(f"{jid} of {owner}: {outcomes} of {order.expected}")
        words = {
            "job_missing": "accepted jobs that their owner does not know",
            "job_open": "jobs that did not end",
            "job_outcomes": "closed jobs without exactly one outcome for each expected device",
        }
        found = [Finding(rule, f"{len(ids)} {words[rule]}", ids) for rule, ids in wrong.items() if ids]
        return found + self._agreement(evidence)

    def _agreement(self, evidence: Evidence) -> list[Finding]:
        """What the owner says of a device is what its site says."""
        differ: list[str] = []
        for jid, owner in self.orders.items():
            if owner == evidence.site_name:
                continue
            told = evidence.masters[owner].outcomes.get(jid, {})
            for device, outcome in evidence.site.outcomes.get(jid, {}).items():
                known = {str(told.get(device))}
                if {outcome} != known and outcome not in PROVISIONAL and not self._doubted(jid, outcome, known):
                    differ.append(f"{jid} {device}: {owner} says {told.get(device)}, {evidence.site_name} {outcome}")
        if not differ:
            return []
        jobs = len({line.partition(" ")[0] for line in differ})
        return [Finding("owner_differs", f"{len(differ)} outcomes of {jobs} jobs differ from the site's", differ)]

    def _returns(self, evidence: Evidence) -> list[Finding]:
        """Every outcome of the site is at a master."""
        missing: list[str] = []
        for jid, outcomes in evidence.site.outcomes.items():
            told = [book.outcomes.get(jid, {}) for book in evidence.masters.values()]
            for device, outcome in outcomes.items():
                known = {str(each[device]) for each in told if device in each}
                if outcome not in PROVISIONAL | known and not self._doubted(jid, outcome, known):
                    missing.append(f"{jid} {device} {outcome}")
        if not missing:
            return []
        jobs = len({line.partition(" ")[0] for line in missing})
        return [
            Finding("returns_lost", f"{len(missing)} outcomes of {jobs} jobs of the site are at no master", missing)
        ]

    def _doubted(self, jid: str, outcome: str, known: AbstractSet[str]) -> bool:
        """Whether a store that went back may say less of a job than its owner knows."""
        same = outcome in NOT_STARTED and bool(known & NOT_STARTED)
        return self._older(jid) and (outcome == "unknown" or same)

    def _over_ssh(self, evidence: Evidence) -> list[Finding]:
        """What ran on a device that keeps no journal of its own."""
        books = {**evidence.masters, evidence.site_name: evidence.site}
        twice, never, denied = [], [], []
        for jid, mark in self.marks.items():
            times = evidence.ran.get(mark, 0)
            told = set(books[self.orders[jid]].outcomes.get(jid, {}).values())
            if times > 1:
                twice.append(f"{jid} {mark}, {times} times, {', '.join(told)}")
            elif times == 0 and "ok" in told:
                never.append(f"{jid} {mark}")
            elif times and told & NOT_STARTED:
                denied.append(f"{jid} {mark}, {', '.join(told)}")
        found = [
            Finding("ran_twice", f"{len(twice)} jobs ran more than once over SSH", twice),
            Finding("ran_never", f"{len(never)} jobs are ok and did not run", never),
            Finding("ran_denied", f"{len(denied)} jobs ran, and their outcome says that they did not", denied),
        ]
        return [each for each in found if each.ids]


def _executions(evidence: Evidence) -> list[Finding]:
    twice = [
        f"{jid} in {swarm}" for swarm, jobs in evidence.reports.items() for jid, row in jobs.items() if row["most"] > 1
    ]
    twice += [
        f"{jid} {device} says {times} times"
        for jid, devices in evidence.site.executions.items()
        for device, times in devices.items()
        if times > 1
    ]
    return [Finding("ran_twice", f"{len(twice)} jobs ran more than once on a device", twice)] if twice else []


def _figures(evidence: Evidence) -> list[Finding]:
    found: list[Finding] = []
    if evidence.verified is False:
        found.append(Finding("ledger", f"spool verify: {evidence.verify_words}"))
    short = [
        f"{name}: {evidence.received.get(name, 0)} received, {count} delivered"
        for name, count in evidence.delivered.items()
        if evidence.received and evidence.received.get(name, 0) < count
    ]
    if short:
        found.append(Finding("received", "masters received less than the site delivered", short))
    return found


def class_of(event: str) -> str:
    """The class an event counts for, by the lane in its id."""
    return "telemetry" if event.partition("-")[0].endswith("t") else "events"


def _out_of_order(ids: Sequence[str]) -> list[str]:
    """Ids that came after a younger one of the same source, ``SOURCE-NUMBER``; repeats are another matter."""
    newest: dict[str, str] = {}
    found: list[str] = []
    for each in dict.fromkeys(ids):
        source = each.rpartition("-")[0]
        if each < newest.get(source, ""):
            found.append(f"{each} after {newest[source]}")
        else:
            newest[source] = each
    return found


def drops_beside(
    samples: Sequence[tuple[float, Mapping[tuple[str, str], int]]], full: Sequence[tuple[float, float]], slack: float
) -> list[str]:
    """Drops that grew between two samples of which neither lies near a time when the disk was full."""
    found: list[str] = []
    for (before, earlier), (now, later) in pairwise(samples):
        if any(begin <= now and before <= end + slack for begin, end in full):
            continue
        for (name, reason), count in later.items():
            grown = count - earlier.get((name, reason), 0)
            if grown > 0 and reason in DISK_DROPS:
                found.append(f"{grown} {name} ({reason}) between {before:.0f} and {now:.0f} s")
    return found
