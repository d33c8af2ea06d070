"""Which package manager a host has."""

from __future__ import annotations

from device_agent.commands import one_of
from device_agent.host import Host
from device_agent.packages.apk import Apk
from device_agent.packages.apt import Apt
from device_agent.packages.opkg import Opkg
from device_agent.packages.port import Packages

PACKAGES: dict[str, type[Apt | Opkg | Apk]] = {"apt-get": Apt, "apk": Apk, "opkg": Opkg}


async def packages_of(host: Host) -> Packages:
    """Whatever installs the packages of this host. Raises ``FunctionFailed`` where nothing that is known does."""
    return PACKAGES[await one_of(host, *PACKAGES)](host)
