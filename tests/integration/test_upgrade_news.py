"""How an upgrade ended, as the station tells it: an event once, a finding and a number."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_agent.clock import Clock
from gateway.checks import upgrade
from gateway.rooms import Rooms
from gateway.upgrade import machine
from gateway.upgrade.judging import Unit
from gateway.upgrade.news import UpgradeNews
from gateway.upgrade.record import PREVIOUS, Record, write
from tests.peers.database import look, opened_rooms

SICK = Record(
    id="a", state="rolled_back", before="1.0", after="1.1", at=1.0, reason="it failed", rollbacks=2, rejected=("1.1",)
)


def told(state: Path) -> list[str]:
    return [tag for (tag,) in look(state / "station.sqlite", "SELECT tag FROM events WHERE tag LIKE '%/upgrade/%'")]


def news_of(rooms: Rooms, folder: Path) -> UpgradeNews:
    return UpgradeNews(station="lisbon", reader=rooms.reader, bus=rooms.bus, folder=folder)


async def test_a_rollback_is_one_event_whatever_restarts(tmp_path: Path) -> None:
    write(tmp_path, SICK)
    for _ in range(2):
        async with opened_rooms(tmp_path / "state") as rooms, news_of(rooms, tmp_path) as news:
            assert news.rollbacks() == {"upgrade_rollbacks": 2.0}
            await news.look()
    assert told(tmp_path / "state") == ["outstation/station/lisbon/upgrade/rolled_back"]


async def test_nothing_is_told_while_the_new_version_is_watched(tmp_path: Path) -> None:
    write(tmp_path, SICK.now("watching", 2.0))
    async with opened_rooms(tmp_path / "state") as rooms, news_of(rooms, tmp_path) as news:
        await news.look()
    assert told(tmp_path / "state") == []


@pytest.mark.parametrize(
    ("state", "severity", "words"),
    [
        ("keeping", "info", "the version that runs is being kept"),
        ("watching", "info", "the new version is being watched"),
        ("rolling_back", "info", "the version before is put back"),
        ("healthy", "ok", "1.0 is kept"),
        ("withdrawn", "ok", "1.0 is kept"),
        ("rolled_back", "warning", "was taken back: it failed"),
        ("failed", "error", "and so did the way back: it failed"),
    ],
)
async def test_each_end_is_a_finding(
    state: str, severity: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrade, "FOLDER", tmp_path)
    (tmp_path / PREVIOUS).touch()
    write(tmp_path, SICK.now(state, 2.0, "it failed"))
    async with opened_rooms(tmp_path / "state") as rooms:
        (finding,) = await upgrade.check(rooms.facts)
    assert finding.severity == severity
    assert words in finding.finding
    assert bool(finding.fix) == (severity in ("warning", "error"))


@pytest.mark.parametrize(
    ("state", "status", "fix"),
    [
        (None, "install ok half-configured", "dpkg --configure -a"),
        ("failed", "install ok unpacked", "dpkg --configure -a"),
        (
            "failed",
            "install reinstreq half-installed",
            "apt install --reinstall --allow-downgrades PATH-OF-THE-PACKAGE",
        ),
        ("watching", "install ok unpacked", ""),
        (None, "install ok installed", ""),
        (None, "deinstall ok config-files", ""),
        (None, "", ""),
    ],
)
async def test_a_package_that_is_half_installed_is_told_with_what_mends_it(
    state: str | None, status: str, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrade, "FOLDER", tmp_path)
    monkeypatch.setattr(machine, "package", lambda: (status, "1.1"))
    if state is not None:
        write(tmp_path, SICK.now(state, 2.0, "it failed"))
    async with opened_rooms(tmp_path / "state") as rooms:
        found = [each for each in await upgrade.check(rooms.facts) if each.about == "package"]
    assert [(each.severity, each.fix) for each in found] == ([("error", f"sudo {fix}")] if fix else [])


async def test_a_machine_without_an_upgrade_says_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade, "FOLDER", tmp_path)
    async with opened_rooms(tmp_path / "state") as rooms:
        assert await upgrade.check(rooms.facts) == []


@pytest.mark.parametrize(
    ("active", "told_of"), [("inactive", True), ("failed", True), ("active", False), ("unknown", False)]
)
async def test_an_upgrade_that_nobody_looks_at_is_told_and_so_is_its_half_package(
    active: str, told_of: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrade, "FOLDER", tmp_path)
    monkeypatch.setattr(machine, "package", lambda: ("install reinstreq half-installed", "1.1"))
    monkeypatch.setattr(machine, "is_busy", lambda: False)
    monkeypatch.setattr(machine, "unit", lambda name: Unit(active))
    write(tmp_path, SICK.now("rolling_back", 2.0, "it failed"))
    (tmp_path / PREVIOUS).touch()
    async with opened_rooms(tmp_path / "state") as rooms:
        found = await upgrade.check(rooms.facts)
    assert [each.severity for each in found] == (["warning", "error"] if told_of else ["info"])
    if told_of:
        assert found[0].fix == f"sudo systemctl start {upgrade.GUARD}"
        assert found[1].fix.endswith(f"--allow-downgrades {tmp_path / PREVIOUS}")
    # While a package manager works it is being replaced.
    monkeypatch.setattr(machine, "is_busy", lambda: True)
    async with opened_rooms(tmp_path / "state") as rooms:
        assert [each.severity for each in await upgrade.check(rooms.facts)] == ["info"]


async def test_no_file_is_named_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade, "FOLDER", tmp_path)
    write(tmp_path, SICK.now("failed", 2.0, "it failed"))
    async with opened_rooms(tmp_path / "state") as rooms:
        (finding,) = await upgrade.check(rooms.facts)
    assert finding.fix.endswith("PATH-OF-THE-PACKAGE")


@pytest.mark.parametrize(("ago", "severity"), [(60.0, "info"), (3600.0, "warning")])
async def test_while_the_old_version_is_packed_no_guard_is_missed(
    ago: float, severity: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrade, "FOLDER", tmp_path)
    monkeypatch.setattr(machine, "is_busy", lambda: False)
    monkeypatch.setattr(machine, "unit", lambda name: Unit("inactive"))
    write(tmp_path, SICK.now("keeping", Clock().wall() - ago))
    async with opened_rooms(tmp_path / "state") as rooms:
        first, *_ = await upgrade.check(rooms.facts)
    assert first.severity == severity
