"""Every check, in the order in which findings are shown."""

from __future__ import annotations

from typing import Final

from gateway.checks import (
    beacons,
    broker,
    disk,
    engines,
    files,
    keys,
    refusals,
    returners,
    schedule,
    ssh,
    ssh_link,
    store,
    trust,
    twins,
    upgrade,
    uplink,
)

CHECKS: Final = [
    disk.check,
    store.check,
    broker.check,
    trust.check,
    uplink.check,
    twins.check,
    upgrade.check,
    keys.check,
    ssh.check,
    ssh_link.check,
    files.check,
    engines.check,
    schedule.check,
    beacons.check,
    returners.check,
    refusals.check,
]
