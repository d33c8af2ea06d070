"""Do keys wait for a decision, do sites claim names that are not theirs, and were two of one device seen?"""

from __future__ import annotations

from typing import Any

from gateway.checks.finding import Facts, Finding


async def check(facts: Facts) -> list[Finding]:
    """A finding for each key that wants attention, and for each dark site."""
    findings = []
    for key in facts.key_views():
        if key["state"] == "pending":
            findings.append(
                Finding(
                    check="keys",
                    severity="info",
                    finding=f"site {key['site']} waits to be accepted, fingerprint {key['fingerprint']}",
                    meaning="nothing is exchanged with it until then",
                    fix=f"outstation keys accept {key['site']}",
                    about=key["site"],
                )
            )
        elif key["state"] == "denied":
            findings.append(
                Finding(
                    check="keys",
                    severity="warning",
                    finding=f"{key['address']} claims site {key['site']} with another key ({key['fingerprint']})",
                    meaning="a second gateway with the same name, a reinstalled one, or somebody who pretends",
                    fix=f"if it is a replacement: outstation keys reject {key['site']}, then keys accept {key['site']}"
                    f" --fingerprint {key['fingerprint']}",
                    about=key["site"],
                )
            )
    findings += _devices(facts.undecided())
    findings += [
        Finding(
            check="sites",
            severity="warning",
            finding=f"site {site['site']} is dark, {site['devices']} devices behind it",
            meaning="jobs for it wait until they expire; it goes on by itself and sends what it has when it is back",
            fix=f"on the gateway: outstation check; here: outstation sites show {site['site']}",
            about=site["site"],
        )
        for site in facts.site_views()
        if not site["connected"]
    ]
    findings += [_faulty(site["site"], fault) for site in facts.site_views() for fault in site.get("faults", ())]
    return findings or [Finding(check="keys", severity="ok", finding="no key and no site wants attention")]


def _faulty(site: str, fault: dict[str, Any]) -> Finding:
    return Finding(
        check="sites",
        severity="error" if fault["reason"] == "store_failed" else "warning",
        finding=f"site {site} is connected and takes no job ({fault['words']})",
        meaning="jobs for it wait here, and are offered again when it is mended; one that expires before ends as"
        " site_dark or expired",
        fix="on the gateway: outstation check",
        about=f"{site} {fault['reason']}",
    )


def _devices(undecided: list[tuple[str, str]]) -> list[Finding]:
    waiting = sum(1 for state, _ in undecided if state == "pending")
    findings = [
        Finding(
            check="keys",
            severity="warning",
            finding=f"two machines with the identity of {name} were seen, so neither is heard",
            meaning="one of them is a copy: somebody has read what the other keeps",
            fix=f"find the real one, and revoke the identity: outstation keys revoke {name}; then it joins anew",
            about=name,
        )
        for state, name in undecided
        if state == "quarantined"
    ]
    if waiting:
        findings.append(
            Finding(
                check="keys",
                severity="info",
                finding=f"{waiting} {'device waits' if waiting == 1 else 'devices wait'} to be accepted",
                meaning="they get no job until then",
                fix="outstation keys list --state pending, then keys accept NAME --fingerprint FINGERPRINT",
            )
        )
    return findings
