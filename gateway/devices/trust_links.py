"""What a station tells its masters and its sites of whom to believe and what time it is: both ends, made together."""

from __future__ import annotations

from pathlib import Path

from device_agent.clock import Clock
from gateway.devices.authority import Authority
from gateway.devices.epochs import Epochs
from gateway.devices.site_trust import SiteTrust
from gateway.devices.time_beacons import TimeBeacons
from gateway.devices.trust_above import TrustAbove
from upstream.ports import Refusals


def trust_links(
    folder: Path, authority: Authority, sites: SiteTrust, groups: Epochs, *, refusals: Refusals, clock: Clock
) -> tuple[TimeBeacons, TrustAbove]:
    """The time beacons of a station, and the trust side of its uplink; ``sites`` are told what comes over it."""
    beacons = TimeBeacons(folder, authority=authority, clock=clock)
    sites.time_beacons = beacons.bodies
    beacons.on_change(sites.tell)
    above = TrustAbove(authority=authority, refusals=refusals, groups=groups, sites=sites, beacons=beacons)
    groups.on_change(above.touch)
    return beacons, above
