"""Can the store be written, was it damaged, did it lose commits, and what is missing of it?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from device_agent.clock import iso
from gateway.checks.finding import Facts, Finding
from gateway.store.health import Failing
from gateway.store.trust_state import StoreTrust
from gateway.store.witness_keeper import EVERY_SECONDS

KEPT_DAYS = 14


async def check(facts: Facts) -> list[Finding]:
    """Findings about the store: that it cannot be written, that it lost commits, and that it was damaged."""
    failing = await facts.store_failing()
    found = [] if failing is None else [_failing(failing)]
    found += [_unwritten(words) for words in facts.unwritten()]
    if why := facts.witness_failing():
        found.append(_unwitnessed(why, facts.state_dir()))
    found += [*_went_back(facts.store_trust()), *_damaged(facts.damage())]
    return found or [Finding(check="store", severity="ok", finding="never damaged, as far as is known")]


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


def _unwritten(words: str) -> Finding:
    return Finding(
        check="store",
        severity="error",
        finding=words,
        meaning="what belongs there is refused or kept in memory, and tried again; the rest of the station goes on",
        fix="look at the disk: dmesg -T | tail -n 50; df -h and df -i on the state folder",
        about=words.partition(" cannot ")[0],
    )


def _unwitnessed(why: str, folder: str) -> Finding:
    return Finding(
        check="store",
        severity="warning",
        finding=f"the witness of the store cannot be written: {why}",
        meaning="the station works on; if the store loses commits from now on, the next start may not notice it",
        fix=f"look at the disk and at the file: df -h {folder}; ls -l {folder}/station.sqlite.witness",
        about="witness",
    )


def _went_back(trust: StoreTrust) -> list[Finding]:
    if trust.state == "sound" or (trust.state == "damaged" and not trust.missing):
        return []
    if trust.state == "restored":
        return [Finding(check="store", severity="info", finding=f"{trust.reason} at {iso(trust.at)}", about="history")]
    meaning = (
        "the gateway counts what is gone as dropped for damage, and numbers what it sends under a new epoch;"
        f" it may lack up to {EVERY_SECONDS:g} s of work more than is counted; jobs that are gone end as unknown"
    )
    if trust.acknowledged:
        finding = f"lost commits at {iso(trust.at)}, acknowledged by {trust.acknowledged}: {trust.words()}"
        return [Finding(check="store", severity="info", finding=finding, meaning=meaning, about="history")]
    return [
        Finding(
            check="store",
            severity="error",
            finding=f"lost commits that were on disk, noticed at {iso(trust.at)}: {trust.words()}",
            meaning=meaning,
            fix="look at the disk (smartctl -a, dmesg, lost+found); then: outstation spool acknowledge",
            about="history",
        )
    ]


def _damaged(damage: dict[str, Any] | None) -> list[Finding]:
    if damage is None:
        return []
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
