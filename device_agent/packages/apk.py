"""Packages of Alpine and of newer OpenWrt, through apk. Not verified on a real system (docs/functions.md)."""

from __future__ import annotations

import re
from typing import Any

from device_agent import system_text
from device_agent.commands import Said, ask, do
from device_agent.host import Host
from device_agent.packages.locks import ask_when_unlocked
from device_agent.packages.port import How, Wanted

_package = re.compile(r"(\S+)-(\d[^-\s]*(?:-r\d+)?)")
"""OpenWrt's have versions without a revision, such as ``24.304.46082~f9899fd``."""


def listed(said: str) -> dict[str, str]:
    """Name to version, from words such as ``musl-utils-1.2.4-r2``."""
    words = (system_text.words(line)[0] for line in system_text.lines(said) if system_text.words(line))
    return {found[1]: found[2] for word in words if (found := _package.fullmatch(word))}


def simulated(said: str) -> dict[str, str]:
    """Name to new version, from ``apk upgrade --simulate``."""
    return dict(re.findall(r"^\(\d+/\d+\) Upgrading (\S+) \(\S+ -> (\S+)\)$", said, re.MULTILINE))


def refreshed(said: str) -> dict[str, bool | None]:
    """Address to whether it was fetched, from ``apk update``."""
    sources: dict[str, bool | None] = dict.fromkeys(re.findall(r"^fetch (\S+)$", said, re.MULTILINE), True)
    refusals = r"^(?:ERROR|WARNING): (?:Ignoring |updating (?:and opening )?|opening )?(\w+://\S+?):? "
    for failed in re.findall(refusals, said, re.MULTILINE):
        for address in [each for each in sources if each.startswith(failed)] or [failed]:
            sources[address] = False
    return sources


class Apk:
    """The packages of a host."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def installed(self) -> dict[str, str]:
        """What is installed."""
        return listed((await do(self._host, "apk", "info", "-v")).out)

    async def removed(self) -> dict[str, str]:
        """Nothing: it does not say of which packages it kept settings."""
        return {}

    async def broken(self) -> dict[str, str]:
        """Nothing: it has no such state."""
        return {}

    async def refresh(self) -> dict[str, bool | None]:
        """Run apk update, which ends badly when one of several sources does."""
        said = await ask_when_unlocked(self._host, "apk", "update")
        sources = refreshed(said.out + said.err)
        return sources if sources or said.ok else refreshed((await do(self._host, "apk", "update")).out)

    async def upgrades(self, *, dist: bool) -> dict[str, str]:  # noqa: ARG002 - it knows one kind of upgrade
        """Ask what it would do."""
        return simulated((await do(self._host, "apk", "upgrade", "--simulate")).out)

    async def candidates(self, names: list[str]) -> dict[str, str]:
        """What an upgrade would bring, and the newest of what is not installed."""
        newer, there = await self.upgrades(dist=False), await self.installed()
        found = {name: newer.get(name, "") for name in names if name in there}
        missing = [name for name in names if name not in there]
        if missing:
            offered = listed((await do(self._host, "apk", "search", "--exact", "--", *missing)).out)
            found |= {name: offered[name] for name in missing if name in offered}
        return found

    async def install(self, wanted: list[Wanted], how: How) -> Said:
        """Run apk add."""
        words = ["--allow-untrusted"] if how.skip_verify else []
        words += ["--repository", how.fromrepo] if how.fromrepo else []
        if how.reinstall:
            return await ask_when_unlocked(
                self._host, "apk", "fix", "--reinstall", *words, "--", *(each.name for each in wanted)
            )
        if how.downloadonly:
            return await ask_when_unlocked(self._host, "apk", "cache", "download", *words)
        if how.only_upgrade:
            there = await self.installed()
            wanted = [each for each in wanted if each.name in there]
        if not wanted:
            return Said("apk", 0, b"", "")
        names = [each.file or (f"{each.name}={each.version}" if each.version else each.name) for each in wanted]
        # Without it a package that is there stays as old as it is.
        return await ask_when_unlocked(self._host, "apk", "add", "--upgrade", *words, "--", *names)

    async def remove(self, names: list[str], *, purge: bool) -> Said:
        """Run apk del."""
        return await ask_when_unlocked(self._host, "apk", "del", *(["--purge"] if purge else []), "--", *names)

    async def upgrade(self, how: How) -> Said:
        """Run apk upgrade."""
        return await ask_when_unlocked(self._host, "apk", "upgrade", *(["--available"] if how.dist_upgrade else []))

    async def info(self, names: list[str]) -> dict[str, dict[str, Any]]:
        """What it says of each: a description, an address and a size, each under a heading."""
        there, found = await self.installed(), {}
        for name in names:
            if name in there:
                said = (await ask(self._host, "apk", "info", "-dws", "--", name)).out
                parts = re.findall(r"^\S+ (description|webpage|installed size):\n(.*)$", said, re.MULTILINE)
                words = {"description": "description", "webpage": "url", "installed size": "size"}
                found[name] = {"name": name, "version": there[name]} | {words[key]: value for key, value in parts}
        return found

    async def held(self) -> list[str]:
        """What is wanted in one version in /etc/apk/world."""
        return re.findall(r"^([^\s=<>~@]+)=[^\s]+$", (await do(self._host, "cat", "/etc/apk/world")).out, re.MULTILINE)

    async def hold(self, names: list[str], *, held: bool) -> Said:
        """Want it in the version it has, or in any."""
        there = await self.installed()
        wanted = [f"{name}={there[name]}" if held else name for name in names if name in there]
        return await ask_when_unlocked(self._host, "apk", "add", "--", *wanted)
