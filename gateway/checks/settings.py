"""Can the settings be read? Only of a station that does not run: one that runs has read them."""

from __future__ import annotations

from pathlib import Path

from device_agent.errors import ConfigInvalid
from gateway.checks.finding import Finding


def unreadable(path: Path, error: ConfigInvalid, unit: str) -> Finding:
    """What is said of settings with which no station starts."""
    found = f", found: {error.found}" if error.found else ""
    allowed = f"; allowed: {error.allowed}" if error.allowed else ""
    return Finding(
        check="settings",
        severity="error",
        finding=f"{error.where or path}: {error.what}{found}",
        meaning=f"the station does not start with them, and systemd does not try again{allowed}",
        fix=f"{error.hint or f'mend {path}'}; then systemctl restart {unit}",
    )
