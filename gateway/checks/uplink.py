"""Is a master above, and does it take what is spooled?"""

from __future__ import annotations

from gateway.checks.finding import Facts, Finding


async def check(facts: Facts) -> list[Finding]:
    """One finding about the uplink; none on a station without masters."""
    view = await facts.station_view()
    uplink = view["uplink"]
    if uplink is None:
        return []
    pending = view["spool_pending"]
    if uplink["state"] == "connected":
        return [
            Finding(check="uplink", severity="ok", finding=f"connected to {uplink['master']}, {pending} items to send")
        ]
    waiting = "pending" in (uplink["state"], uplink["last_error"].split(":")[0])
    return [
        Finding(
            check="uplink",
            severity="warning",
            finding=f"{uplink['state']}: {uplink['last_error'] or 'no answer yet'} ({uplink['master']})",
            meaning=f"the site works on by itself; {pending} items wait on this disk and go up when a master is back",
            fix=f"on the master: outstation keys accept {view['name']}"
            if waiting
            else "check the address and key under masters: in the settings, and the network to it",
        )
    ]
