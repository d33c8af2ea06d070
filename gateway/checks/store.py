"""Can the store be written, was it damaged, and what is missing of it?"""

from __future__ import annotations

from pathlib import Path

from device_agent.clock import iso
from gateway.checks.finding import Facts, Finding
from gateway.store.health import Failing

KEPT_DAYS = 14


async def check(facts: Facts) -> list[Finding]:
    """A finding about the store while it cannot be written, and one about damage to it."""
    failing = await facts.store_failing()
    if failing is None:
        return _damage(facts)
    return [_failing(failing), *(each for each in _damage(facts) if each.severity != "ok")]


def _failing(failing: Failing) -> Finding:
    return Finding(
        check="store",
        severity="error",
        finding=failing.words,
        meaning=f"since {iso(failing.since)} no new job is taken and no return is confirmed: devices keep theirs and"
        " send them again; events of this station are counted in the ledger as dropped for store_failed, or for"
        " disk_full",
        fix=failing.fix,
        about="failing",
    )


def _damage(facts: Facts) -> list[Finding]:
    damage = facts.damage()
    if damage is None:
        return [Finding(check="store", severity="ok", finding="never damaged, as far as is known")]
    aside = Path(damage["aside"])
    incomplete = [name for name, found in damage["tables"].items() if found["unreadable"]]
    lost = bool(incomplete or damage["log_lost"] or damage["missing"])
    meaning = (
        "what is named as missing is gone from this station; what goes up is counted in the ledger as dropped"
        " for damage, and devices and masters send again what was not confirmed"
        if lost
        else "nothing that could be counted is missing"
    )
    return [
        Finding(
            check="store",
            severity="warning",
            finding=f"damaged at {iso(damage['at'])}: {damage['words']}",
            meaning=f"{meaning}; the damaged file is kept for {KEPT_DAYS} days: {aside}",
            fix="look at the disk (smartctl -a, dmesg); " + _next(incomplete),
        )
    ]


def _next(incomplete: list[str]) -> str:
    lacking = {"enrolled", "revoked_devices", "keys", "site_trust", "epochs"} & set(incomplete)
    if lacking:
        names = ", ".join(sorted(lacking))
        return f"rows of {names} cannot be had from anywhere else: restore a backup: outstation gateway restore FILE"
    return "nothing else is to be done"
