"""Services of systemd, through systemctl."""

from __future__ import annotations

from typing import Any

from device_agent import system_text
from device_agent.commands import Said, ask, do
from device_agent.host import Host
from device_agent.init_systems.port import Verb

UNIT_KINDS = frozenset({"service", "socket", "device", "mount", "automount", "swap", "target", "path", "timer"})
STARTING_STATES = frozenset({"enabled", "enabled-runtime"})
UNKNOWN_UNIT = 4
"""What ``systemctl status`` says of a unit that is not there."""


def unit_files(listed: str) -> dict[str, str]:
    """Name to state, from ``systemctl list-unit-files``; a service is called without its ending."""
    files = {}
    for line in system_text.lines(listed):
        unit, _, rest = line.strip().partition(" ")
        name, _, kind = unit.rpartition(".")
        if kind in UNIT_KINDS and system_text.words(rest):
            files[name if kind == "service" else unit] = system_text.words(rest)[0]
    return files


def properties(shown: str) -> dict[str, Any]:
    """What ``systemctl show`` prints, by name: ``{ a=b ; c=d }`` as a dictionary, orders of units as lists."""
    found: dict[str, Any] = {}
    for line in system_text.lines(shown):
        name, parted, value = line.partition("=")
        if not parted:
            continue
        if value.startswith("{"):
            pairs = (pair.partition("=") for pair in value.strip("{} ").split(" ; "))
            found[name] = {key.strip(): inner.strip() for key, _, inner in pairs}
        else:
            found[name] = system_text.words(value) if name in {"Before", "After", "Wants"} else value
    return found


class Systemd:
    """The units of a host. With ``root`` they are those of an image under that path, whose services cannot run."""

    def __init__(self, host: Host, root: str | None = None) -> None:
        self._host = host
        self._options = [f"--root={root}"] if root else []

    async def names(self) -> list[str]:
        """Every unit with a file."""
        return sorted(await self._files())

    async def states(self) -> dict[str, bool]:
        """Units that are enabled or disabled; static and masked ones have no such choice."""
        wanted = STARTING_STATES | {"disabled"}
        return {name: state in STARTING_STATES for name, state in (await self._files()).items() if state in wanted}

    async def states_in_words(self) -> dict[str, str]:
        """By unit, the state as systemd calls it."""
        return await self._files()

    async def available(self, name: str) -> bool:
        """Systemd knows a unit of this name."""
        if self._options:
            return name.removesuffix(".service") in await self._files()
        return (await self.ask("status", "--lines=0", "--", name)).returncode < UNKNOWN_UNIT

    async def running(self, name: str) -> bool:
        """The unit is active."""
        return (await self.ask("is-active", "--quiet", "--", name)).ok

    async def act(self, name: str, verb: Verb, *, wait: bool = True) -> Said:
        """Start, stop and so on; without ``wait`` it is only asked for."""
        how = [] if wait else ["--no-block"]
        return await self.ask(*how, "reload-or-restart" if verb == "force-reload" else verb, "--", name)

    async def begun(self, name: str) -> bool:
        """The unit runs, has failed, or is enabled: it was there before this call."""
        state = (await self.ask("show", "--property=ActiveState", "--value", "--", name)).out.strip()
        if state not in {"", "inactive"}:
            return True
        return (await self.ask("is-enabled", "--", name)).out.strip() in STARTING_STATES

    async def starts(self, name: str) -> bool:
        """The unit is enabled; an alias is what the unit behind it is."""
        said = await self.ask("is-enabled", "--", name)
        if said.out.strip() == "alias":
            real = (await self.ask("show", "--property=Id", "--value", "--", name)).out.strip()
            said = await self.ask("is-enabled", "--", real)
        return said.ok

    async def set_starts(self, name: str, starts: bool) -> Said:
        """Enable or disable the unit."""
        return await self.ask("enable" if starts else "disable", "--", name)

    async def show(self, name: str) -> dict[str, Any]:
        """Everything systemd knows of a unit."""
        return properties((await do(self._host, *self._command("show", "--", name))).out)

    async def ask(self, *words: str) -> Said:
        """One question to systemctl."""
        return await ask(self._host, *self._command(*words))

    async def _files(self) -> dict[str, str]:
        return unit_files((await do(self._host, *self._command("--full", "--no-legend", "list-unit-files"))).out)

    def _command(self, *words: str) -> list[str]:
        return ["systemctl", "--no-pager", *self._options, *words]
