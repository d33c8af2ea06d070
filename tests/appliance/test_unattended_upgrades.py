"""Debian's unattended-upgrades brings the next version by itself, and leaves one alone that was taken back."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from tests.peers.altered_packages import altered
from tests.peers.appliance import packages
from tests.peers.machine_roots import SERVER, Recipe
from tests.peers.machines import Machine, TestBed
from tests.peers.upgrading import SECONDS, answers, ended, make_lisbon, record, tags_of, version_of

UNATTENDED = Recipe((*SERVER.packages, "unattended-upgrades"))
ARCHIVE = "/srv/apt"
SOURCE = f"deb [trusted=yes] file:{ARCHIVE} ./\n"
PERIODIC = 'APT::Periodic::Unattended-Upgrade "1";\n'
PATTERN = 'Unattended-Upgrade::Origins-Pattern { "origin=Example"; };\n'
"""What docs/upgrade.md says is written."""

LOG = "/var/log/unattended-upgrades/unattended-upgrades.log"
DPKG_LOG = "/var/log/unattended-upgrades/unattended-upgrades-dpkg.log"
EDITED = "# an administrator was here\n"


async def publish(machine: Machine, package: Path, folder: Path) -> None:
    """Put a package into the archive that the machine has its packages from, which a flat one is."""
    folder.mkdir(exist_ok=True)
    shutil.copy(package, folder)
    listed = subprocess.run(  # noqa: ASYNC221 - the test has nothing else to do
        ["dpkg-scanpackages", "--multiversion", "."], cwd=folder, capture_output=True, check=True, timeout=SECONDS
    ).stdout
    digest = hashlib.sha256(listed).hexdigest()
    release = f"Origin: Example\nSuite: stable\nCodename: stable\nSHA256:\n {digest} {len(listed)} Packages\n"
    await machine.push(package, f"{ARCHIVE}/{package.name}")
    await machine.write(f"{ARCHIVE}/Packages", listed)
    await machine.write(f"{ARCHIVE}/Release", release)


async def night(machine: Machine) -> str:
    """What happens at night, by the units of Debian; what was logged of it."""
    await machine.run("rm", "--force", LOG)
    await machine.run("apt-get", "update")
    # Once a day, it would say.
    await machine.run("rm", "--force", "/var/lib/apt/periodic/upgrade-stamp")
    await machine.run("systemctl", "start", "apt-daily-upgrade.service", seconds=SECONDS)
    return (await machine.read(LOG)).decode()


async def test_the_next_version_comes_at_night_and_one_that_was_taken_back_does_not_come_again(
    bed: TestBed, tmp_path: Path
) -> None:
    machine = await bed.machine("gateway", UNATTENDED)
    previous, current = packages()
    await make_lisbon(machine, previous)
    await machine.sh(f"printf '%s' '{EDITED}' >>/etc/outstation/gateway.yaml")
    await machine.run("outstation", "fire", "site/before/the/night")
    settings = await machine.read("/etc/outstation/gateway.yaml")
    await machine.write("/etc/apt/sources.list", SOURCE)
    await machine.write("/etc/apt/apt.conf.d/20auto-upgrades", PERIODIC)
    await machine.write("/etc/apt/apt.conf.d/52outstation", PATTERN)
    await publish(machine, current, tmp_path / "archive")

    log = await night(machine)
    assert "Packages that will be upgraded: outstation" in log, log
    assert "All upgrades installed" in log, log
    version = current.name.split("_")[1]
    assert (await ended(machine, version))["state"] == "healthy"
    assert await version_of(machine) == version
    said = (await machine.read(DPKG_LOG)).decode()
    assert f"Setting up outstation ({version})" in said
    assert "onfiguration file" not in said
    assert await machine.read("/etc/outstation/gateway.yaml") == settings
    await answers(machine)
    assert (await tags_of(machine)).count("site/before/the/night") == 1

    # A sick one is taken back, and not taken again; a later one is.
    sick = {"gateway/station.py": "raise SystemExit('sick on purpose')\n"}
    await publish(machine, altered(current, "9.1", tmp_path, sick), tmp_path / "archive")
    await night(machine)
    back = await ended(machine, "9.1")
    assert back["state"] == "rolled_back"
    assert await version_of(machine) == version
    log = await night(machine)
    assert "Packages that will be upgraded" not in log, log
    assert await record(machine) == back
    await publish(machine, altered(current, "9.2", tmp_path), tmp_path / "archive")
    await night(machine)
    assert (await ended(machine, "9.2"))["state"] == "healthy"
    await answers(machine)
    assert (await tags_of(machine)).count("site/before/the/night") == 1
