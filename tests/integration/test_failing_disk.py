"""A store on a disk that fails: the check, the status line and the errors of commits name the disk, until it works."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from gateway.checks import disk as disk_check
from gateway.checks import store as store_check
from gateway.checks.finding import Finding
from gateway.rooms import Rooms
from gateway.service_status import sentence
from gateway.store.writer import StoreFailed
from tests.peers.database import opened_rooms
from tests.peers.disk_faults import failing_disk, store_files
from tests.peers.small_disk import small_disk
from tests.peers.waiting import until

ADD = "INSERT INTO station VALUES (?, 'x')"

WORDS = {
    "eio-write": "disk I/O error",
    "eio-sync": "disk I/O error",
    "full": "database or disk is full (no room is left at {folder})",
    "read-only": "disk I/O error",
    "no-memory": "disk I/O error",
}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store counts as mended after a moment."""
    monkeypatch.setattr("gateway.store.health.SETTLED_SECONDS", 0.3)
    monkeypatch.setattr("gateway.store.watch.LOOK_SECONDS", 0.1)


async def found(rooms: Rooms) -> Finding:
    return (await store_check.check(rooms.facts))[0]


async def add(rooms: Rooms, key: str) -> None:
    await rooms.writer.commit([(ADD, [(key,)])])


@pytest.mark.parametrize("kind", WORDS)
async def test_the_check_says_since_when_and_why_nothing_can_be_written(kind: str, tmp_path: Path) -> None:
    async with opened_rooms(tmp_path, masters=True) as rooms:
        await add(rooms, "before")
        assert (await found(rooms)).severity == "ok"
        with failing_disk(os.getpid(), kind, *store_files(tmp_path)):
            with pytest.raises(StoreFailed) as failed:
                await add(rooms, "meanwhile")
            assert failed.value.hint
            with pytest.raises(StoreFailed):
                await add(rooms, "and again")
            finding = await found(rooms)
            words = re.escape(WORDS[kind].format(folder=tmp_path))
            said = rf"nothing can be written since \d\d:\d\d:\d\d: {words} \(\d+ commits failed\)"
            assert finding.severity == "error"
            assert re.fullmatch(said, finding.finding), finding
            status = await sentence(rooms.facts, rooms.authority)
            assert "store: nothing can be written since" in status
        await until(lambda: rooms.writer.failing() is None, what="the disk counts as mended")
        assert (await found(rooms)).severity == "ok"
        await add(rooms, "after")
    async with opened_rooms(tmp_path, masters=True) as rooms:
        assert await rooms.reader.rows("SELECT key FROM station WHERE value = 'x' ORDER BY key") == [
            ("after",),
            ("before",),
        ]


async def test_a_disk_that_fails_now_and_then_stays_a_failing_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.store.health.SETTLED_SECONDS", 60.0)
    async with opened_rooms(tmp_path, masters=True) as rooms:
        with failing_disk(os.getpid(), "eio-write", *store_files(tmp_path)), pytest.raises(StoreFailed):
            await add(rooms, "first")
        since = rooms.writer.failing()
        assert since is not None
        await add(rooms, "second")
        assert "not everything can be written since" in (await found(rooms)).finding
        with failing_disk(os.getpid(), "eio-write", *store_files(tmp_path)), pytest.raises(StoreFailed):
            await add(rooms, "third")
        again = rooms.writer.failing()
        assert again is not None
        assert again.since == since.since


async def test_an_idle_station_finds_out_when_it_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.store.watch.OLD_SECONDS", -1.0)
    async with opened_rooms(tmp_path, masters=True) as rooms:
        with failing_disk(os.getpid(), "eio-sync", *store_files(tmp_path)):
            assert (await found(rooms)).severity == "error"


async def test_what_is_wrong_with_the_statements_is_no_fault_of_the_disk(tmp_path: Path) -> None:
    async with opened_rooms(tmp_path, masters=True) as rooms:
        with pytest.raises(StoreFailed):
            await rooms.writer.commit([("INSERT INTO station VALUES (NULL, ?)", [(object(),)])])
        assert rooms.writer.failures == 1
        assert rooms.writer.failing() is None


async def test_a_disk_without_inodes_is_named(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", inodes=300) as disk:
        async with opened_rooms(disk.folder / "state", masters=True) as rooms:
            left = os.statvfs(disk.folder).f_favail
            for number in range(left):
                (disk.folder / f"file-{number}").touch()
            findings = {each.about: each for each in await disk_check.check(rooms.facts)}
            assert findings["inodes"].severity == "error"
            assert findings["inodes"].finding.startswith("0 of ")
