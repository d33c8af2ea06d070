"""How an upgrade ended, as the station tells it: an event once, a finding and a number."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.checks import upgrade
from gateway.rooms import Rooms
from gateway.upgrade import machine
from gateway.upgrade.news import UpgradeNews
from gateway.upgrade.record import PREVIOUS, Record, write
from tests.peers.database import look, opened_rooms

SICK = Record(
    id="a", state="rolled_back", before="1.0", after="1.1", at=1.0, reason="it failed", rollbacks=2, rejected=("1.1",)
)


def told(state: Path) -> list[str]:
    return [tag for (tag,) in look(state / "station.sqlite", "SELECT tag FROM events WHERE tag LIKE '%/upgrade/%'")]


def news_of(rooms: Rooms, folder: Path) -> UpgradeNews:
    return UpgradeNews(station="lisbon", writer=rooms.writer, reader=rooms.reader, bus=rooms.bus, folder=folder)


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
        ("failed", "install reinstreq half-installed", "apt install --reinstall ./outstation_1.1_*.deb"),
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
