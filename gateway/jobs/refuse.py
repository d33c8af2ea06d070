"""What a station says for devices behind its sites when its policy keeps a job from them: each is refused, at once."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from device_agent.protocol.messages import Job, Manifest, OutcomeRecord
from device_agent.protocol.outcomes import Outcome
from device_agent.protocol.stations import meanable
from device_agent.protocol.targeting import Target
from gateway.devices.device import Device
from gateway.jobs.expect import pages
from gateway.jobs.permission import RefusedDevice, Ruling
from gateway.jobs.record import given


def shut_below(
    target: Target, ruling: Ruling, site: str, sites: Sequence[str], below: Callable[[str], Iterable[Device]]
) -> Ruling:
    """Devices behind sites below a gateway are refused at once: they would not believe it."""
    why = f"not_granted: site {site} may order its own devices alone; run it there, or from a master"
    devices = tuple(
        RefusedDevice(device.site, device.id, device.last_seen, why)
        for each in sites
        for device in meanable(below(each), target.tgt)
        if target.matches(device.id, device.grains)
    )
    return dataclasses.replace(ruling, shut=frozenset(sites), below=devices)


def refused_pages(job: Job, ruling: Ruling, revision: int) -> list[Manifest]:
    """The manifest of the devices that are refused behind sites below; never the final page."""
    by_leaf: dict[str, list[RefusedDevice]] = defaultdict(list)
    for device in ruling.below:
        by_leaf[device.site].append(device)
    return [
        page
        for leaf, devices in by_leaf.items()
        for page in pages(job.jid, leaf, sorted(device.id for device in devices), revision, final=False)
    ]


def refused_records(job: Job, ruling: Ruling, ended: float) -> list[OutcomeRecord]:
    """Their outcomes."""
    return [
        given(job, device.site, device.id, Outcome.REFUSED, device.why, seen=device.seen, ended=ended)
        for device in ruling.below
    ]
