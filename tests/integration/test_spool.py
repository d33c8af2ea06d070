"""The spool: what still has to go up, in streams, and the ledger of what became of everything else."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from device_agent.clock import Clock
from device_agent.protocol import limits
from device_agent.protocol.messages import Close, Event, Item, JobDefinition, OutcomeRecord, decode_item, encode
from device_agent.protocol.outcomes import Outcome
from gateway.audit.deed import Deed
from gateway.fleet.rehearsed import RehearsedFleet
from gateway.jobs.expect import pages
from gateway.rooms import Rooms
from gateway.spool.budget import Budget, SpoolFull
from gateway.spool.ledger import Entry, recount
from gateway.spool.streams import CLASSES, Class
from gateway.store.migrate import steps
from gateway.store.writer import StoreFailed
from tests.peers.central import an_event
from tests.peers.database import FIRST_JID, a_job, encoded, look, opened_rooms, spooled
from tests.peers.waiting import until
from upstream.frames import STREAMS, Stream

JID = str(FIRST_JID)
MASTER = "k" * 40
SMALL_EVENTS = 150_000


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Rooms]:
    async with opened_rooms(tmp_path, masters=True) as rooms:
        yield rooms


def tagged(tag: str, number: int = 0, size: int = 0) -> Event:
    return msgspec.structs.replace(an_event(number, size), tag=tag)


async def spool(rooms: Rooms, *items: Item) -> None:
    await rooms.writer.commit(rooms.spool.adding(items))
    rooms.spool.added()


async def sequences(rooms: Rooms, stream: Stream = "events", after: int = 0) -> list[int]:
    return [sequence for sequence, _ in await rooms.spool.read(stream, after)]


async def entry(rooms: Rooms, name: Class = "events") -> Entry:
    """One class of the ledger, which is equal to its rows."""
    assert all(found.equal for found in await recount(rooms.spool.path))
    return next(found for found in await rooms.spool.entries() if found.name == name)


async def test_what_is_added_is_read_in_order_until_it_is_confirmed(gateway: Rooms) -> None:
    await spool(gateway, *(an_event(number) for number in range(5)))
    assert await sequences(gateway) == [1, 2, 3, 4, 5]
    assert await sequences(gateway, after=3) == [4, 5]
    await gateway.spool.confirm("events", 3, MASTER)
    assert await sequences(gateway) == [4, 5]
    assert await gateway.spool.pending() == 2
    await gateway.spool.confirm("events", 3, MASTER)
    await gateway.spool.confirm("events", 5, MASTER)
    assert (await gateway.spool.read("events", 0), await gateway.spool.pending()) == ([], 0)


async def test_items_come_back_as_they_were_in_the_streams_where_they_belong(gateway: Rooms) -> None:
    items: list[Item] = [
        tagged("site/alarm/door"),
        *pages(JID, "lisbon", ["a", "b"], 3, final=True),
        OutcomeRecord(jid=JID, site="lisbon", id="a", fun="f.f", outcome=Outcome.OK, value={"x": [1]}, ended=2.0),
        JobDefinition(encode(a_job()), "lisbon"),
        Close(jid=JID, site="lisbon", counts={"ok": 1}),
        tagged("state/door"),
        an_event(1),
        tagged("telemetry/load"),
    ]
    await spool(gateway, *items)
    assert await spooled(gateway) == items
    counts = [(await sequences(gateway, stream))[-1:] for stream in STREAMS]
    assert counts == [[1], [4], [1], [1], [], [1]]


async def test_what_goes_first_is_asked_before_each_batch(gateway: Rooms) -> None:
    await spool(gateway, an_event(1), tagged("telemetry/load"))
    assert await gateway.spool.next_stream({}) == "events"
    await spool(gateway, tagged("alarm/fire"))
    assert await gateway.spool.next_stream({}) == "urgent"
    assert await gateway.spool.next_stream({"urgent": 1}) == "events"
    assert await gateway.spool.next_stream({"urgent": 1, "events": 1}) == "telemetry"
    assert await gateway.spool.next_stream({"urgent": 1, "events": 1, "telemetry": 1}) is None


async def test_a_batch_is_bounded_by_its_count(gateway: Rooms) -> None:
    await spool(gateway, *(an_event(number) for number in range(limits.BATCH_ITEMS + 3)))
    first = await sequences(gateway)
    assert len(first) == limits.BATCH_ITEMS
    assert len(await sequences(gateway, after=first[-1])) == 3


async def test_a_batch_is_bounded_by_its_bytes(gateway: Rooms) -> None:
    await spool(gateway, *(an_event(number, limits.BATCH_BYTES // 3) for number in range(5)))
    first = await gateway.spool.read("events", 0)
    assert [sequence for sequence, _ in first] == [1, 2]
    assert sum(len(body) for _, body in first) <= limits.BATCH_BYTES
    assert await sequences(gateway, after=2) == [3, 4]
    assert [sequence for sequence, _ in await gateway.spool.read("events", 0, 10)] == [1]


async def test_an_item_larger_than_a_batch_goes_alone(gateway: Rooms) -> None:
    await spool(gateway, an_event(1), an_event(2, limits.BATCH_BYTES), an_event(3))
    assert await sequences(gateway) == [1]
    assert await sequences(gateway, after=1) == [2]


async def test_no_sequence_is_ever_given_again(tmp_path: Path) -> None:
    epochs = set()
    for start in (1, 4, 7):
        async with opened_rooms(tmp_path, masters=True) as rooms:
            epochs.add(rooms.spool.epoch)
            await spool(rooms, *(an_event(number) for number in range(3)))
            assert await sequences(rooms) == [start, start + 1, start + 2]
            await rooms.spool.confirm("events", start + 2, MASTER)
    assert len(epochs) == 1


async def test_what_waits_survives_a_restart_and_so_does_the_ledger(tmp_path: Path) -> None:
    async with opened_rooms(tmp_path, masters=True) as rooms:
        await spool(rooms, an_event(1), an_event(2))
        await rooms.spool.confirm("events", 1, MASTER)
    async with opened_rooms(tmp_path, masters=True) as rooms:
        assert await rooms.spool.read("events", 0) == encoded(an_event(2), first=2)
        found = await entry(rooms)
        assert (found.accepted, found.delivered, found.pending, found.dropped) == (2, 1, 1, {})


async def test_whoever_sends_is_woken(gateway: Rooms) -> None:
    gateway.spool.changed.clear()
    await spool(gateway, an_event(1))
    assert gateway.spool.changed.is_set()


async def test_a_station_without_masters_keeps_nothing_for_them(tmp_path: Path) -> None:
    async with opened_rooms(tmp_path) as rooms:
        await spool(rooms, an_event(1))
        assert rooms.spool.passed_on(an_event(1), b"x") == []
        assert await rooms.spool.pending() == 0


async def test_a_master_has_nobody_above_it_though_the_root_list_names_it_and_others(tmp_path: Path) -> None:
    fleet = RehearsedFleet(tmp_path / "fleet", Clock())
    fleet.add_master("central", tmp_path / "central", address="tcp://127.0.0.1:1")
    fleet.add_master("backup", tmp_path / "backup", address="tcp://127.0.0.1:2")
    async with opened_rooms(tmp_path / "backup", name="backup") as rooms:
        assert rooms.authority.masters()
        assert (rooms.masters(), rooms.spool.enabled) == ([], False)
        await spool(rooms, an_event(1))
        assert await rooms.spool.pending() == 0


async def test_a_master_is_told_how_much_it_has_confirmed_itself(gateway: Rooms) -> None:
    await spool(gateway, *(an_event(number) for number in range(5)))
    await gateway.spool.confirm("events", 2, MASTER)
    await gateway.spool.confirm("events", 5, "other")
    (row,) = [row for row in await gateway.spool.report(MASTER) if row.name == "events"]
    assert (row.accepted, row.delivered, row.pending, row.confirmed) == (5, 5, 0, 2)


async def test_the_newest_state_takes_the_place_of_the_one_before_it_that_was_not_handed_out(gateway: Rooms) -> None:
    await spool(gateway, tagged("state/door", 1), tagged("state/window", 2))
    await spool(gateway, tagged("state/door", 3))
    rows = await gateway.spool.read("state", 0)
    assert [decode_item(body) for _, body in rows] == [tagged("state/window", 2), tagged("state/door", 3)]
    assert (await entry(gateway)).dropped == {"coalesced": 1}
    # Both are under way now: what comes next is one more.
    await spool(gateway, tagged("state/door", 4))
    assert await sequences(gateway, "state") == [2, 3, 4]
    found = await entry(gateway)
    assert (found.accepted, found.pending, found.dropped) == (4, 3, {"coalesced": 1})


async def test_the_states_of_two_sites_are_two(gateway: Rooms) -> None:
    await spool(gateway, tagged("state/door"), msgspec.structs.replace(tagged("state/door"), site="porto"))
    assert len(await sequences(gateway, "state")) == 2


async def test_telemetry_and_events_give_way_oldest_first_and_it_is_counted(gateway: Rooms) -> None:
    gateway.spool.budget = Budget(dict.fromkeys(CLASSES, 100_000))
    for number in range(40):
        await spool(gateway, tagged("telemetry/load", number, 10_000), tagged("alarm/fire", number, 1_000))
    telemetry = await entry(gateway, "telemetry")
    assert telemetry.accepted == 40
    assert telemetry.pending_bytes <= 100_000
    assert telemetry.dropped == {"budget": 40 - telemetry.pending}
    assert await sequences(gateway, "telemetry") == list(range(41 - telemetry.pending, 41))
    events = await entry(gateway, "events")
    assert (events.pending, events.dropped) == (40, {})


async def test_history_gives_way_before_alarms(gateway: Rooms) -> None:
    gateway.spool.budget = Budget(dict.fromkeys(CLASSES, 100_000))
    for number in range(12):
        await spool(gateway, tagged("alarm/fire", number, 5_000))
        await spool(gateway, an_event(number, 10_000))
    assert len(await sequences(gateway, "urgent")) == 12
    assert len(await sequences(gateway, "events")) < 5
    while (await entry(gateway)).pending > 1:
        await spool(gateway, tagged("alarm/fire", 99, 90_000))
    assert await sequences(gateway, "events") == []


async def test_so_much_history_that_it_gives_way_in_steps_never_costs_an_alarm_or_a_state(gateway: Rooms) -> None:
    await spool(gateway, *(tagged("alarm/fire", number, 200) for number in range(50)), tagged("state/door", 1, 200))
    await spool(gateway, *(an_event(number) for number in range(SMALL_EVENTS)))
    most = (await entry(gateway)).pending_bytes // 10
    gateway.spool.budget = Budget(dict.fromkeys(CLASSES, most))
    await gateway.spool.open()
    for number in range(8):
        await spool(gateway, an_event(number))
        assert (len(await sequences(gateway, "urgent")), len(await sequences(gateway, "state"))) == (50, 1)
    found = await entry(gateway)
    assert most * 0.9 <= found.pending_bytes <= most
    assert found.dropped == {"budget": found.accepted - found.pending}


async def test_what_fits_does_not_give_way_for_what_a_newer_state_replaced(gateway: Rooms) -> None:
    await spool(gateway, *(an_event(number, 10_000) for number in range(9)))
    gateway.spool.budget = Budget(dict.fromkeys(CLASSES, (await entry(gateway)).pending_bytes + 2_000))
    await gateway.spool.open()
    for number in range(20):
        await spool(gateway, tagged("state/door", number, 500))
    found = await entry(gateway)
    assert (found.pending, found.dropped) == (10, {"coalesced": 19})


async def test_returns_are_refused_and_not_dropped_and_there_is_room_again_after_a_confirmation(gateway: Rooms) -> None:
    gateway.spool.budget = Budget(dict.fromkeys(CLASSES, 10_000))
    record = OutcomeRecord(jid=JID, site="lisbon", id="a", fun="f.f", outcome=Outcome.OK, value="x" * 4_000, ended=2.0)
    await spool(gateway, record, record)
    with pytest.raises(SpoolFull) as refused:
        gateway.spool.adding([record])
    assert (refused.value.where, refused.value.allowed) == ("spool.returns_megabytes", "10000 bytes")
    await gateway.spool.confirm("returns", 1, MASTER)
    await spool(gateway, record)
    found = await entry(gateway, "returns")
    assert (found.accepted, found.delivered, found.pending, found.dropped) == (3, 1, 2, {})


async def test_what_could_not_be_written_takes_no_room_for_long(gateway: Rooms) -> None:
    gateway.spool.budget = Budget(dict.fromkeys(CLASSES, 10_000))
    record = OutcomeRecord(jid=JID, site="lisbon", id="a", fun="f.f", outcome=Outcome.OK, value="x" * 4_000, ended=2.0)
    for _ in range(2):
        with pytest.raises(StoreFailed):
            await gateway.writer.commit([*gateway.spool.adding([record]), ("INSERT INTO nowhere VALUES (?)", [(1,)])])
    with pytest.raises(SpoolFull):
        gateway.spool.adding([record])

    def is_room() -> bool:
        try:
            return bool(gateway.spool.adding([record]))
        except SpoolFull:
            return False

    await until(is_room, what="room")


async def test_who_was_turned_away_is_in_the_audit_here_and_in_the_ledger_when_the_spool_has_no_room(
    gateway: Rooms,
) -> None:
    gateway.spool.budget = Budget(dict.fromkeys(CLASSES, 100))
    deed = Deed(user="eve", door="api", action="run", subject="*", verdict="deny", why="not granted")
    await gateway.audit.write([deed])
    await gateway.audit.write([deed])
    assert look(gateway.spool.path, "SELECT user, verdict FROM audit") == [("eve", "deny")] * 2
    found = await entry(gateway, "audit")
    assert (found.accepted, found.pending, found.dropped) == (2, 0, {"budget": 2})


async def test_a_recount_finds_a_ledger_that_is_wrong(gateway: Rooms) -> None:
    await spool(gateway, an_event(1), an_event(2))
    await gateway.writer.commit([("DELETE FROM spool_events WHERE sequence = ?", [(1,)])])
    assert [found.name for found in await recount(gateway.spool.path) if not found.equal] == ["events"]


async def test_what_waited_before_there_were_streams_is_taken_over(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "station.sqlite", isolation_level=None)) as older:
        for number, script in steps()[:6]:
            older.executescript(f"{script}\nPRAGMA user_version={number};")
    with closing(sqlite3.connect(tmp_path / "station.sqlite", isolation_level=None)) as store:
        store.executemany(
            "INSERT INTO spool (kind, body) VALUES (?, ?)",
            [("event", encode(an_event(1))), ("close", encode(Close(jid=JID, site="lisbon", counts={})))],
        )
    async with opened_rooms(tmp_path, masters=True) as rooms:
        assert await spooled(rooms) == [Close(jid=JID, site="lisbon", counts={}), an_event(1)]
        assert (await entry(rooms, "returns")).accepted == (await entry(rooms, "events")).accepted == 1
        assert look(rooms.spool.path, "SELECT count(*) FROM spool") == [(0,)]
