"""A machine that dies in the middle of an upgrade: at its next start the guard makes the package whole by itself."""

from __future__ import annotations

from pathlib import Path

from tests.peers.altered_packages import altered
from tests.peers.machines import Machine, TestBed
from tests.peers.upgrading import SECONDS, answers, built, ended, make_lisbon, tags_of, version_of
from tests.peers.waiting import until

HERE = "/srv/it-is-here"
HANGS = f"if [ ! -e {HERE} ]; then : >{HERE}; sleep 1000000; fi\n"
"""For a script that hangs the first time, at a place of which the test is told."""

SLOW_PACKING = f'#!/bin/sh\ncase " $* " in *" --build "*)\n{HANGS};;\nesac\nexec /usr/bin/dpkg-deb "$@"\n'


async def cut(machine: Machine, package: Path, status: str) -> None:
    """Begin an upgrade; the machine dies in the middle of it and is started again. ``status`` is dpkg's then."""
    await machine.run("rm", "-f", HERE)
    there = f"/var/tmp/{package.name}"
    await machine.push(package, there)
    await machine.run("systemd-run", "--collect", "--setenv=DEBIAN_FRONTEND=noninteractive", "dpkg", "--install", there)

    async def in_the_middle() -> bool:
        return (await machine.run("test", "-e", HERE, check=False)).returncode == 0

    await until(in_the_middle, SECONDS, f"the middle of the upgrade to {package.name}")
    assert (await machine.said("dpkg-query", "--show", "--showformat=${Status}", "outstation")) == status
    await machine.kill()
    await machine.start()


async def whole(machine: Machine, version: str) -> None:
    """The package is, in that version, and apt takes others again; the gateway answers, and has what it had."""
    assert await version_of(machine) == version
    assert await machine.said("dpkg", "--audit") == ""
    assert await machine.said("dpkg", "--verify", "outstation") == ""
    await machine.run("apt-get", "check")
    await answers(machine)
    assert (await tags_of(machine)).count("site/before/the/night") == 1
    assert "half installed" not in await machine.sh("outstation check || true")


async def test_a_machine_that_dies_in_the_middle_of_an_upgrade_is_whole_again(bed: TestBed, tmp_path: Path) -> None:
    machine = await bed.machine("gateway")
    await make_lisbon(machine, altered(built(), "1.0", tmp_path))
    await machine.run("outstation", "fire", "site/before/the/night")

    # While the version that runs packs itself: nothing of the new one is there yet.
    await machine.write("/usr/local/bin/dpkg-deb", SLOW_PACKING, 0o755)
    await cut(machine, altered(built(), "1.1", tmp_path), "install reinstreq half-configured")
    told = await ended(machine, "1.1")
    assert (told["state"], told["rollbacks"]) == ("withdrawn", 0), told
    await whole(machine, "1.0")
    await machine.run("rm", "/usr/local/bin/dpkg-deb")

    # While files are replaced.
    preinst = altered(built(), "1.2", tmp_path, scripts={"preinst": HANGS})
    await cut(machine, preinst, "install reinstreq half-installed")
    told = await ended(machine, "1.2")
    assert (told["state"], told["rollbacks"]) == ("withdrawn", 0), told
    await whole(machine, "1.0")
    assert (await machine.run("ls", "/etc/apt/preferences.d/outstation-rolled-back.pref", check=False)).returncode

    # While the new version is set up: it is, at the next start, and is judged as any other.
    await cut(machine, altered(built(), "1.3", tmp_path, scripts={"postinst": HANGS}), "install ok half-configured")
    assert (await ended(machine, "1.3"))["state"] == "healthy"
    await whole(machine, "1.3")

    # Where nobody watches it is told, with what to type.
    await machine.run("rm", "-r", "/var/cache/outstation")
    await machine.run("systemctl", "mask", "outstation-upgrade-guard")
    await cut(machine, altered(built(), "1.4", tmp_path, scripts={"postinst": HANGS}), "install ok half-configured")
    await answers(machine)
    said = await machine.sh("outstation check || true")
    assert "1.4 is half installed" in said
    assert "sudo dpkg --configure -a" in said
    await machine.run("dpkg", "--configure", "-a", seconds=SECONDS)
    await whole(machine, "1.4")
