"""The ledger as numbers for Prometheus: each that `outstation spool status` shows, also those of sites. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from gateway.metrics import Labelled
from gateway.spool.ledger import Entry
from gateway.spool.streams import Class

OF_SITES: Final = (
    "accepted",
    "delivered",
    "pending",
    "pending_bytes",
    "confirmed",
    "received",
    "refused",
    "missing",
)
COUNTERS: Final = frozenset({"accepted", "delivered", "confirmed", "received", "refused"})


def own_numbers(entries: Iterable[Entry], budgets: Mapping[Class, int]) -> list[Labelled]:
    """The ledger of this station, class by class."""
    found: list[Labelled] = []
    for entry in entries:
        labels = {"class": entry.name}
        found += [
            ("spool_accepted_total", labels, entry.accepted),
            ("spool_delivered_total", labels, entry.delivered),
            ("spool_pending", labels, entry.pending),
            ("spool_pending_bytes", labels, entry.pending_bytes),
            ("spool_budget_bytes", labels, budgets[entry.name]),
        ]
        found += [
            ("spool_dropped_total", {**labels, "reason": reason}, count)
            for reason, count in sorted(entry.dropped.items())
        ]
    return found


def site_numbers(views: Iterable[Mapping[str, Any]]) -> list[Labelled]:
    """What each site below says of its ledger, beside what came of it here."""
    found: list[Labelled] = []
    for view in views:
        found.append(("site_spool_told_seconds", {"site": view["site"]}, int(view["at"])))
        for row in view["classes"]:
            labels = {"site": view["site"], "class": row["class"]}
            found += [
                (f"site_spool_{name}{'_total' if name in COUNTERS else ''}", labels, row[name]) for name in OF_SITES
            ]
            found += [
                ("site_spool_dropped_total", {**labels, "reason": reason}, count)
                for reason, count in sorted(row["dropped"].items())
            ]
    return found
