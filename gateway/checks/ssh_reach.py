"""How many of the SSH devices can be reached?"""

from __future__ import annotations

from gateway.checks.finding import Facts, Finding


async def check(facts: Facts) -> list[Finding]:
    """One finding; none where there are no SSH devices."""
    link = (await facts.station_view()).get("ssh")
    if not link or not link["devices"]:
        return []
    away, devices = link["away"], link["devices"]
    if not away:
        return [Finding(check="ssh", severity="ok", finding=f"every SSH device answers: {devices:,}", about="reach")]
    return [
        Finding(
            check="ssh",
            severity="error" if away == devices else "warning",
            finding=f"{away:,} of {devices:,} SSH devices do not answer",
            meaning="no job reaches them until they do; they are looked at again and again by themselves",
            fix="outstation devices list shows which (present: no); then power, cable and address of what stands there",
            about="reach",
        )
    ]
