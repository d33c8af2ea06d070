"""Whose fault a refusal is: for a fault or a limit of the station itself no peer is named as the cause."""

from __future__ import annotations

from typing import Final

OWN: Final = frozenset(
    {
        "busy",
        "cache_full",
        "cut_off",
        "damaged",
        "died",
        "disk_failed",
        "disk_full",
        "events_gone",
        "failed",
        "full",
        "incoming_full",
        "memory",
        "mine_full",
        "not_kept",
        "orders_full",
        "pending_full",
        "pending_keys_full",
        "publishes_full",
        "quarantine_full",
        "queue_full",
        "registry_full",
        "serial_not_kept",
        "source_away",
        "spool_full",
        "store_failed",
        "unforeseen",
    }
)
"""The reasons with which a station refuses for what it has run out of, or what went wrong in it."""


def is_own(reason: str) -> bool:
    """Whether the station refused for a reason of its own, whatever the peer sent."""
    return reason in OWN
