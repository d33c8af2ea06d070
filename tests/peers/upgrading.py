"""Upgrades of a booted gateway that the guard watches: what is installed, and what it says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.peers.machines import Machine
from tests.peers.waiting import until

DIST = Path(__file__).resolve().parents[2] / "dist"
GATEWAY = "outstation-gateway.service"
GUARD = "outstation-upgrade-guard.service"
SECONDS = 900.0
QUICK = (
    "[Service]\nExecStart=\n"
    "ExecStart=/usr/lib/outstation/bin/python3 -I -m gateway.upgrade.guard --deadline 60 --steady 5\n"
)
"""The same guard, which does not wait for ten minutes."""


def built() -> Path:
    """The package that was built last."""
    found = sorted(DIST.glob("outstation_*_amd64.deb"), key=lambda path: path.stat().st_mtime)
    assert found, "try: make deb FAST=1"
    return found[-1]


async def make_lisbon(machine: Machine, package: Path) -> None:
    """Install a package, and make the machine a gateway that answers, with a guard that decides soon."""
    await installed(machine, package)
    await machine.write(f"/etc/systemd/system/{GUARD}.d/quick.conf", QUICK)
    await machine.write("/etc/outstation/gateway.yaml", "name: lisbon\nbroker: {mode: service}\n")
    await machine.run("systemctl", "daemon-reload")
    await machine.sh(f"systemctl restart {GATEWAY} || {{ journalctl -u 'outstation-*' --lines 50; exit 1; }}")
    await answers(machine)


async def record(machine: Machine) -> dict[str, Any]:
    """What the guard says of the last upgrade."""
    done = await machine.run("cat", "/var/cache/outstation/upgrade.json", check=False)
    return dict(json.loads(done.stdout)) if not done.returncode else {"state": ""}


async def ended(machine: Machine, version: str) -> dict[str, Any]:
    """Wait until the guard has decided about a version."""

    async def decided() -> dict[str, Any] | None:
        found = await record(machine)
        return (
            found
            if found.get("after") == version and found["state"] not in ("keeping", "watching", "rolling_back")
            else None
        )

    found = await until(decided, SECONDS, f"the end of the upgrade to {version}")
    assert found is not None
    return dict(found)


async def installed(machine: Machine, package: Path, *, check: bool = True) -> str:
    """Install a package from its file; what was said."""
    there = f"/var/tmp/{package.name}"
    await machine.push(package, there)
    done = await machine.run("apt-get", "install", "--yes", there, check=check, seconds=SECONDS)
    return (done.stdout + done.stderr).decode()


async def version_of(machine: Machine) -> str:
    """The version that is set up; empty when the package is half done."""
    state, name, version, *_ = (await machine.said("dpkg", "--list", "outstation")).splitlines()[-1].split()
    return version if (state, name) == ("ii", "outstation") else ""


async def answers(machine: Machine) -> None:
    """Wait until the gateway answers."""

    async def here() -> bool:
        return (await machine.run("outstation", "spool", "status", check=False)).returncode == 0

    await until(here, SECONDS, "the gateway answers")


async def tags_of(machine: Machine) -> list[str]:
    """The tags of the events that the gateway has."""
    text = await machine.said("outstation", "events", "--history", "100", "--no-follow", "--json")
    return [json.loads(line)["tag"] for line in text.splitlines()]
