"""What a machine is made of: processors, memory, disks, and whether it is one at all."""

from __future__ import annotations

import re
import shlex
from typing import Any

from device_agent import system_text

CPU_MODEL_KEYS = ("model name", "cpu model", "Processor", "processor model", "Hardware", "system type")
CPU_FLAG_KEYS = ("flags", "Features", "ASEs implemented", "isa")
FLAGS_NAMED = 256
PARAMETERS_NAMED = 128
DISKS_NAMED = 64
VIRTUAL_MAKERS = {
    "qemu": "kvm",
    "kvm": "kvm",
    "vmware": "VMware",
    "virtualbox": "VirtualBox",
    "innotek": "VirtualBox",
    "xen": "xen",
    "bochs": "kvm",
    "amazon ec2": "kvm",
    "google compute": "kvm",
    "openstack": "kvm",
    "parallels": "Parallels",
}
"""Words in the maker's or model's name that give a virtual machine away, and Salt's word for it."""

CONTAINERS = {"docker": "Docker", "podman": "Podman", "lxc": "LXC", "systemd-nspawn": "systemd-nspawn"}


def processors(cpu: str, count: str) -> dict[str, Any]:
    """Processors from the first block of /proc/cpuinfo and a count of them."""
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in system_text.lines(cpu))}
    found: dict[str, Any] = {}
    if count.strip().isdecimal() and int(count) > 0:
        found["num_cpus"] = int(count)
    model = next((facts[key] for key in CPU_MODEL_KEYS if facts.get(key)), "")
    if model:
        found["cpu_model"] = model[:128]
    flags = next((facts[key] for key in CPU_FLAG_KEYS if facts.get(key)), "")
    found["cpu_flags"] = system_text.words(flags)[:FLAGS_NAMED]
    return found


def memory(text: str) -> dict[str, Any]:
    """``mem_total`` and ``swap_total`` in MiB, from proc(5)."""
    found = dict(re.findall(r"^(MemTotal|SwapTotal):\s*(\d{1,15}) kB", text, re.MULTILINE))
    names = {"mem_total": "MemTotal", "swap_total": "SwapTotal"}
    return {name: int(found[key]) // 1024 for name, key in names.items() if key in found}


def parameters(line: str) -> list[list[str | None]]:
    """The kernel's parameters as pairs; one without a value has None."""
    try:
        words = shlex.split(line)
    except ValueError:
        words = system_text.words(line)
    pairs = [word.partition("=") for word in words[:PARAMETERS_NAMED]]
    return [[name[:128], value[:256] if mark else None] for name, mark, value in pairs]


def disks(text: str) -> dict[str, Any]:
    """Disks that turn and those that do not, from a name and a 1 or 0 in each line."""
    found = [words for line in system_text.lines(text) if len(words := system_text.words(line)) == 2]
    return {
        "disks": [name for name, turns in found if turns == "1"][:DISKS_NAMED],
        "ssds": [name for name, turns in found if turns == "0"][:DISKS_NAMED],
    }


def virtual(parts: dict[str, str]) -> dict[str, Any]:
    """Whether this is a machine, a virtual one or a container, from files alone."""
    container = system_text.words(parts.get("container") or parts.get("container1") or "")
    if container:
        return {"virtual": "container", "virtual_subtype": CONTAINERS.get(container[0], container[0])}
    if parts.get("hypervisor", "").strip() == "xen":
        return {"virtual": "xen"}
    makers = f"{parts.get('dmi', '')} {parts.get('tree', '')}".lower()
    for word, name in VIRTUAL_MAKERS.items():
        if word in makers:
            return {"virtual": name}
    if "microsoft corporation" in makers and "virtual machine" in makers:
        return {"virtual": "HyperV"}
    if re.search(r"^flags\s*:.*\bhypervisor\b", parts.get("cpu", ""), re.MULTILINE):
        return {"virtual": "kvm" if "KVM" in parts.get("cpu", "") else "unknown"}
    return {"virtual": "physical"}
