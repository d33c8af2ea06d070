"""Packages of Debian and its kin, through apt-get, apt-cache, apt-mark and dpkg-query."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from device_agent import system_text
from device_agent.commands import Said, ask, do
from device_agent.host import Host
from device_agent.packages.locks import ask_when_unlocked
from device_agent.packages.port import How, Wanted

QUIETLY = ["env", "DEBIAN_FRONTEND=noninteractive", "APT_LISTCHANGES_FRONTEND=none", "UCF_FORCE_CONFFOLD=1"]
OLD_SETTINGS_STAY = ["-o", "DPkg::Options::=--force-confold", "-o", "DPkg::Options::=--force-confdef"]
PATIENTLY = ["-o", "DPkg::Lock::Timeout=60"]
"""apt waits so long for the lock of dpkg; for its other locks ``locks.ask_when_unlocked`` waits."""

BETWEEN = ("half-installed", "unpacked", "half-configured", "triggers-awaited", "triggers-pending")
"""States of dpkg(1) between installed and gone."""

FIELD, RECORD = "\x1f", "\x1e"
INFO = {
    "name": "Package",
    "version": "Version",
    "architecture": "Architecture",
    "group": "Section",
    "packager": "Maintainer",
    "source": "source:Package",
    "url": "Homepage",
    "vendor": "Origin",
    "install_date": "db-fsys:Last-Modified",
    "description": "Description",
}
LINES = {"Get": True, "Hit": None, "Ign": False, "Err": False}


def selected(listed: str, state: str) -> dict[str, str]:
    """Name to version, from lines ``want flag state name version architecture`` of dpkg-query."""
    lines = [system_text.words(line) for line in system_text.lines(listed)]
    native = next((parts[5] for parts in lines if len(parts) == 6 and parts[3] == "dpkg"), "")
    found = {}
    for parts in lines:
        if len(parts) == 6 and parts[2] == state:
            foreign = parts[5] not in {native, "all"} and native
            found[f"{parts[3]}:{parts[5]}" if foreign else parts[3]] = parts[4]
    return found


def refreshed(said: str) -> dict[str, bool | None]:
    """Source to what became of it, from ``apt-get update``."""
    sources = {}
    for line in system_text.lines(said):
        if found := re.fullmatch(r"(Get|Hit|Ign|Err):\d+ (.+?)(?: \[[^][]*B\])?", line.strip()):
            sources[found[2]] = LINES[found[1]]
    return sources


def simulated(said: str) -> dict[str, str]:
    """Name to new version of what is installed already, from ``apt-get -s upgrade``."""
    return dict(re.findall(r"^Inst (\S+) \[[^\]]*\] \((\S+)", said, re.MULTILINE))


def policies(said: str) -> dict[str, tuple[str, str]]:
    """Name to the installed version and the candidate, from ``apt-cache policy``."""
    found = {}
    for block in re.split(r"^(?=\S)", said, flags=re.MULTILINE):
        lines = dict(re.findall(r"^  (Installed|Candidate): (\S+)$", block, re.MULTILINE))
        versions = [lines.get(word, "(none)").replace("(none)", "") for word in ("Installed", "Candidate")]
        if lines:
            found[block.partition("\n")[0].rstrip(":")] = (versions[0], versions[1])
    return found


class Apt:
    """The packages of a host."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def installed(self) -> dict[str, str]:
        """What dpkg has unpacked and configured."""
        return selected(await self._query(), "installed")

    async def removed(self) -> dict[str, str]:
        """What has only its settings left."""
        return selected(await self._query(), "config-files")

    async def broken(self) -> dict[str, str]:
        """What dpkg has in a state between installed and gone."""
        listed = await self._query()
        return {name: version for state in BETWEEN for name, version in selected(listed, state).items()}

    async def refresh(self) -> dict[str, bool | None]:
        """Run apt-get update."""
        return refreshed((await self._get("update")).must().out)

    async def upgrades(self, *, dist: bool) -> dict[str, str]:
        """Ask apt-get what it would do."""
        verb = "dist-upgrade" if dist else "upgrade"
        return simulated((await do(self._host, "apt-get", "-q", "-s", "-o", "Debug::NoLocking=1", verb)).out)

    async def candidates(self, names: list[str]) -> dict[str, str]:
        """Ask apt-cache."""
        known = policies((await do(self._host, "apt-cache", "-q", "policy", "--", *names)).out)
        return {
            name: ("" if known.get(name, ("", ""))[0] == known[name][1] else known[name][1])
            for name in names
            if name in known
        }

    async def install(self, wanted: list[Wanted], how: How) -> Said:
        """Run apt-get install."""
        words = ["-y", *OLD_SETTINGS_STAY]
        words += ["--allow-unauthenticated"] if how.skip_verify else []
        words += ["--reinstall"] if how.reinstall else []
        words += ["--download-only"] if how.downloadonly else []
        words += ["--only-upgrade"] if how.only_upgrade else []
        words += [] if how.install_recommends else ["--no-install-recommends"]
        words += ["-t", how.fromrepo] if how.fromrepo else []
        if any(each.version or each.file for each in wanted):
            words += ["--allow-downgrades"]
        names = [each.file or (f"{each.name}={each.version}" if each.version else each.name) for each in wanted]
        return await self._get(*words, "install", "--", *names)

    async def remove(self, names: list[str], *, purge: bool) -> Said:
        """Run apt-get remove or purge."""
        return await self._get("-y", "purge" if purge else "remove", "--", *names)

    async def upgrade(self, how: How) -> Said:
        """Run apt-get upgrade or dist-upgrade."""
        words = ["-y", *OLD_SETTINGS_STAY, *(["--allow-unauthenticated"] if how.skip_verify else [])]
        words += ["--download-only"] if how.downloadonly else []
        return await self._get(*words, "dist-upgrade" if how.dist_upgrade else "upgrade")

    async def info(self, names: list[str]) -> dict[str, dict[str, Any]]:
        """Ask dpkg-query, and the files of its database for the time of installation."""
        fields = FIELD.join(f"${{{field}}}" for field in ["db:Status-Status", *INFO.values()])
        said = await ask(self._host, "dpkg-query", f"--showformat={fields}{RECORD}", "--show", "--", *names)
        found = {}
        for record in said.out.split(RECORD):
            status, *values = record.split(FIELD)
            if status == "installed":
                known = {key: value.strip() for key, value in zip(INFO, values, strict=True) if value.strip()}
                since = known.pop("install_date", "") or await self._since(known["name"], known["architecture"])
                if since:
                    known["install_date"] = f"{datetime.fromtimestamp(int(since), UTC):%Y-%m-%dT%H:%M:%SZ}"
                found[known["name"]] = known | {"description": f"{values[-1]}\n"}
        return found

    async def held(self) -> list[str]:
        """Ask apt-mark."""
        return system_text.words((await do(self._host, "apt-mark", "showhold")).out)

    async def hold(self, names: list[str], *, held: bool) -> Said:
        """Tell apt-mark."""
        return await ask_when_unlocked(self._host, "apt-mark", "hold" if held else "unhold", "--", *names)

    async def _since(self, name: str, arch: str) -> str:
        # What a dpkg before 1.19 does not tell.
        for file in (name, f"{name}:{arch}"):
            stat = await self._host.stat(f"/var/lib/dpkg/info/{file}.list")
            if stat is not None:
                return str(int(stat.mtime))
        return ""

    async def _get(self, *words: str) -> Said:
        return await ask_when_unlocked(self._host, *QUIETLY, "apt-get", "-q", *PATIENTLY, *words)

    async def _query(self) -> str:
        shown = "--showformat=${Status} ${Package} ${Version} ${Architecture}\\n"
        return (await do(self._host, "dpkg-query", shown, "--show")).out
