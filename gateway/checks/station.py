"""Does the station run? Asked by the command line, when nobody answers at its socket."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from device_agent import system_text
from device_agent.exhausted import limit_fix
from device_agent.next_start import WAITS
from gateway.checks.box import Box
from gateway.checks.finding import Finding
from gateway.checks.own_processes import open_files, runs

SYSTEMD: Final = Path("/run/systemd/system")
"""There while systemd runs this machine (sd_booted(3))."""

SECONDS: Final = 5.0
FULL_SHARE: Final = 0.95
SHOWN: Final = ("LoadState", "ActiveState", "Result", "ExecMainStatus", "StatusText")


def at_rest(box: Box) -> list[Finding]:
    """One finding: it does not run, and what systemd says of it; or it runs and does not answer."""
    said = unit_says(box.unit)
    held = open_files(box) if runs(box) else None
    if held is not None:
        number, opened, most = held
        finding = f"process {number} is the {box.role}, and does not answer at {box.socket}"
        fix = f"systemctl status {box.unit}; in a minute again; if it stays: systemctl restart {box.unit}"
        if most and opened >= most * FULL_SHARE:
            finding += f": it has {opened:,} of the {most:,} files open that it may open"
            fix = limit_fix(box.unit, most)
    elif said.get("ActiveState") in ("active", "activating", "reloading"):
        # It has started and does not answer: it is on its way, or it hangs.
        finding = f"{box.unit} is {said['ActiveState']} and does not answer at {box.socket}"
        fix = f"systemctl status {box.unit}; in a minute again; if it stays: systemctl restart {box.unit}"
        if said.get("StatusText", "").startswith(WAITS):
            fix = f"systemctl restart {box.unit}"
    elif said.get("ActiveState") == "failed":
        status = said.get("ExecMainStatus", "")
        finding = f"{box.unit} has failed ({said.get('Result') or 'no reason given'}, exit status {status or 'none'})"
        fix = f"journalctl -u {box.unit} -n 50 says why; then systemctl restart {box.unit}"
    else:
        finding = f"the {box.role} does not run: nobody answers at {box.socket}"
        fix = f"systemctl enable --now {box.unit}"
    if said.get("StatusText"):
        finding += f"; it said: {said['StatusText']}"
    return [
        Finding(
            check="station",
            severity="error",
            finding=finding,
            meaning="no job reaches a device through it; what it has on disk is kept",
            fix=fix,
        )
    ]


def unit_says(unit: str) -> dict[str, str]:
    """What systemd knows of a unit; empty without systemd, and for a unit that is not installed."""
    if not SYSTEMD.is_dir():
        return {}
    try:
        shown = subprocess.run(
            ["systemctl", "show", unit, f"--property={','.join(SHOWN)}"],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found = dict(line.split("=", 1) for line in system_text.lines(shown.stdout) if "=" in line)
    return found if found.get("LoadState") == "loaded" else {}
