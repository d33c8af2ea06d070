"""From proxies, rosters and accepted minions to devices of a gateway: over SSH, over MQTT, or with a reason. Pure.

A proxy of Salt runs its functions in the proxy process, and a device over SSH in the device's own shell: only where a
proxy type reaches such a shell does a device come over by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from device_agent.protocol.messages import DEVICE_ID_PATTERN
from gateway.salt.import_files import INVENTORY
from gateway.salt.import_findings import Finding, Verdict
from gateway.salt.import_ssh_row import SSH_PORT, names_login, ssh_row

SSH_TYPES: Final = frozenset({"ssh", "ssh_sample", "ssh_proxy", "linux", "openssh"})
NETWORK_TYPES: Final = frozenset(
    [
        "napalm",
        "junos",
        "nxos",
        "nxos_api",
        "netmiko",
        "panos",
        "onyx",
        "cisconso",
        "ciscoconfparse",
        "arista_pyeapi",
        "pyeapi",
        "cimc",
        "f5",
    ]
)
HTTP_TYPES: Final = frozenset(
    [
        "rest_sample",
        "rest",
        "esxi",
        "esxcluster",
        "esxdatacenter",
        "esxvm",
        "vcenter",
        "fx2",
        "marathon",
        "chronos",
        "docker",
        "philips_hue",
    ]
)
DELTA: Final = "deltaproxy"
_name = re.compile(DEVICE_ID_PATTERN)
_HTTP_WORDS = (
    "it is asked over HTTP: write a function for it (docs/modules.md), or let it join with an agent: "
    "outstation keys token new --name"
)


@dataclass
class Devices:
    """The devices of a site, as far as they come over."""

    ssh: list[dict[str, Any]] = field(default_factory=list, repr=False)
    """Rows of an inventory for ``outstation devices import``; they hold secrets."""

    agents: list[str] = field(default_factory=list)
    """Names of machines that had a minion: each joins with a token."""

    findings: list[Finding] = field(default_factory=list)
    known: dict[str, str] = field(default_factory=dict)
    """Name -> where it was found."""

    host_keys: Callable[[str, int], list[str]] = lambda _host, _port: []
    """Fingerprints that are known of a host and a port."""

    listed: dict[str, str] = field(default_factory=dict)
    """Names that a deltaproxy has, and where it says so."""

    unreadable: set[str] = field(default_factory=set)
    """Names whose pillar does not render, so that nothing is known of them."""


def take_proxy(devices: Devices, name: str, proxy: Any, where: str) -> None:
    """A proxy minion, by what its pillar says under ``proxy``."""
    label = f"proxy {name[:128]}"
    if name in devices.known:
        _also(devices, label, f"{where} says it too, and what is said here counts")
        return
    devices.known[name] = where
    if not isinstance(proxy, Mapping):
        _tell(devices, "not carried", label, where, "what stands under proxy: is no mapping")
        return
    kind = str(proxy.get("proxytype", ""))
    driver = str(proxy.get("device_type", ""))
    if kind == DELTA:
        said = proxy.get("ids")
        listed = said if isinstance(said, list) else []
        ids = [each for each in listed if isinstance(each, str)]
        devices.listed.update({each: where for each in ids if each not in devices.listed})
        words = f"the gateway takes its place; its {len(ids)} devices are listed by their own names"
        _tell(devices, "translated", label, where, words)
        for each in listed:
            if not isinstance(each, str):
                words = f"{str(each)[:80]} in ids is no text, and may be another name than the one written: quote it"
                _tell(devices, "not carried", f"{label} ids", where, words)
    elif kind == "dummy":
        _tell(devices, "no meaning", label, where, "a dummy has no device; outstation demo has as many as you like")
    elif kind in SSH_TYPES or (kind == "netmiko" and driver.startswith("linux")):
        _over_ssh(devices, name, proxy, label, where)
    elif kind in NETWORK_TYPES:
        words = f"a device of type {kind} has a shell of its maker's and no POSIX one; keep its salt-proxy for it"
        _tell(devices, "not carried", label, where, words)
    elif kind in HTTP_TYPES or "url" in proxy:
        _tell(devices, "not carried", label, where, f"{_HTTP_WORDS} {name[:64]}")
    elif names_login(proxy):
        words = f"its proxytype {kind[:40]!r} is not known here; if it logs in over SSH, it is in the inventory rightly"
        _over_ssh(devices, name, proxy, label, where, [words])
    else:
        words = f"its proxytype {kind[:40]!r} is not known here, and it names no host with a login"
        _tell(devices, "not carried", label, where, words)


def take_roster(devices: Devices, name: str, entry: Mapping[str, Any], where: str, notes: Sequence[str] = ()) -> None:
    """A line of a roster of salt-ssh, with all that Salt's settings fill into it."""
    label = f"roster {name[:128]}"
    if name in devices.known:
        _tell(devices, "no meaning", label, where, f"{devices.known[name]} has this device")
        return
    devices.known[name] = where
    _over_ssh(devices, name, entry, label, where, notes)


def take_wrong(devices: Devices, name: str, where: str, words: str) -> None:
    """A line of a roster that is wrong by itself; the others count."""
    devices.known.setdefault(name, where)
    devices.findings.append(Finding("wrong", f"roster {name[:128]}", where, words, entry_alone=True))


def take_minion(devices: Devices, name: str, where: str) -> None:
    """A minion whose key this box has accepted."""
    label = f"minion {name[:128]}"
    if name in devices.known:
        _tell(devices, "no meaning", label, where, f"{devices.known[name]} has this device")
        return
    devices.known[name] = where
    if not _name.match(name):
        _tell(devices, "not carried", label, where, "no device can have this name here: letters, digits, _, . and -")
        return
    devices.agents.append(name)
    words = "its key is Salt's: install outstation-agent, and let it join with a token of its name"
    _tell(devices, "translated", label, where, words, "agents.txt")


def _over_ssh(
    devices: Devices, name: str, proxy: Mapping[str, Any], label: str, where: str, notes: Sequence[str] = ()
) -> None:
    if not _name.match(name):
        _tell(devices, "not carried", label, where, "no device can have this name here: letters, digits, _, . and -")
        return
    row = ssh_row(name, proxy)
    if row.wrong:
        devices.findings.append(Finding("wrong", label, where, row.fault, entry_alone=True))
        return
    if row.fault:
        _tell(devices, "not carried", label, where, row.fault)
        return
    words = [*notes, *row.notes]
    keys = devices.host_keys(row.cells["address"], row.cells.get("port", SSH_PORT))
    row.cells["fingerprint"] = " ".join(keys)
    if not keys:
        words.append("its host key is not known: fill in fingerprint, as ssh-keygen -lf shows it on the device")
    devices.ssh.append(row.cells)
    _tell(devices, "translated", label, where, "; ".join(words), INVENTORY)


def _also(devices: Devices, label: str, words: str) -> None:
    """Add words to the verdict of a device, which has only one."""
    for place, finding in enumerate(devices.findings):
        if finding.what == label:
            devices.findings[place] = replace(finding, words="; ".join(filter(None, (finding.words, words))))


def _tell(devices: Devices, verdict: Verdict, what: str, where: str, words: str, to: str = "") -> None:
    devices.findings.append(Finding(verdict, what, where, words, to))
