"""Looks at a whole box with Salt: settings, pillar, rosters and accepted keys, and what all of it comes to."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from device_agent.errors import UsageInvalid
from device_agent.protocol.messages import SITE_ID_PATTERN
from device_agent.settings_file import Section
from gateway.salt.import_accepted import accept
from gateway.salt.import_code import own_code, take_code
from gateway.salt.import_default_roots import file_roots, take_default_roots
from gateway.salt.import_devices import Devices, take_proxy
from gateway.salt.import_findings import VERDICTS, WIDTH, Finding, Wish
from gateway.salt.import_minions import UNREADABLE, accepted, take_minions
from gateway.salt.import_pillar import take_pillar
from gateway.salt.import_proxy_folders import take_proxy_folders
from gateway.salt.import_reactor import take_reactor
from gateway.salt.import_read import Box, read_box, typed
from gateway.salt.import_roster import take_rosters
from gateway.salt.import_settings import translated

ETC: Final = Path("/etc/salt")
SRV: Final = Path("/srv")
_site = re.compile(SITE_ID_PATTERN)


@dataclass(frozen=True)
class Asked:
    """What is to be looked at, and where what came of it is to go."""

    folder: Path = ETC
    pillar: Sequence[Path] = ()
    names: Sequence[str] = ()
    host_keys: Callable[[str, int], list[str]] = lambda _host, _port: []
    site: str | None = None
    there: Section | None = None
    """The settings that the gateway has already; what they say stays."""

    srv: Path | None = None
    """Where Salt's default folders are; without it /srv for /etc/salt, and none for another folder."""


@dataclass
class Looked:
    """What all of it comes to."""

    site: str
    settings: dict[str, Any] = field(repr=False)
    devices: Devices
    findings: list[Finding]

    @property
    def wrong(self) -> bool:
        """Whether there is a file that could not be read."""
        return any(finding.verdict == "wrong" and not finding.entry_alone for finding in self.findings)

    @property
    def wrong_place(self) -> str:
        """Where the first file is that could not be read."""
        return next(each.where for each in self.findings if each.verdict == "wrong" and not each.entry_alone)

    @property
    def incomplete(self) -> bool:
        """Whether a file or an entry is wrong, so that something is left out."""
        return any(finding.verdict == "wrong" for finding in self.findings)


def look(asked: Asked) -> Looked:
    """Everything at once. Raises ``UsageInvalid`` where there is nothing of Salt, or no name for the site."""
    box = read_box(asked.folder)
    if not box.files:
        raise UsageInvalid(
            "there are no settings of Salt in this folder",
            error_id="import.nothing",
            where=str(asked.folder),
            allowed="a folder with master, minion or proxy, or with their folders master.d, minion.d, proxy.d",
            hint="outstation gateway import-salt --salt FOLDER",
        )
    srv = asked.srv or (SRV if asked.folder == ETC else None)
    roots = file_roots(box, srv)
    code = own_code(box, roots)
    box.own = code.names
    wish = translated(box)
    if srv is not None:
        take_default_roots(box, wish, srv)
    site, salt_id = _site_of(asked, box, wish)
    if "upstream/masters" in wish.origins and salt_id not in ("", site):
        wish.put("upstream/id", salt_id, wish.origins["upstream/masters"])
    devices = Devices(host_keys=asked.host_keys)
    _devices(asked, box, wish, devices, {site, salt_id})
    _leave_what_is_there(asked, wish)
    accept(wish, site)
    reactor = box.said.get("master", {}).get("reactor")
    files = take_reactor(reactor, roots, box.own) if reactor is not None else []
    findings = sorted(
        [*files, *take_code(code), *box.findings, *wish.findings, *devices.findings],
        key=lambda each: VERDICTS.index(each.verdict),
    )
    return Looked(site, wish.settings, devices, findings)


def _site_of(asked: Asked, box: Box, wish: Wish) -> tuple[str, str]:
    """The name of the site, and the id that the box has at its masters."""
    origin = wish.origins.get("name", "")
    salt_id = str(wish.settings.get("name", ""))
    if origin:
        wish.drop("name")
    kept = asked.folder / "minion_id"
    if not salt_id and kept.is_file():
        salt_id = kept.read_text(encoding="utf-8", errors="replace").strip()[:256]
    there = asked.there.entries.get("name") if asked.there is not None else None
    site = getattr(there, "text", "") or asked.site or salt_id
    if not _site.match(site):
        raise UsageInvalid(
            "a gateway needs the name of its site",
            error_id="import.name",
            where=origin or str(box.folder),
            found=site[:80] or "no id",
            allowed="letters, digits, _, . and -, at most 64",
            hint="outstation gateway import-salt --name NAME",
        )
    return site, salt_id


def _devices(asked: Asked, box: Box, wish: Wish, devices: Devices, own: set[str]) -> None:
    folders = take_proxy_folders(box, devices)
    for role in ("proxy", "minion"):
        said = box.said.get(role, {}).get("proxy")
        if said is not None:
            name = box.value(role, "id") or box.value("minion", "id") or "proxy"
            take_proxy(devices, str(name), typed(said.value, said.tree), said.where)
    roots = {"base": [str(path) for path in asked.pillar]} if asked.pillar else wish.settings.get("pillar_roots", {})
    named = {**dict.fromkeys(asked.names, "--names"), **folders}
    if roots:
        named |= asyncio.run(take_pillar(roots, [*asked.names, *accepted(box), *folders], devices))
    for name, where in devices.listed.items():
        if name not in devices.known:
            words = "a deltaproxy has it, and there is no proxy in its own pillar here: give that with --pillar FOLDER"
            devices.findings.append(Finding("not carried", f"proxy {name[:128]}", where, words))
    take_rosters(box, devices)
    take_minions(box, devices, own)
    done = {*own, *devices.known, *devices.listed, *accepted(box)}
    for name, where in named.items():
        if name not in done:
            words = (
                UNREADABLE if name in devices.unreadable else "its pillar has no proxy, and no key of it is accepted"
            )
            devices.findings.append(Finding("not carried", f"proxy {name[:128]}", where, words))


def _leave_what_is_there(asked: Asked, wish: Wish) -> None:
    """Whatever the gateway's settings say already stays as they say it."""
    if asked.there is None:
        return
    for path in list(wish.origins):
        node: Any = asked.there
        place = None
        for word in path.split("/"):
            place = node.places.get(word) if isinstance(node, Section) else None
            node = node.entries.get(word) if isinstance(node, Section) else None
        if place is None:
            continue
        where, to = wish.origins[path], path.replace("/", ".")
        wish.drop(path)
        for number, finding in enumerate(wish.findings):
            if finding.where == where and finding.to == to:
                wish.findings[number] = Finding("no meaning", finding.what, where, f"{place} says it already")


def lines_of(findings: Sequence[Finding]) -> list[str]:
    """A report for people: each finding in a line, with its words below it."""
    found: list[str] = []
    for finding in findings:
        to = f" -> {finding.to}" if finding.to and finding.to != finding.what else ""
        found.append(f"{finding.verdict:<{WIDTH}}  {finding.what}{to}  {finding.where}")
        if finding.words:
            found.append(f"{'':<{WIDTH}}  {finding.words}")
    return found


def fields_of(finding: Finding) -> Mapping[str, str]:
    """A finding by names, for JSON."""
    return {
        "verdict": finding.verdict,
        "what": finding.what,
        "where": finding.where,
        "to": finding.to,
        "words": finding.words,
    }
