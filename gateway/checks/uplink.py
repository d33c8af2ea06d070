"""Is a master above, and does it take what is spooled?"""

from __future__ import annotations

from gateway.checks.finding import Facts, Finding


async def check(facts: Facts) -> list[Finding]:
    """One finding about the uplink; none on a station without masters."""
    view = await facts.station_view()
    uplink = view["uplink"]
    if uplink is None:
        return []
    if uplink["state"] == "no masters":
        return []
    pending = view["spool_pending"]
    if uplink["state"] == "connected":
        return [
            Finding(check="uplink", severity="ok", finding=f"connected to {uplink['master']}, {pending} items to send")
        ]
    standing = "pending" if uplink["state"] == "pending" else uplink["last_error"].split(":")[0]
    if "the key was revoked" in uplink["last_error"]:
        standing = "revoked"
    accept = f"outstation keys accept {view['name']}"
    fixes = {
        "revoked": "for ever: if this gateway is in the right hands, begin anew with another state_dir and"
        " outstation gateway join TOKEN",
        "pending": f"on the master: {accept}",
        "rejected": f"on the master: {accept} --fingerprint {view['fingerprint']}",
        "denied": f"on the master, if this gateway replaces the other: outstation keys reject {view['name']},"
        f" then {accept} --fingerprint {view['fingerprint']}",
    }
    return [
        Finding(
            check="uplink",
            severity="warning",
            finding=f"{uplink['state']}: {uplink['last_error'] or 'no answer yet'} ({uplink['master']})",
            meaning=f"the site works on by itself; {pending} items wait on this disk and go up when a master is back",
            fix=fixes.get(standing, "check the address and key under masters: in the settings, and the network to it"),
        )
    ]
