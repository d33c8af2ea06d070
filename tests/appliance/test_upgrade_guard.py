"""A version that is not healthy gives way to the one before it, on a booted machine and with dpkg itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.peers.altered_packages import altered, source_of
from tests.peers.machines import Machine, TestBed
from tests.peers.waiting import until

DIST = Path(__file__).resolve().parents[2] / "dist"
GATEWAY = "outstation-gateway.service"
GUARD = "outstation-upgrade-guard.service"
SECONDS = 300.0
QUICK = (
    "[Service]\nExecStart=\n"
    "ExecStart=/usr/lib/outstation/bin/python3 -I -m gateway.upgrade.guard --deadline 60 --steady 5\n"
)
"""The same guard, which does not wait for ten minutes."""

PREFERENCE = "/etc/apt/preferences.d/outstation-rolled-back.pref"
TAGS = "outstation/station/lisbon/upgrade"


@pytest.fixture
def package() -> Path:
    """The package that was built last."""
    found = sorted(DIST.glob("outstation_*_amd64.deb"), key=lambda path: path.stat().st_mtime)
    assert found, "try: make deb FAST=1"
    return found[-1]


async def record(machine: Machine) -> dict[str, Any]:
    """What the guard says of the last upgrade."""
    done = await machine.run("cat", "/var/cache/outstation/upgrade.json", check=False)
    return dict(json.loads(done.stdout)) if not done.returncode else {"state": ""}


async def ended(machine: Machine, version: str) -> dict[str, Any]:
    """Wait until the guard has decided about a version."""

    async def decided() -> dict[str, Any] | None:
        found = await record(machine)
        return found if found.get("after") == version and found["state"] not in ("watching", "rolling_back") else None

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
    async def here() -> bool:
        return (await machine.run("outstation", "spool", "status", check=False)).returncode == 0

    await until(here, SECONDS, "the gateway answers")


async def tags_of(machine: Machine) -> list[str]:
    text = await machine.said("outstation", "events", "--history", "100", "--no-follow", "--json")
    return [json.loads(line)["tag"] for line in text.splitlines()]


async def test_a_sick_version_gives_way_and_nothing_that_it_accepted_is_lost(
    bed: TestBed, package: Path, tmp_path: Path
) -> None:
    machine = await bed.machine("gateway")
    assert "Setting up" in await installed(machine, altered(package, "1.0", tmp_path))
    await machine.write(f"/etc/systemd/system/{GUARD}.d/quick.conf", QUICK)
    await machine.write("/etc/outstation/gateway.yaml", "name: lisbon\nbroker: {mode: service}\n")
    await machine.run("systemctl", "daemon-reload")
    await machine.sh(f"systemctl restart {GATEWAY} || {{ journalctl -u 'outstation-*' --lines 50; exit 1; }}")
    await answers(machine)
    await machine.run("outstation", "fire", "site/of/the/first")

    # A healthy one stays, and the one before it is kept.
    said = await installed(machine, altered(package, "1.1", tmp_path))
    assert "1.0 is kept in /var/cache/outstation/previous.deb" in said
    assert (await ended(machine, "1.1"))["state"] == "healthy"
    assert await version_of(machine) == "1.1"
    kept = await machine.said("dpkg-deb", "--show", "/var/cache/outstation/previous.deb")
    assert kept.split() == ["outstation", "1.0"]
    await answers(machine)
    await machine.run("outstation", "fire", "site/of/the/healthy")

    # One that cannot even be imported goes back, by itself.
    broken = altered(package, "1.2", tmp_path, {"gateway/station.py": "raise SystemExit('sick on purpose')\n"})
    await installed(machine, broken, check=False)
    back = await ended(machine, "1.2")
    assert (back["state"], back["before"], back["rollbacks"]) == ("rolled_back", "1.1", 1)
    assert GATEWAY in back["reason"]
    assert await version_of(machine) == "1.1"
    await answers(machine)
    assert "Pin: version 1.2" in (await machine.read(PREFERENCE)).decode()
    await until(lambda: _told(machine, f"{TAGS}/rolled_back"), SECONDS, "the event of it")
    assert "was taken back" in await machine.sh("outstation check || true")

    # One that works for a while, on a newer schema, and then is not healthy: what it accepted stays.
    sick = source_of(package, "gateway/api/station.py", tmp_path)
    asked = "async def _check(self, _: Asked) -> Answer:\n"
    assert asked in sick
    sick = sick.replace(asked, f"{asked}        raise ValueError('sick on purpose')\n")
    later = {"gateway/store/schema/099.sql": "CREATE TABLE later (a INTEGER);\n", "gateway/api/station.py": sick}
    await installed(machine, altered(package, "1.3", tmp_path, later))
    await answers(machine)
    assert await version_of(machine) == "1.3"
    await machine.run("outstation", "fire", "site/of/the/sick")
    back = await ended(machine, "1.3")
    assert (back["state"], back["before"], back["rollbacks"]) == ("rolled_back", "1.1", 2)
    assert "API does not answer" in back["reason"]
    await answers(machine)
    tags = await tags_of(machine)
    for tag in ("site/of/the/first", "site/of/the/healthy", "site/of/the/sick"):
        assert tags.count(tag) == 1, tags

    # It is decided once: the machine starts again, and nothing more happens.
    await machine.reboot()
    await answers(machine)
    assert await record(machine) == back
    assert await version_of(machine) == "1.1"

    # A later version is taken, and nothing is left of the one before when it is purged.
    await installed(machine, altered(package, "1.4", tmp_path))
    assert (await ended(machine, "1.4"))["state"] == "healthy"
    assert (await machine.run("test", "-e", PREFERENCE, check=False)).returncode == 1
    await machine.run("apt-get", "purge", "--yes", "outstation", seconds=SECONDS)
    assert await machine.sh("ls -d /var/cache/outstation 2>/dev/null || echo gone") == "gone"


async def _told(machine: Machine, tag: str) -> bool:
    return tag in await tags_of(machine)
