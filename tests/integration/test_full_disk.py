"""A full disk under a store: events give way and are counted, what must not be lost goes on, and it recovers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from device_agent.errors import StationFailed
from gateway.checks import disk as disk_check
from gateway.rooms import Rooms
from gateway.spool.ledger import entries, recount
from gateway.store.reserve import NAME, RESERVE_BYTES
from gateway.store.writer import StoreFailed
from tests.peers.database import opened_rooms
from tests.peers.small_disk import SmallDisk, small_disk
from tests.peers.waiting import until

BIG = {"text": "e" * 20_000}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as mounted:
        yield mounted


async def fire(rooms: Rooms, count: int = 1) -> None:
    for _ in range(count):
        await rooms.bus.fire([rooms.bus.event("a/tag", dict(BIG))])


async def dropped(rooms: Rooms) -> dict[str, dict[str, int]]:
    return {entry.name: entry.dropped for entry in await entries(rooms.reader) if entry.dropped}


async def assert_it_adds_up(rooms: Rooms, events: int) -> None:
    (entry,) = [entry for entry in await entries(rooms.reader) if entry.name == "events"]
    assert entry.accepted == events
    assert entry.accepted == entry.delivered + entry.pending + sum(entry.dropped.values())
    assert all(each.equal for each in await recount(rooms.spool.path))


async def test_events_give_way_and_are_counted_and_the_rest_goes_on_until_there_is_room(disk: SmallDisk) -> None:
    async with opened_rooms(disk.folder / "state", masters=True) as rooms:
        assert (disk.folder / "state" / NAME).stat().st_size == RESERVE_BYTES
        before = (await entries(rooms.reader))[1].accepted
        disk.fill()
        fired = 0
        while not rooms.reserve.is_scarce():
            await fire(rooms)
            fired += 1
            assert fired < 3000
        assert not (disk.folder / "state" / NAME).exists()
        await fire(rooms, 5)
        fired += 5
        # What tells its sender is refused and not counted: the sender has it.
        with pytest.raises(StoreFailed, match="full"):
            await rooms.bus.accept([rooms.bus.event("a/tag", {})])
        # What must not be lost is still committed, many times.
        for number in range(100):
            await rooms.writer.commit([("INSERT INTO spool_returns (body) VALUES (?)", [(b"r" * 1000,)])])
            await rooms.writer.commit([("DELETE FROM spool_returns WHERE sequence <= ?", [(number + 1,)])])
        await until(lambda: dropped(rooms))
        assert set((await dropped(rooms))["events"]) == {"disk_full"}
        (finding,) = await disk_check.check(rooms.facts)
        assert (finding.severity, finding.finding.split(":")[0]) == ("error", "full")
        disk.make_room()
        await until(lambda: not rooms.reserve.is_scarce())
        assert (disk.folder / "state" / NAME).stat().st_size == RESERVE_BYTES
        await fire(rooms)
        await assert_it_adds_up(rooms, before + fired + 1)
    async with opened_rooms(disk.folder / "state", masters=True) as rooms:
        await assert_it_adds_up(rooms, before + fired + 1)


async def test_a_station_starts_on_a_full_disk(disk: SmallDisk) -> None:
    async with opened_rooms(disk.folder / "state", masters=True) as rooms:
        await fire(rooms, 3)
    disk.fill()
    assert disk.free() == 0
    async with opened_rooms(disk.folder / "state", masters=True) as rooms:
        assert rooms.reserve.is_scarce()
        await rooms.writer.commit([("INSERT INTO station VALUES (?, 'x')", [("a",)])])
        await fire(rooms)
        await until(lambda: dropped(rooms))


async def test_without_any_room_and_without_a_reserve_the_start_fails_and_is_tried_again(disk: SmallDisk) -> None:
    async with opened_rooms(disk.folder / "state", masters=True):
        pass
    (disk.folder / "state" / NAME).unlink()
    disk.fill()
    with pytest.raises(StationFailed, match="full") as error:
        async with opened_rooms(disk.folder / "state", masters=True):
            pass
    # Not the status of wrong settings, after which nobody would start it again.
    assert error.value.exit_status == 1
    disk.make_room()
    async with opened_rooms(disk.folder / "state", masters=True):
        pass
