"""A version that is not healthy gives way to the one before it, on a booted machine and with dpkg itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peers.altered_packages import altered, source_of
from tests.peers.machines import Machine, TestBed
from tests.peers.upgrading import (
    GATEWAY,
    SECONDS,
    answers,
    built,
    ended,
    installed,
    make_lisbon,
    record,
    tags_of,
    version_of,
)
from tests.peers.waiting import until

PREFERENCE = "/etc/apt/preferences.d/outstation-rolled-back.pref"
TAGS = "outstation/station/lisbon/upgrade"


@pytest.fixture
def package() -> Path:
    return built()


async def test_a_sick_version_gives_way_and_nothing_that_it_accepted_is_lost(
    bed: TestBed, package: Path, tmp_path: Path
) -> None:
    machine = await bed.machine("gateway")
    await make_lisbon(machine, altered(package, "1.0", tmp_path))
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
