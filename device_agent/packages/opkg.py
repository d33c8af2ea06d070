"""Packages of OpenWrt and other small systems, through opkg. Not verified on a real system (docs/functions.md)."""

from __future__ import annotations

import re
from typing import Any

from device_agent import system_text
from device_agent.commands import Said, ask, do
from device_agent.host import Host
from device_agent.packages.locks import ask_when_unlocked
from device_agent.packages.port import How, Wanted

INFO = {
    "package": "name",
    "version": "version",
    "architecture": "arch",
    "section": "group",
    "maintainer": "packager",
    "source": "source",
    "license": "license",
    "homepage": "url",
    "installed-size": "size",
    "description": "description",
    "installed-time": "install_date_time_t",
}


def listed(said: str) -> dict[str, str]:
    """Name to version, from lines ``name - version - description``."""
    return dict(re.findall(r"^(\S+) - (\S+)(?: - .*)?$", said, re.MULTILINE))


def upgradable(said: str) -> dict[str, str]:
    """Name to new version, from lines ``name - old - new``."""
    return dict(re.findall(r"^(\S+) - \S+ - (\S+)$", said, re.MULTILINE))


def refreshed(said: str) -> dict[str, bool | None]:
    """Address to whether it was fetched, from ``opkg update``."""
    sources: dict[str, bool | None] = {}
    asked = ""
    for line in system_text.lines(said):
        _, failed, rest = line.partition("ailed to download ")
        if begun := re.match(r"Downloading (\S+?)\.?$", line):
            # A signature is fetched after its list, and is of no use for itself.
            if not begun[1].endswith((".sig", ".asc")):
                asked = begun[1]
                sources[asked] = True
        elif failed and (address := re.search(r"\b(\w+://\S+?)[,.]?(?:\s|$)", rest)):
            sources[address[1]] = False
        elif asked and re.match(r"Signature (?:check|file download) failed", line):
            sources[asked] = False
    return {address: fetched for address, fetched in sources.items() if not address.endswith((".sig", ".asc"))}


def records(said: str) -> list[dict[str, str]]:
    """The paragraphs of ``opkg status`` and ``opkg info``, with the keys in small letters."""
    found = []
    for paragraph in re.split(r"\n\s*\n", said):
        record: dict[str, str] = {}
        key = ""
        for line in system_text.lines(paragraph):
            if line[:1].isspace() and key:
                record[key] += f"\n{line.strip()}"
            elif ":" in line:
                key, _, value = line.partition(":")
                key = key.lower()
                record[key] = value.strip()
        if "package" in record:
            found.append(record)
    return found


class Opkg:
    """The packages of a host."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def installed(self) -> dict[str, str]:
        """What is installed."""
        return listed((await do(self._host, "opkg", "list-installed")).out)

    async def removed(self) -> dict[str, str]:
        """Nothing: it keeps no settings of what it removed."""
        return {}

    async def broken(self) -> dict[str, str]:
        """Nothing: it lists such packages as installed."""
        return {}

    async def refresh(self) -> dict[str, bool | None]:
        """Run opkg update, which ends badly when one of several sources does."""
        said = await ask_when_unlocked(self._host, "opkg", "update")
        sources = refreshed(said.out + said.err)
        return sources if sources or said.ok else refreshed((await do(self._host, "opkg", "update")).out)

    async def upgrades(self, *, dist: bool) -> dict[str, str]:  # noqa: ARG002 - it knows one kind of upgrade
        """Ask what could be newer."""
        return upgradable((await do(self._host, "opkg", "list-upgradable")).out)

    async def candidates(self, names: list[str]) -> dict[str, str]:
        """What could be newer, and the newest of what is not installed."""
        newer, there = await self.upgrades(dist=False), await self.installed()
        found = {name: newer.get(name, "") for name in names if name in there}
        for name in names:
            if name not in there:
                known = records((await do(self._host, "opkg", "info", name)).out)
                found |= {name: known[-1].get("version", "")} if known else {}
        return found

    async def install(self, wanted: list[Wanted], how: How) -> Said:
        """Run opkg install; it takes no versions, so one that is asked for must be the one there is."""
        if how.fromrepo:
            return Said("opkg", 1, b"", "opkg installs from whichever source has a package: it takes no fromrepo")
        if how.only_upgrade:
            already = await self.installed()
            wanted = [each for each in wanted if each.name in already]
        if not wanted:
            return Said("opkg", 0, b"", "")
        words = ["--force-reinstall"] if how.reinstall else []
        words += ["--download-only"] if how.downloadonly else []
        words += ["--no-check-certificate"] if how.skip_verify else []
        for each in wanted:
            if each.version and (offered := await self.candidates([each.name])).get(each.name) != each.version:
                there = (await self.installed()).get(each.name)
                if there == each.version:
                    continue
                what = offered.get(each.name) or there or "nothing"
                return Said("opkg", 1, b"", f"opkg has {what} of {each.name}, and no {each.version}")
        return await ask_when_unlocked(
            self._host, "opkg", *words, "install", *(each.file or each.name for each in wanted)
        )

    async def remove(self, names: list[str], *, purge: bool) -> Said:  # noqa: ARG002 - nothing is left to purge
        """Run opkg remove."""
        return await ask_when_unlocked(self._host, "opkg", "remove", *names)

    async def upgrade(self, how: How) -> Said:
        """Run opkg upgrade, which wants to be told each name."""
        names = list(await self.upgrades(dist=how.dist_upgrade))
        return await ask_when_unlocked(self._host, "opkg", "upgrade", *names) if names else Said("opkg", 0, b"", "")

    async def info(self, names: list[str]) -> dict[str, dict[str, Any]]:
        """Ask for the status of each."""
        found: dict[str, dict[str, Any]] = {}
        for record in records("\n\n".join([(await ask(self._host, "opkg", "status", name)).out for name in names])):
            if record.get("status", "").endswith(" installed"):
                found[record["package"]] = {INFO[key]: value for key, value in record.items() if key in INFO and value}
        return found

    async def held(self) -> list[str]:
        """What has the flag."""
        every = records((await do(self._host, "opkg", "status")).out)
        return [record["package"] for record in every if "hold" in system_text.words(record.get("status", ""))[1:2]]

    async def hold(self, names: list[str], *, held: bool) -> Said:
        """Give it the flag, or take it."""
        return await ask_when_unlocked(self._host, "opkg", "flag", "hold" if held else "ok", *names)
