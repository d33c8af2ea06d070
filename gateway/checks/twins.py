"""Do two gateways run from copies of one store? Seen from either, and from the master."""

from __future__ import annotations

from gateway.checks.finding import Facts, Finding

_MEANING = (
    "a disk image or a folder was copied and both were started: only one is let in, since what both send"
    " would take each other's place"
)


async def check(facts: Facts) -> list[Finding]:
    """A finding for each site with two gateways; none when there is no such."""
    findings = [
        Finding(
            check="twins",
            severity="error",
            finding=f"site {site['site']} has two gateways with one store: {site['twin']['address']} is fenced,"
            f" it knocked {site['twin']['count']} times",
            meaning=_MEANING,
            fix=f"stop the wrong one; if that is the one which is connected: outstation sites unfence {site['site']}",
        )
        for site in facts.site_views()
        if site.get("twin")
    ]
    name = (await facts.station_view())["name"]
    for view in facts.twins():
        if view["fenced"]:
            findings.append(
                Finding(
                    check="twins",
                    severity="error",
                    finding="this gateway is fenced: another one with a copy of its store is connected",
                    meaning=f"{_MEANING}; this one goes on by itself and keeps what it has",
                    fix=f"stop the other one and, on the master: outstation sites unfence {name}",
                )
            )
        elif view["twin"]:
            findings.append(
                Finding(
                    check="twins",
                    severity="error",
                    finding=f"another gateway with a copy of this store came to the master from {view['twin']}",
                    meaning=_MEANING,
                    fix="stop the other one; it is fenced and does no harm to what the master has",
                )
            )
    return findings
