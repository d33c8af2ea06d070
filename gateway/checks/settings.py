"""Can the settings be read? Looked at from outside: a station that runs has read those of before."""

from __future__ import annotations

from pathlib import Path

from device_agent.errors import ConfigInvalid
from gateway.checks.finding import Finding


def unreadable(path: Path, error: ConfigInvalid, unit: str, *, running: bool) -> Finding:
    """What is said of settings with which no station starts; ``running``: one does, with what it read before."""
    found = f", found: {error.found}" if error.found else ""
    allowed = f"; allowed: {error.allowed}" if error.allowed else ""
    does = (
        "the station runs with what it read before, and is gone at its next start"
        if running
        else ("the station does not start with them, and systemd does not try again")
    )
    mend = error.hint or f"mend {path}"
    return Finding(
        check="settings",
        severity="error",
        finding=f"{error.where or path}: {error.what}{found}",
        meaning=f"{does}{allowed}",
        fix=f"{mend}; then outstation check" if running else f"{mend}; then systemctl restart {unit}",
    )
