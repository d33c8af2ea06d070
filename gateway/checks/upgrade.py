"""How did the last upgrade end?"""

from __future__ import annotations

from typing import Final

from device_agent.clock import iso
from gateway.checks.finding import Facts, Finding
from gateway.upgrade import record as upgrades

FOLDER: Final = upgrades.FOLDER


async def check(_: Facts) -> list[Finding]:
    """One finding about the last upgrade; none on a machine where no version took another's place."""
    last = upgrades.read(FOLDER)
    if last is None:
        return []
    words = f"from {last.before} to {last.after} at {iso(last.at)}"
    if last.state in ("healthy", "withdrawn"):
        way_back = "kept" if (FOLDER / upgrades.PREVIOUS).is_file() else "not kept"
        return [Finding(check="upgrade", severity="ok", finding=f"{words}: {last.reason}; {last.before} is {way_back}")]
    if last.state in ("watching", "rolling_back"):
        doing = "the new version is being watched" if last.state == "watching" else "the version before is put back"
        return [Finding(check="upgrade", severity="info", finding=f"{words}: {doing}")]
    if last.state == "rolled_back":
        return [
            Finding(
                check="upgrade",
                severity="warning",
                finding=f"{words} was taken back: {last.reason}",
                meaning=f"{last.before} runs again, on the same store: nothing is lost; apt does not take"
                f" {last.after} again by itself, and takes a later version",
                fix="journalctl -u outstation-upgrade-guard; report it, and install a later version",
            )
        ]
    return [
        Finding(
            check="upgrade",
            severity="error",
            finding=f"{words} failed, and so did the way back: {last.reason}",
            meaning="which version runs now is not certain; nothing is tried again by itself",
            fix=f"journalctl -u outstation-upgrade-guard; then apt install --allow-downgrades"
            f" {FOLDER / upgrades.PREVIOUS}",
        )
    ]
