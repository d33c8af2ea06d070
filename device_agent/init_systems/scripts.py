"""Services that are scripts in /etc/init.d: System V, OpenWrt's procd, and BusyBox init as Buildroot sets it up."""

from __future__ import annotations

import re
from typing import ClassVar

from device_agent import system_text
from device_agent.commands import Said, ask, present, shell
from device_agent.ended import FunctionFailed
from device_agent.host import Host
from device_agent.init_systems.names import is_service_name
from device_agent.init_systems.port import Verb

FOLDER = "/etc/init.d"
NO_SERVICES = re.compile(r"README.*|skeleton|rc|rcS|rcK|rcD|functions|.*\.(dpkg-.*|bak)|.*~")
"""Files beside the scripts that are none, or that are parts of the start itself."""

_LIST = """cd "$1" 2>/dev/null || exit 0
for file in *; do [ -f "$file" ] && { [ -x "$file" ] && echo "+$file" || echo "-$file"; }; done; :"""

_ACT = """script=$1; verb=$2
if [ "$verb" = force-reload ]; then grep -q 'force-reload' "$script" || verb=restart; fi
exec "$script" "$verb" </dev/null"""

RUNNING = """script=$1; name=$2
if grep -Eq '(^|[^a-z])status[|)]' "$script"; then "$script" status </dev/null >/dev/null 2>&1; exit; fi
for file in "/var/run/$name.pid" "/run/$name.pid" "/var/run/$name/$name.pid"; do
    [ -s "$file" ] && read -r pid <"$file" && exec kill -0 "$pid" 2>/dev/null
done
pidof "$name" >/dev/null || exec pidof -x "$name" >/dev/null 2>&1"""
"""What a script without a status knows of itself is its pid file; without one it is asked by name. With ``-x``, pidof
finds daemons that are scripts too; BusyBox has no such option and finds them without."""


def listed(text: str) -> dict[str, bool]:
    """File to whether it can be executed, from ``+name`` and ``-name`` lines; what is no service is left out."""
    return {line[1:]: line[0] == "+" for line in system_text.lines(text) if _is_service(line[1:])}


def _is_service(file: str) -> bool:
    return is_service_name(file) and not NO_SERVICES.fullmatch(file)


def linked(text: str) -> set[str]:
    """The services that links such as ``S20sshd`` start."""
    return {found[1] for line in system_text.lines(text) if (found := re.fullmatch(r"S\d\d(.+)", line))}


class Scripts:
    """What all of them have in common."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def names(self) -> list[str]:
        """Every service with a script that can be run."""
        return sorted(name for name, runs in (await self._files()).items() if runs)

    async def states(self) -> dict[str, bool]:
        """By service, whether a link starts it."""
        starting = linked((await shell(self._host, self.links)).out)
        return {name: name in starting for name in await self.names()}

    async def available(self, name: str) -> bool:
        """There is a script of this name."""
        return name in await self.names()

    async def running(self, name: str) -> bool:
        """Its status says so, or its pid file, or there is a process of that name."""
        return (await shell(self._host, RUNNING, await self._path(name), name)).ok

    async def act(self, name: str, verb: Verb) -> Said:
        """Start, stop and so on."""
        return await shell(self._host, _ACT, await self._path(name), verb)

    async def starts(self, name: str) -> bool:
        """It starts by itself."""
        return (await self.states()).get(name, False)

    async def _files(self) -> dict[str, bool]:
        return listed((await shell(self._host, _LIST, FOLDER)).out)

    async def _path(self, name: str) -> str:
        """Raises ``FunctionFailed`` for what is no name in that folder."""
        if not is_service_name(name):
            raise FunctionFailed(f"{name!r} is no script in {FOLDER}", value=False)
        return f"{FOLDER}/{name}"

    links: ClassVar[str] = "cd /etc && ls rc2.d rc3.d rc4.d rc5.d rcS.d rc.d/rc2.d rc.d/rc3.d rc.d/rc5.d 2>/dev/null; :"
    """Says which links start something."""


class SysV(Scripts):
    """Links in /etc/rc?.d, made by update-rc.d (Debian) or chkconfig (Red Hat), or by hand where there is neither."""

    async def set_starts(self, name: str, starts: bool) -> Said:
        """Have it started, or not, in the runlevels of several users."""
        tool = await present(self._host, "update-rc.d", "chkconfig")
        if tool[:1] == ["update-rc.d"]:
            script = 'update-rc.d "$1" defaults && update-rc.d "$1" "$2"'
            return await shell(self._host, script, name, "enable" if starts else "disable")
        if tool:
            return await ask(self._host, "chkconfig", name, "on" if starts else "off")
        return await shell(self._host, _LINK if starts else _UNLINK, name)


_LINK = """cd /etc || exit; for level in 2 3 4 5; do
    [ -d "rc$level.d" ] || continue
    rm -f "rc$level.d"/K[0-9][0-9]"$1"; set -- "$1" "rc$level.d"/S[0-9][0-9]"$1"
    [ -e "$2" ] || ln -s "../init.d/$1" "rc$level.d/S50$1" || exit
done"""
_UNLINK = """cd /etc || exit; for level in 2 3 4 5; do rm -f "rc$level.d"/S[0-9][0-9]"$1" || exit; done"""


class Procd(Scripts):
    """OpenWrt: every script knows by itself how to be enabled."""

    links: ClassVar[str] = "ls /etc/rc.d 2>/dev/null; :"

    async def running(self, name: str) -> bool:
        """What its supervisor says."""
        script = 'grep -q "^#!/bin/sh /etc/rc.common" "$1" && exec "$1" running'
        said = await shell(self._host, script, await self._path(name))
        return said.ok or await super().running(name)

    async def set_starts(self, name: str, starts: bool) -> Said:
        """The script makes or removes its links."""
        return await ask(self._host, await self._path(name), "enable" if starts else "disable")


class BusyBox(Scripts):
    """``S40network`` in /etc/init.d, run in their order by the init; one that is not executable does not start."""

    async def names(self) -> list[str]:
        """The scripts without their numbers, and those that have none."""
        return sorted({_bare(name) for name in await self._files()})

    async def states(self) -> dict[str, bool]:
        """A script with a number that can be executed starts by itself."""
        return {_bare(name): runs for name, runs in (await self._files()).items() if _bare(name) != name}

    async def set_starts(self, name: str, starts: bool) -> Said:
        """Make it executable, or not."""
        return await ask(self._host, "chmod", "a+x" if starts else "a-x", await self._path(name))

    async def act(self, name: str, verb: Verb) -> Said:
        """One that does not start by itself can be started by hand nevertheless."""
        return await shell(
            self._host, _ACT.replace('exec "$script"', 'exec sh "$script"'), await self._path(name), verb
        )

    async def _path(self, name: str) -> str:
        return next(
            (f"{FOLDER}/{file}" for file in await self._files() if name in {file, _bare(file)}),
            await super()._path(name),
        )


def _bare(name: str) -> str:
    return re.sub(r"^S\d\d", "", name)
