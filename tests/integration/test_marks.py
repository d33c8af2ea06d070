"""One honest gateway and one honest master, whatever is lost between them, are never taken for two of either."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.rooms import Rooms
from tests.peers.central import EPOCH, a_master
from tests.peers.clock import HandClock
from tests.peers.database import opened_rooms
from upstream import frames
from upstream.ports import Entry

KEY, ADDRESS = "north", "192.0.2.1"


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Rooms]:
    async with opened_rooms(tmp_path / "lisbon", masters=True) as rooms:
        yield rooms


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Rooms]:
    async with a_master(tmp_path / "central", "lisbon") as rooms:
        yield rooms


async def said(gateway: Rooms) -> frames.SiteHello:
    """The next hello of this gateway, which may never arrive."""
    marks, fresh = await gateway.marks.next(KEY)
    return frames.SiteHello(protocol=frames.PROTOCOL, site="lisbon", epoch=EPOCH, release="1", marks=marks, fresh=fresh)


async def judged(master: Rooms, hello: frames.SiteHello) -> Entry:
    """What the master makes of a hello; its welcome may be lost."""
    return await master.fence.judge("lisbon", hello, ADDRESS)


async def welcomed(gateway: Rooms, master: Rooms) -> None:
    """One hello that is answered."""
    entry = await judged(master, await said(gateway))
    assert entry == Entry()
    await gateway.marks.welcomed(KEY, "central")


def fenced_events(rooms: Rooms) -> list[str]:
    return [known.fenced for known in rooms.marks._known.values() if known.fenced]


async def test_a_hello_that_comes_after_the_one_that_was_said_later_is_not_a_copys(
    gateway: Rooms, master: Rooms
) -> None:
    await welcomed(gateway, master)
    late = await said(gateway)
    await welcomed(gateway, master)
    entry = await judged(master, late)
    assert entry.late
    assert not entry.refused
    await welcomed(gateway, master)
    assert (await judged(master, late)).late
    assert master.fence.view("lisbon") == {}
    await welcomed(gateway, master)


async def test_a_master_from_a_backup_sees_no_copy_in_the_gateway_that_it_let_in_again(
    gateway: Rooms, master: Rooms, tmp_path: Path
) -> None:
    await welcomed(gateway, master)
    shutil.copy(tmp_path / "central" / "station.sqlite", tmp_path / "old")
    shutil.copy(tmp_path / "central" / "station.sqlite-wal", tmp_path / "old-wal")
    await welcomed(gateway, master)
    (tmp_path / "restored").mkdir()
    for end in ("", "-wal"):
        shutil.move(tmp_path / f"old{end}", tmp_path / "restored" / f"station.sqlite{end}")
    async with a_master(tmp_path / "restored", "lisbon") as restored:
        with restored.bus.subscribe("outstation/site/*/twin") as listener:
            entry = await judged(restored, await said(gateway))
            assert entry.refused
            await gateway.marks.fenced(KEY, entry.mark, entry.refused)
            assert fenced_events(gateway) == []
            await welcomed(gateway, restored)
            assert listener.queue.qsize() == 0
        assert restored.fence.view("lisbon") == {}


async def test_a_copy_that_knocks_twice_is_told_of(gateway: Rooms, master: Rooms, tmp_path: Path) -> None:
    await welcomed(gateway, master)
    shutil.copytree(tmp_path / "lisbon", tmp_path / "copy")
    async with opened_rooms(tmp_path / "copy", masters=True) as copy:
        await welcomed(gateway, master)
        with master.bus.subscribe("outstation/site/*/twin") as listener:
            assert (await judged(master, await said(copy))).refused
            assert master.fence.view("lisbon")["count"] == 1
            assert (await judged(master, await said(copy))).refused
            assert listener.queue.qsize() == 1
        await welcomed(gateway, master)
        assert master.fence.view("lisbon")["count"] == 2


async def test_a_master_from_a_backup_of_the_moment_in_which_a_welcome_was_lost_is_told_from_a_clone(
    gateway: Rooms, master: Rooms
) -> None:
    await welcomed(gateway, master)
    lost = await said(gateway)
    assert await judged(master, lost) == Entry()
    for _ in range(100):
        await gateway.marks.next(KEY)
        await gateway.marks.welcomed(KEY, "central")
    # The master is put back to where it knew the mark of which the gateway never heard.
    await gateway.marks.fenced(KEY, lost.marks[-1], "another gateway runs with a copy of this store")
    assert fenced_events(gateway) == []
    await welcomed(gateway, master)


async def test_a_copy_that_was_stopped_is_no_finding_any_more_and_may_still_be_let_in(tmp_path: Path) -> None:
    clock = HandClock()
    async with (
        a_master(tmp_path / "central", "lisbon", clock=clock) as master,
        opened_rooms(tmp_path / "lisbon", masters=True, clock=clock) as gateway,
    ):
        await welcomed(gateway, master)
        shutil.copytree(tmp_path / "lisbon", tmp_path / "copy")
        async with opened_rooms(tmp_path / "copy", masters=True, clock=clock) as copy:
            await welcomed(gateway, master)
            assert (await judged(master, await said(copy))).refused
            await gateway.marks.twin(KEY, ADDRESS)
            clock.move(600.0)
            assert master.fence.view("lisbon")["count"] == 1
            assert len(gateway.marks.views()) == 1
            clock.move(3600.0)
            assert master.fence.view("lisbon") == {}
            assert gateway.marks.views() == []
            await master.fence.unfence("lisbon")
            entry = await judged(master, await said(copy))
            assert (entry.refused, entry.renew) == ("", True)
