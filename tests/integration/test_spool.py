"""The spool: what still has to go up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from device_agent.protocol import limits
from device_agent.protocol.messages import (
    Close,
    Item,
    JobDefinition,
    OutcomeRecord,
    encode,
)
from device_agent.protocol.outcomes import Outcome
from gateway.jobs.expect import pages
from gateway.rooms import Rooms
from tests.peers.central import an_event
from tests.peers.database import FIRST_JID, a_job, encoded, look, opened_rooms, spooled

JID = str(FIRST_JID)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Rooms]:
    async with opened_rooms(tmp_path, masters=True) as rooms:
        yield rooms


async def spool(rooms: Rooms, *items: Item) -> None:
    await rooms.writer.commit(rooms.spool.adding(items))
    rooms.spool.added()


async def test_what_is_added_is_read_in_order_until_it_is_confirmed(gateway: Rooms) -> None:
    await spool(gateway, *(an_event(number) for number in range(5)))
    assert [sequence for sequence, _ in await gateway.spool.read(0)] == [1, 2, 3, 4, 5]
    assert [sequence for sequence, _ in await gateway.spool.read(3)] == [4, 5]
    await gateway.spool.confirm(3)
    assert [sequence for sequence, _ in await gateway.spool.read(0)] == [4, 5]
    assert await gateway.spool.pending() == 2
    await gateway.spool.confirm(3)
    await gateway.spool.confirm(5)
    assert (await gateway.spool.read(0), await gateway.spool.pending()) == ([], 0)


async def test_items_come_back_as_they_were(gateway: Rooms) -> None:
    items: list[Item] = [
        an_event(1),
        *pages(JID, "lisbon", ["a", "b"], 3, final=True),
        OutcomeRecord(jid=JID, site="lisbon", id="a", fun="f.f", outcome=Outcome.OK, value={"x": [1]}, ended=2.0),
        JobDefinition(encode(a_job()), "lisbon"),
        Close(jid=JID, site="lisbon", counts={"ok": 1}),
    ]
    await spool(gateway, *items)
    assert await spooled(gateway) == items
    kinds = look(gateway.writer._path, "SELECT kind FROM spool ORDER BY sequence")
    assert [kind for (kind,) in kinds] == ["event", "manifest", "outcomerecord", "jobdefinition", "close"]


async def test_a_batch_is_bounded_by_its_count(gateway: Rooms) -> None:
    await spool(gateway, *(an_event(number) for number in range(limits.BATCH_ITEMS + 3)))
    first = await gateway.spool.read(0)
    assert len(first) == limits.BATCH_ITEMS
    assert len(await gateway.spool.read(first[-1][0])) == 3


async def test_a_batch_is_bounded_by_its_bytes(gateway: Rooms) -> None:
    await spool(gateway, *(an_event(number, limits.BATCH_BYTES // 3) for number in range(5)))
    first = await gateway.spool.read(0)
    assert [sequence for sequence, _ in first] == [1, 2]
    assert sum(len(body) for _, body in first) <= limits.BATCH_BYTES
    assert [sequence for sequence, _ in await gateway.spool.read(2)] == [3, 4]


async def test_an_item_larger_than_a_batch_goes_alone(gateway: Rooms) -> None:
    await spool(gateway, an_event(1), an_event(2, limits.BATCH_BYTES), an_event(3))
    assert [sequence for sequence, _ in await gateway.spool.read(0)] == [1]
    assert [sequence for sequence, _ in await gateway.spool.read(1)] == [2]


async def test_no_sequence_is_ever_given_again(tmp_path: Path) -> None:
    epochs = set()
    for start in (1, 4, 7):
        async with opened_rooms(tmp_path, masters=True) as rooms:
            epochs.add(rooms.spool.epoch)
            await spool(rooms, *(an_event(number) for number in range(3)))
            assert [sequence for sequence, _ in await rooms.spool.read(0)] == [start, start + 1, start + 2]
            await rooms.spool.confirm(start + 2)
    assert len(epochs) == 1


async def test_what_waits_survives_a_restart(tmp_path: Path) -> None:
    async with opened_rooms(tmp_path, masters=True) as rooms:
        await spool(rooms, an_event(1), an_event(2))
        await rooms.spool.confirm(1)
    async with opened_rooms(tmp_path, masters=True) as rooms:
        assert await rooms.spool.read(0) == encoded(an_event(2), first=2)


async def test_whoever_sends_is_woken(gateway: Rooms) -> None:
    gateway.spool.changed.clear()
    await spool(gateway, an_event(1))
    assert gateway.spool.changed.is_set()


async def test_a_station_without_masters_keeps_nothing_for_them(tmp_path: Path) -> None:
    async with opened_rooms(tmp_path) as rooms:
        await spool(rooms, an_event(1))
        assert rooms.spool.adding_encoded([("event", b"x")]) == []
        assert await rooms.spool.pending() == 0
