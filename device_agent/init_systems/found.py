"""Which init system a host has, from what is running on it and what is installed."""

from __future__ import annotations

from collections.abc import Callable

from device_agent.commands import shell
from device_agent.ended import FunctionFailed
from device_agent.host import Host
from device_agent.init_systems.openrc import OpenRc
from device_agent.init_systems.port import InitSystem
from device_agent.init_systems.scripts import BusyBox, Procd, SysV
from device_agent.init_systems.systemd import Systemd

_LOOK = """has() { command -v "$1" >/dev/null 2>&1; }
if [ -d /run/systemd/system ] && has systemctl; then echo systemd
elif has rc-service && has rc-update; then echo openrc
elif [ -f /etc/rc.common ] && [ -d /etc/init.d ]; then echo procd
elif [ -d /etc/rc2.d ] || [ -d /etc/rc.d/rc3.d ]; then echo sysv
elif [ -d /etc/init.d ]; then echo busybox
elif has systemctl; then echo systemd
fi"""

INIT_SYSTEMS: dict[str, Callable[[Host], InitSystem]] = {
    "systemd": Systemd,
    "openrc": OpenRc,
    "procd": Procd,
    "sysv": SysV,
    "busybox": BusyBox,
}


async def init_system(host: Host, root: str | None = None) -> InitSystem:
    """Whatever starts the services of this host; systemd for an image under ``root``. Raises ``FunctionFailed``."""
    if root:
        return Systemd(host, root)
    name = (await shell(host, _LOOK)).out.strip()
    if name not in INIT_SYSTEMS:
        raise FunctionFailed(
            "this device has no init system that is known: no systemd, OpenRC or scripts in /etc/init.d"
        )
    return INIT_SYSTEMS[name](host)
