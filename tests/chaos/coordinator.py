"""Who said what, and whether it is true in the end: every message has an id, and all of them are reconciled. Pure.

What is looked at in the end is ``Evidence``; ``evidence.py`` collects it. Each rule that does not hold is a ``Finding``
with the ids it is about.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

IDS_NAMED = 20
PROVISIONAL = frozenset({"site_dark"})
"""Outcomes in whose place the site's own word comes."""

COALESCED = "coalesced"
"""The drop of a state in whose place a newer one came."""

DISK_DROPS = frozenset({"disk_full", "budget", "damage"})


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

    def fired(self, ids: Sequence[str], fate: str, state: str = "") -> None:
        """Events were fired together; ``state`` is their tag where only the newest of it counts."""
        with self._lock:
            self.events.update(dict.fromkeys(ids, fate))
            if state:
                self.states.setdefault(state, []).extend(ids)

    def ordered(self, station: str, jid: str, fate: str) -> None:
        """A job was given to a station."""
        with self._lock:
            if fate == "accepted":
                self.orders[jid] = station
            elif fate == "refused":
                self.refused_orders += 1
            else:
                self.unknown_orders += 1

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
            *_returns(evidence),
            *_executions(evidence),
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
            twice = [each for each, times in Counter(book.events).items() if times > 1]
            if twice:
                found.append(Finding("events_twice", f"{name} has {len(twice)} events more than once", twice))
            disorder = _out_of_order(book.events)
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
        returns = evidence.drops.get("returns", {})
        if sum(returns.values()):
            found.append(Finding("returns_dropped", f"the ledger names drops of returns: {dict(returns)}"))
        if evidence.drops_outside:
            found.append(Finding("drops_outside", "drops while the disk was not full", list(evidence.drops_outside)))
        return found

    def _jobs(self, evidence: Evidence) -> list[Finding]:
        books = {**evidence.masters, evidence.site_name: evidence.site}
        wrong: dict[str, list[str]] = {"job_missing": [], "job_open": [], "job_outcomes": []}
        for jid, owner in self.orders.items():
            order = books[owner].orders.get(jid)
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
                if told.get(device) != outcome and outcome not in PROVISIONAL:
                    differ.append(f"{jid} {device}: {owner} says {told.get(device)}, {evidence.site_name} {outcome}")
        if not differ:
            return []
        jobs = len({line.partition(" ")[0] for line in differ})
        return [Finding("owner_differs", f"{len(differ)} outcomes of {jobs} jobs differ from the site's", differ)]


def _returns(evidence: Evidence) -> list[Finding]:
    """Every outcome of the site is at a master."""
    missing: list[str] = []
    for jid, outcomes in evidence.site.outcomes.items():
        told = [book.outcomes.get(jid, {}) for book in evidence.masters.values()]
        for device, outcome in outcomes.items():
            if outcome not in PROVISIONAL and not any(each.get(device) == outcome for each in told):
                missing.append(f"{jid} {device} {outcome}")
    if not missing:
        return []
    jobs = len({line.partition(" ")[0] for line in missing})
    return [Finding("returns_lost", f"{len(missing)} outcomes of {jobs} jobs of the site are at no master", missing)]


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
