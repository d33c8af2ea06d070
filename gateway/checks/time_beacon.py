"""Does each master that is connected bring its time beacon?"""

from __future__ import annotations

from typing import Final

from device_agent.clock import iso
from device_agent.trust.time_beacon import EVERY_SECONDS
from gateway.checks.finding import Facts, Finding
from gateway.checks.uplink import LOST

MISSING_SECONDS: Final = 3 * EVERY_SECONDS
"""A master signs one each hour, and a site gets the newest with its welcome."""


async def check(facts: Facts) -> list[Finding]:
    """One finding for each master, or relay, that has been connected for hours and brings no new time beacon.

    None on a station without masters, and on one below Salt masters, which sign none.
    """
    uplink = (await facts.station_view())["uplink"]
    links = uplink["links"] if uplink is not None else []
    connected = [link for link in links if link["state"] == "connected" and LOST not in link]
    wall, heard = facts.box().clock.wall(), facts.beacons_heard()
    found = []
    for link in connected:
        last = heard.get(link["address"])
        if wall - max(last or 0.0, link["since"]) < MISSING_SECONDS:
            continue
        found.append(
            Finding(
                check="time-beacon",
                severity="warning",
                finding=f"{link['address']} is connected since {iso(link['since'])} and brings no time beacon"
                + ("" if last is None else f"; the last new one came at {iso(last)}"),
                meaning="a stolen gateway can set the clock of its devices back to the last thing that a master signed",
                fix="outstation check on that master and each relay before it; release 0.1.0 signs none: upgrade it",
                about=link["address"],
            )
        )
    if found or not connected:
        return found
    latest = max(heard.values(), default=None)
    words = "none yet, the link is new" if latest is None else f"the newest came at {iso(latest)}"
    return [Finding(check="time-beacon", severity="ok", finding=words)]
