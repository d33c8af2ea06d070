"""Whether the station takes one more order now."""

from __future__ import annotations

from device_agent.errors import PolicyRefused
from device_agent.protocol import limits


def check_room(open_jobs: int, *, draining: bool) -> None:
    """Raise ``PolicyRefused`` while the station stops, or has too many open jobs."""
    if draining:
        raise PolicyRefused("the station is stopping", error_id="station.stopping", hint="try again in a moment")
    if open_jobs >= limits.OPEN_JOBS:
        raise PolicyRefused(
            "too many jobs are open",
            error_id="jobs.busy",
            found=str(open_jobs),
            allowed=f"{limits.OPEN_JOBS} open jobs",
            hint="outstation jobs list --state open, then jobs cancel",
        )


def no_reason() -> None:
    """Nothing is in the way of an order."""
