"""The facts a machine reports about itself, its grains: asked with one script, so that every way to it gives the same.

What cannot be read is left out. A device's own grains come from a YAML file on it, and for one with an agent from the
agent's settings as well, which win.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import yaml

from device_agent import __version__, system_text
from device_agent.errors import OutstationError, Refused
from device_agent.facts_script import CUSTOM_FILE_BYTES, script, sections
from device_agent.host import Host
from device_agent.own import GRAINS_FILE
from device_agent.protocol import limits
from device_agent.protocol.carried import carried, refuse
from device_agent.protocol.messages import encode_value
from device_agent.readings import addresses, machine, resources, routes

log = logging.getLogger(__name__)

FACTS_SECONDS = 30.0
"""How long a machine may take to tell its facts."""

FACTS_BYTES = 512 * 1024
CUSTOM_BYTES = 16 * 1024
"""Largest of a device's own grains; what is larger is not taken."""

NODES = 4000
"""Values in that file at most, after its aliases are followed."""

_TOO_MUCH = f"more than {NODES} values, or more than {limits.VALUE_DEPTH} levels of them"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

PART_CHARACTERS = 96 * 1024
"""Of a part of the answer no more is read, so that no machine holds up the others with what it says of itself."""

LINE_CHARACTERS = 8192
"""The same of a part that is one line, the command line of the kernel; the kernel's own limit is 4096."""

WORD_CHARACTERS = 2048
INTERFACES_NAMED = 64
"""Interfaces listed at most; a machine with hundreds of bridges would fill the message with them."""

ADDRESSES_NAMED = 128

BULKY = ("cpu_flags", "kernelparams", "systempath", "path", "systemd", "ip_interfaces", "hwaddr_interfaces")
"""Left out in this order when the grains would not fit their message, before any that targets are likely to match."""


class NoFacts(OutstationError):
    """A machine did not tell its facts."""

    default_id = "facts.none"


async def collect(host: Host, name: str, grains_file: str = GRAINS_FILE) -> dict[str, Any]:
    """All grains of a machine, in one round trip. Raises ``NoFacts`` when it does not answer as a POSIX shell would.

    ``name`` is what targets match, the grain ``id``; no file of the machine can say another.
    """
    try:
        answer = await host.run(  # noqa: S604 - the script is ours, and quotes the name of the file
            script(grains_file), shell=True, timeout=FACTS_SECONDS, output_limit=FACTS_BYTES
        )
    except (OSError, ValueError) as error:
        raise NoFacts(f"the machine has no shell to ask: {error}") from error
    if answer.timed_out:
        raise NoFacts(f"the machine did not tell its facts within {FACTS_SECONDS:g} seconds")
    parts = sections(answer.stdout.decode(errors="replace"))
    if "uname" not in parts:
        raise NoFacts("what answered is no POSIX shell", hint=f"it said {answer.stdout[:80]!r}")
    try:
        found = built_in(parts)
    except (ValueError, OverflowError, RecursionError) as error:
        # Text that only looks like a number, from a machine that means no good.
        raise NoFacts(f"what the machine says of itself makes no sense: {error}") from error
    return fitted(found | custom(parts.get("custom", ""), grains_file) | {"id": name})


def built_in(parts: Mapping[str, str]) -> dict[str, Any]:
    """The grains in the parts of the script's answer."""
    told = {name: parts.get(name, "")[:PART_CHARACTERS] for name in {*_PARTS, *parts}}
    grains: dict[str, Any] = {
        **machine.kernel(told["uname"]),
        **machine.system(told["release"], told["openwrt"]),
        **machine.hardware(told["dmi"], told["tree"], told["cpu"]),
        **resources.processors(told["cpu"], told["cpus"]),
        **resources.memory(told["mem"]),
        **resources.disks(told["disks"]),
        **resources.virtual(told),
        "kernelparams": resources.parameters(told["cmdline"][:LINE_CHARACTERS]),
        **_network(told),
        **_session(told),
        **_software(told),
    }
    return {
        name: value[:WORD_CHARACTERS] if isinstance(value, str) else value
        for name, value in grains.items()
        if value is not None and (value != "" or name == "domain")
    }


def custom(text: str, grains_file: str) -> dict[str, Any]:
    """A device's own grains from the text of their file; a file that is no YAML mapping counts as empty and is logged.

    A wrong file must not take the built-in grains with it: the device would be gone from every target.
    """
    if len(text.encode(errors="replace")) >= CUSTOM_FILE_BYTES:
        # Only its beginning is here, which may mean something else than the whole.
        log.error("the file of own grains is too long file=%s allowed=%d", grains_file, CUSTOM_FILE_BYTES - 1)
        return {}
    try:
        found = loaded(text)
        if not isinstance(found, dict):
            raise TypeError("it is not a mapping")
    except (yaml.YAMLError, TypeError, ValueError, OverflowError, RecursionError) as error:
        log.error("the file of own grains is not read file=%s error=%r", grains_file, str(error))
        return {}
    kept: dict[str, Any] = {}
    size = 1
    for name, value in found.items():
        try:
            one = carried({name: value}, refuse)
            more = size + len(encode_value(one)) - 1
            if one.keys() & kept.keys():
                raise Refused("wrong_type", "another grain has this name")
            if more > CUSTOM_BYTES:
                raise Refused("too_large", f"the own grains would have {more} bytes, at most {CUSTOM_BYTES}")
        except Refused as refused:
            log.error("an own grain is left out file=%s grain=%s why=%s", grains_file, ascii(name)[:80], refused.detail)
            continue
        size = more
        kept |= one
    return kept


def custom_size(found: Any) -> int:
    """How much of ``CUSTOM_BYTES`` a device's own grains take. Raises ``Refused``."""
    return len(encode_value(carried(found)))


def loaded(text: str) -> Any:
    """YAML as values; nothing is an empty mapping. Raises ``YAMLError``, ``ValueError`` and ``RecursionError``.

    It may come from a machine that means no good, so its parts are counted before anything is made of them, and then
    what aliases make of it.
    """
    _check_events(yaml.parse(text, Loader=_LOADER))
    loader = _LOADER(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return {}
        _counted(node, [NODES], 0)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _check_events(events: Iterable[yaml.Event]) -> None:
    """Raises ``ValueError`` as soon as there is more than may be; libyaml composes in C, to any depth."""
    depth = 0
    for seen, event in enumerate(events, start=1):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        # Each mapping and list has an end as well, and so has the whole.
        if seen > 2 * NODES or depth > limits.VALUE_DEPTH + 1:
            raise ValueError(_TOO_MUCH)


def _counted(node: yaml.Node, left: list[int], depth: int) -> None:
    """Raises ``ValueError`` for what would grow too large."""
    left[0] -= 1
    if left[0] < 0 or depth > limits.VALUE_DEPTH:
        raise ValueError(_TOO_MUCH)
    if node.tag == "tag:yaml.org,2002:merge":
        raise ValueError("a merge (<<) has no meaning here")
    if isinstance(node, yaml.MappingNode):
        for pair in node.value:
            for inner in pair:
                _counted(inner, left, depth + 1)
    elif isinstance(node, yaml.SequenceNode):
        for inner in node.value:
            _counted(inner, left, depth + 1)


def fitted(grains: dict[str, Any], limit: int = limits.GRAINS_BYTES) -> dict[str, Any]:
    """The same grains without the bulkiest, as far as that is needed for a message to carry them."""
    kept = dict(grains)
    for name in BULKY:
        if len(msgspec.msgpack.encode(kept)) <= limit:
            break
        if kept.pop(name, None) is not None:
            log.warning("the grains are too large for a message, left out grain=%s", name)
    return kept


def _network(told: Mapping[str, str]) -> dict[str, Any]:
    """Addresses by interface and all together."""
    if told["links"] or told["addresses"]:
        found = addresses.from_ip(told["links"], told["addresses"])
    else:
        found = addresses.from_ifconfig(told["ifconfig"])
    kept = dict(list(found.items())[:INTERFACES_NAMED])
    four = {name: [a.address for a in each.four][:ADDRESSES_NAMED] for name, each in kept.items()}
    six = {name: [a.address for a in each.six][:ADDRESSES_NAMED] for name, each in kept.items()}
    nodename = (system_text.lines(told["uname"]) or [""])[-1].strip()
    full = machine.full_name(nodename, told["hosts"], told["resolv"])
    return {
        "ip_interfaces": {name: four[name] + six[name] for name in kept},
        "ip4_interfaces": four,
        "ip6_interfaces": six,
        "ipv4": _sorted([address for each in four.values() for address in each]),
        "ipv6": _sorted([address for each in six.values() for address in each]),
        "hwaddr_interfaces": {name: each.hardware for name, each in kept.items() if each.hardware},
        **routes.gateways(routes.four(told["route"], routes.byte_order(told["order"])), routes.six(told["route6"])),
        "dns": routes.resolver(told["resolv"]),
        "fqdn": full,
        "domain": full.partition(".")[2],
    }


def _session(told: Mapping[str, str]) -> dict[str, Any]:
    """Who the machine was asked as."""
    environment = dict(line.partition("=")[::2] for line in system_text.lines(told["env"]))
    uid, gid, user, group = [*system_text.lines(told["user"]), "", "", "", ""][:4]
    path = environment.get("PATH", "")[:2048]
    return {
        "path": path,
        "systempath": path.split(":") if path else [],
        "shell": environment.get("SHELL") or "/bin/sh",
        "uid": int(uid) if uid.isdecimal() else None,
        "gid": int(gid) if gid.isdecimal() else None,
        "username": user,
        "groupname": group,
    }


def _software(told: Mapping[str, str]) -> dict[str, Any]:
    """What runs on the machine beside its kernel."""
    python = told["python"].removeprefix("Python ").split(".")
    boot = system_text.words(told["init"])
    zone = [*system_text.lines(told["zone"]), "", "", ""]
    enforced = system_text.lines(told["firmware"])
    found: dict[str, Any] = {
        "machine_id": told["machine"].strip()[:64],
        "boot_id": told["boot"].strip()[:64],
        "init": _init(boot),
        "osarch": machine.architecture(told["arch"]) or machine.kernel(told["uname"]).get("cpuarch"),
        "outstationversion": __version__,
        "efi": "efi" in enforced,
        "ps": "ps w" if "busybox" in told["ps"] else "ps -efHww",
        "locale_info": _locale(told["locale"], zone[0]),
    }
    found["timezone"] = zone[1] or (zone[2].partition("zoneinfo/")[2] if "zoneinfo/" in zone[2] else "")
    if len(python) == 3 and all(part.isdecimal() for part in python[:2]):
        found["pythonversion"] = [int(part) if part.isdecimal() else part for part in python]
    if told["systemd"].startswith("systemd "):
        first, _, features = told["systemd"].partition("\n")
        found["systemd"] = {"version": system_text.words(first)[1], "features": features.strip()[:1024]}
    if "selinux" in enforced:
        found["selinux"] = {"enabled": True, "enforced": "Enforcing" if enforced[-1] == "1" else "Permissive"}
    return found


def _locale(text: str, zone: str) -> dict[str, Any]:
    """The language of the machine, not of who asked it."""
    language, _, encoding = machine.assignments(text).get("LANG", "").partition(".")
    known = language if language not in {"", "C", "POSIX"} else None
    return {"defaultlanguage": known, "defaultencoding": encoding or None, "timezone": zone}


def _init(words: list[str]) -> str:
    """What the first process is; a program that nobody knows has no name here."""
    if "systemd" in words:
        return "systemd"
    known = {"procd": "procd", "openrc-init": "openrc", "runit": "runit", "busybox": "busybox", "upstart": "upstart"}
    for word in words:
        program = word.rpartition("/")[2]
        if program in known:
            return known[program]
    return "sysvinit" if "init" in {word.rpartition("/")[2] for word in words} else "unknown"


def _sorted(found: list[str]) -> list[str]:
    return [str(address) for address in sorted(ipaddress.ip_address(word) for word in set(found))]


_PARTS = [
    "env",
    "uname",
    "release",
    "openwrt",
    "cpu",
    "cpus",
    "mem",
    "cmdline",
    "boot",
    "machine",
    "dmi",
    "tree",
    "hosts",
    "resolv",
    "links",
    "addresses",
    "ifconfig",
    "order",
    "route",
    "route6",
    "init",
    "container",
    "container1",
    "hypervisor",
    "disks",
    "user",
    "systemd",
    "arch",
    "python",
    "locale",
    "zone",
    "firmware",
    "ps",
]
