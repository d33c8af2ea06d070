"""What a station says for devices behind its sites when its policy keeps a job from them: each is refused, at once."""

from __future__ import annotations

from collections import defaultdict

from device_agent.protocol.messages import Job, Manifest, OutcomeRecord
from device_agent.protocol.outcomes import Outcome
from gateway.jobs.expect import pages
from gateway.jobs.permission import RefusedDevice, Ruling
from gateway.jobs.record import given


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
