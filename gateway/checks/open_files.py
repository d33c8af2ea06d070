"""May the station and its broker open as many files as they need? A connection is one."""

from __future__ import annotations

import re
import resource
from pathlib import Path
from typing import Any, Final

from device_agent.clock import iso
from gateway.checks.finding import Facts, Finding

OWN: Final = 256
"""What a station opens beside its connections, with room to spare."""

PER_SITE: Final = 2
WARN_SHARE: Final = 0.8
ERROR_SHARE: Final = 0.95
NOT_ACCEPTED_SECONDS: Final = 900.0
"""How long a door that could not accept a connection is reported."""

BROKER_LIMIT: Final = re.compile(r"^Max open files\s+(\d+)", re.MULTILINE)


async def check(facts: Facts) -> list[Finding]:
    """One finding about this process, and one about a broker that it runs where that has too few."""
    view = await facts.station_view()
    box = facts.box()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    opened = _open_now()
    need = OWN + PER_SITE * view["sites"] + _ssh(view, box.settings.ssh.connections) + _embedded(view)
    found = _about("this station", opened, need, limit, box.unit)
    pid = (view["broker"] or {}).get("pid")
    broker = _limit_of(pid) if isinstance(pid, int) else None
    if broker is not None:
        unit = "outstation-broker" if view["broker"]["mode"] == "service" else box.unit
        found += _about("the broker", view["present"], OWN + view["devices"], broker, unit)
    found += [
        _not_accepted(each, limit, box.unit)
        for each in view.get("accept_failed", [])
        if facts.now() - each["at"] < NOT_ACCEPTED_SECONDS
    ]
    return found or [
        Finding(check="open-files", severity="ok", finding=f"{opened:,} of {limit:,} open, {need:,} may be needed")
    ]


def _about(who: str, opened: int, need: int, limit: int, unit: str) -> list[Finding]:
    share = opened / limit
    if share < WARN_SHARE and need <= limit:
        return []
    return [
        Finding(
            check="open-files",
            severity="error" if share >= ERROR_SHARE else "warning",
            finding=f"{who} may open {limit:,} files, has {opened:,} open, and may need {need:,}",
            meaning="when there are no more, new connections of devices and sites are turned away",
            fix=f"systemctl edit {unit}: [Service] LimitNOFILE={max(65_536, 2 * need)}; systemctl restart {unit}",
            about=who,
        )
    ]


def _not_accepted(failed: dict[str, Any], limit: int, unit: str) -> Finding:
    return Finding(
        check="open-files",
        severity="error",
        finding=f"no connection could be accepted at {failed['door']}, last at {iso(failed['at'])}: {failed['why']}",
        meaning=f"this process may open {limit:,} files, and had none left",
        fix=f"systemctl edit {unit}: [Service] LimitNOFILE={max(65_536, 2 * limit)}; systemctl restart {unit}",
        about=failed["door"],
    )


def _open_now() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _ssh(view: dict[str, Any], most: int) -> int:
    devices: int = (view["ssh"] or {"devices": 0})["devices"]
    return min(devices, most)


def _embedded(view: dict[str, Any]) -> int:
    broker = view["broker"]
    devices: int = view["devices"]
    return devices if broker is not None and broker["mode"] == "embedded" else 0


def _limit_of(pid: int) -> int | None:
    """The limit of another process; None when it is gone or hidden."""
    try:
        found = BROKER_LIMIT.search(Path(f"/proc/{pid}/limits").read_text(encoding="ascii"))
    except OSError:
        return None
    return int(found[1]) if found else None
