"""How a job ends on one device: exactly one outcome. Before that it is in one of the states."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """A device's end of a job. Anything but ``ok`` gives the command line a non-zero exit status."""

    OK = "ok"
    FAILED = "failed"
    REFUSED = "refused"
    EXPIRED = "expired"
    UNREACHABLE = "unreachable"
    TIMED_OUT = "timed_out"
    UNKNOWN = "unknown"
    CANCELLED = "cancelled"
    SITE_DARK = "site_dark"


class State(StrEnum):
    """Where a job is on one device that has no outcome yet."""

    QUEUED = "queued"
    DELIVERED = "delivered"
    RUNNING = "running"


MEANING: dict[Outcome, str] = {
    Outcome.OK: "it ran and succeeded",
    Outcome.FAILED: "it ran and failed",
    Outcome.REFUSED: "the device or the station would not run it",
    Outcome.EXPIRED: "its deadline passed before it started",
    Outcome.UNREACHABLE: "it never reached the device",
    Outcome.TIMED_OUT: "it started and did not end in time",
    Outcome.UNKNOWN: "it may have run: the device or the gateway died in between",
    Outcome.CANCELLED: "it was cancelled before it started",
    Outcome.SITE_DARK: "the site did not answer before the expiry",
}

PROVISIONAL = frozenset({Outcome.SITE_DARK})
"""A master's word about a site it cannot hear; the site's own word, when it comes, takes its place."""
