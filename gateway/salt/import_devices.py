"""From proxies, rosters and accepted minions to devices of a gateway: over SSH, over MQTT, or with a reason. Pure.

A proxy of Salt runs its functions in the proxy process, and a device over SSH in the device's own shell: only where a
proxy type reaches such a shell does a device come over by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from device_agent.protocol.messages import DEVICE_ID_PATTERN
from gateway.salt.import_findings import Finding, Verdict

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
SSH_PORT: Final = 22
DELTA: Final = "deltaproxy"
ALIASES: Final[dict[str, tuple[str, ...]]] = {
    "address": ("host", "hostname", "ip", "address"),
    "port": ("port",),
    "user": ("username", "user"),
    "password": ("password", "passwd", "pass"),
    "key_file": ("key_file", "priv", "private_key", "identity_file", "ssh_priv"),
    "passphrase": ("passphrase", "priv_passwd", "key_passphrase"),
}
KNOWN: Final = frozenset(name for names in ALIASES.values() for name in names) | {"proxytype", "multiprocessing"}
IGNORED: Final = frozenset(
    {"device_type", "driver", "optional_args", "use_keys", "timeout", "conn_timeout", "thin_dir", "tty"}
)
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


def take_proxy(devices: Devices, name: str, proxy: Any, where: str) -> None:
    """A proxy minion, by what its pillar says under ``proxy``."""
    label = f"proxy {name[:128]}"
    if name in devices.known:
        _tell(devices, "no meaning", label, where, f"{devices.known[name]} has this device")
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
    elif _first(proxy, "address") and (_first(proxy, "password") or _first(proxy, "key_file")):
        words = f"its proxytype {kind[:40]!r} is not known here; if it logs in over SSH, it is in the inventory rightly"
        _over_ssh(devices, name, proxy, label, where, words)
    else:
        words = f"its proxytype {kind[:40]!r} is not known here, and it names no host with a login"
        _tell(devices, "not carried", label, where, words)


def take_roster(devices: Devices, name: str, entry: Any, where: str) -> None:
    """A line of a roster of salt-ssh."""
    label = f"roster {name[:128]}"
    if name in devices.known:
        _tell(devices, "no meaning", label, where, f"{devices.known[name]} has this device")
        return
    devices.known[name] = where
    proxy = {"host": entry} if isinstance(entry, str) else entry
    if not isinstance(proxy, Mapping):
        _tell(devices, "not carried", label, where, "it is no mapping")
    else:
        _over_ssh(devices, name, proxy, label, where)


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


def _over_ssh(devices: Devices, name: str, proxy: Mapping[str, Any], label: str, where: str, words: str = "") -> None:
    if not _name.match(name):
        _tell(devices, "not carried", label, where, "no device can have this name here: letters, digits, _, . and -")
        return
    row: dict[str, Any] = {"name": name}
    options = proxy.get("optional_args")
    for column in ALIASES:
        value = _first(proxy, column) or (_first(options, column) if isinstance(options, Mapping) else None)
        if value is not None:
            row[column] = value if column == "port" else str(value)
    passphrase = row.pop("passphrase", None)
    if "address" not in row:
        _tell(devices, "not carried", label, where, "it names no host")
        return
    if "key_file" in row:
        row.pop("password", None)
    notes = [words] if words else []
    row.setdefault("user", "root")
    if passphrase is not None:
        notes.append("its key has a passphrase: put it into a file, and name that in passphrase_file")
    if "password" not in row and "key_file" not in row:
        notes.append("it has neither password nor key: add one, or login: agent")
    row["login"] = "key" if "key_file" in row else "password" if "password" in row else "agent"
    beside = sorted(str(key) for key in proxy if key not in KNOWN | IGNORED)
    if beside:
        notes.append(f"without {', '.join(beside)[:200]}")
    port = row.get("port", SSH_PORT)
    keys = devices.host_keys(str(row["address"]), int(port) if str(port).isdigit() else SSH_PORT)
    row["fingerprint"] = " ".join(keys)
    if not keys:
        notes.append("its host key is not known: fill in fingerprint, as ssh-keygen -lf shows it on the device")
    devices.ssh.append(row)
    _tell(devices, "translated", label, where, "; ".join(notes), "ssh-devices.yaml")


def _first(said: Mapping[str, Any], column: str) -> Any:
    return next(
        (said[name] for name in ALIASES[column] if isinstance(said.get(name), (str, int)) and said[name] != ""), None
    )


def _tell(devices: Devices, verdict: Verdict, what: str, where: str, words: str, to: str = "") -> None:
    devices.findings.append(Finding(verdict, what, where, words, to))
