"""Services of OpenRC (Alpine, Gentoo), through rc-service and rc-update. Not verified on a real system."""

from __future__ import annotations

from device_agent import system_text
from device_agent.commands import Said, ask, do
from device_agent.ended import FunctionFailed
from device_agent.host import Host
from device_agent.init_systems.names import is_service_name
from device_agent.init_systems.port import Verb

RUNLEVEL = "default"


def in_runlevels(shown: str) -> dict[str, list[str]]:
    """Service to its runlevels, from ``rc-update --verbose show``, which also lists those in none."""
    services = {}
    for line in system_text.lines(shown):
        name, parted, levels = line.partition("|")
        if parted and name.strip():
            services[name.strip()] = system_text.words(levels)
    return services


class OpenRc:
    """The services of a host."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def names(self) -> list[str]:
        """Every service with a script."""
        return sorted(system_text.words((await do(self._host, "rc-service", "--list")).out))

    async def states(self) -> dict[str, bool]:
        """By service, whether it is in any runlevel."""
        shown = (await do(self._host, "rc-update", "--verbose", "show")).out
        return {name: bool(levels) for name, levels in in_runlevels(shown).items()}

    async def available(self, name: str) -> bool:
        """There is a script of this name."""
        return (await ask(self._host, "rc-service", "--exists", _name(name))).ok

    async def running(self, name: str) -> bool:
        """It is started."""
        return (await ask(self._host, "rc-service", _name(name), "status")).ok

    async def act(self, name: str, verb: Verb) -> Said:
        """Start, stop and so on."""
        return await ask(self._host, "rc-service", _name(name), "reload" if verb == "force-reload" else verb)

    async def starts(self, name: str) -> bool:
        """It is in a runlevel."""
        return (await self.states()).get(name, False)

    async def set_starts(self, name: str, starts: bool) -> Said:
        """Put it into the default runlevel, or take it out of all."""
        if starts:
            return await ask(self._host, "rc-update", "add", _name(name), RUNLEVEL)
        return await ask(self._host, "rc-update", "--all", "del", _name(name))


def _name(name: str) -> str:
    """The same name. Raises ``FunctionFailed``: rc-service runs a file whose path it is given."""
    if not is_service_name(name):
        raise FunctionFailed(f"{name!r} is no name of a service", value=False)
    return name
