"""Every check, in the order in which findings of one severity are shown, and all of them at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

from device_agent.errors import OutstationError
from device_agent.exhausted import Exhausted, cause_of
from gateway.checks import (
    beacons,
    broker,
    certificates,
    clock,
    disk,
    engines,
    files,
    keys,
    open_files,
    permissions,
    ports,
    refusals,
    relayed,
    returners,
    returns,
    schedule,
    spool,
    ssh,
    ssh_link,
    ssh_reach,
    station,
    store,
    time_beacon,
    trust,
    twins,
    upgrade,
    uplink,
    versions,
)
from gateway.checks.box import Box
from gateway.checks.finding import SEVERITIES, Facts, Finding

log = logging.getLogger(__name__)

CHECK_SECONDS: Final = 10.0
"""Longest that one check may take: the others are not kept waiting by it."""

Check = Callable[[Facts], Awaitable[list[Finding]]]

CHECKS: Final[list[Check]] = [
    disk.check,
    clock.check,
    permissions.check,
    store.check,
    broker.check,
    ports.check,
    trust.check,
    certificates.check,
    uplink.check,
    time_beacon.check,
    returns.check,
    spool.check,
    twins.check,
    relayed.check,
    upgrade.check,
    keys.check,
    ssh.check,
    ssh_link.check,
    ssh_reach.check,
    files.check,
    engines.check,
    schedule.check,
    beacons.check,
    returners.check,
    open_files.check,
    versions.check,
    refusals.check,
]
"""Of a station that runs."""

AT_REST: Final[list[Callable[[Box], list[Finding]]]] = [
    station.at_rest,
    disk.at_rest,
    clock.at_rest,
    permissions.at_rest,
    broker.at_rest,
    ports.at_rest,
    trust.at_rest,
    certificates.at_rest,
    uplink.at_rest,
    upgrade.at_rest,
    versions.at_rest,
]
"""Of one that does not: from its settings, its files and the machine."""


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """The same findings by severity; those of one severity as they came."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


async def look(facts: Facts, checks: Iterable[Check] = CHECKS) -> list[Finding]:
    """What every check of a running station finds. A check that fails or is late is a finding too."""
    found = []
    short: dict[Exhausted, list[str]] = {}
    for check in checks:
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                found += await check(facts)
        except TimeoutError:
            found.append(_broken(check, f"it took longer than {CHECK_SECONDS:.0f} seconds"))
        except Exception as error:
            if (missing := _missing(error, facts)) is not None:
                short.setdefault(missing, []).append(_name(check))
                continue
            # One check that fails must not keep a technician from what the others found.
            log.exception("check failed name=%s", _name(check))
            found.append(_broken(check, str(error) or type(error).__name__))
    return worst_first([*(_limit(*each) for each in short.items()), *found])


def look_at_rest(box: Box, checks: Iterable[Callable[[Box], list[Finding]]] = AT_REST) -> list[Finding]:
    """What every check finds that needs no station."""
    found = []
    for check in checks:
        try:
            found += check(box)
        except OutstationError as error:
            found.append(
                Finding(
                    check=_name(check),
                    severity="error",
                    finding=f"{error.where or box.state_dir}: {error.what}"
                    + (f", found: {error.found}" if error.found else ""),
                    meaning="the station cannot start with it"
                    + (f"; allowed: {error.allowed}" if error.allowed else ""),
                    fix=error.hint or f"ls -la {box.state_dir}",
                )
            )
        except OSError as error:
            found.append(_broken(check, str(error)))
    return worst_first(found)


def _missing(error: Exception, facts: Facts) -> Exhausted | None:
    """What the station has run out of, where that is why a check failed."""
    if cause_of(error, Path(facts.state_dir())) is None:
        return None
    return cause_of(error, facts.box().state_dir, facts.box().unit)


def _limit(missing: Exhausted, names: list[str]) -> Finding:
    """What this machine or this station has run out of, which kept checks from being made."""
    return Finding(
        check="limits",
        severity="error",
        finding=missing.what,
        meaning=f"new connections, files and processes fail until there is room; not looked at: {', '.join(names)}",
        fix=missing.fix,
        about=missing.what,
    )


def _name(check: Callable[..., object]) -> str:
    return check.__module__.rpartition(".")[2].replace("_", "-")


def _broken(check: Callable[..., object], why: str) -> Finding:
    return Finding(
        check=_name(check),
        severity="error",
        finding=f"this check could not be made: {why}",
        meaning="what it looks at may be right or wrong; the other checks are not concerned",
        fix="sudo outstation check; if it stays so, the log says more: journalctl -u 'outstation-*' -n 50",
        about="broken",
    )
