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
            about=site["site"],
        )
        for site in facts.site_views()
        if site.get("twin")
    ]
    name = (await facts.station_view())["name"]
    told = facts.twins()
    if fences := [view for view in told if view["fenced"]]:
        # Each master has a fence of its own.
        where = "the master" if len(fences) == 1 else "each master"
        findings.append(
            Finding(
                check="twins",
                severity="error",
                finding="this gateway is fenced: another one with a copy of its store is connected",
                meaning=f"{_MEANING}; this one keeps what it has, and starts nothing until the"
                " master lets it in: no job, schedule, reaction, runner or orchestration",
                fix=f"stop the other one and, on {where}: outstation sites unfence {name}",
                about="this",
            )
        )
    addresses = sorted({str(view["twin"]) for view in told if view["twin"] and not view["fenced"]})
    if addresses:
        findings.append(
            Finding(
                check="twins",
                severity="error",
                finding=f"another gateway with a copy of this store came to the master from {', '.join(addresses)}",
                meaning=_MEANING,
                fix="stop the other one; it is fenced and does no harm to what the master has",
            )
        )
    return findings
