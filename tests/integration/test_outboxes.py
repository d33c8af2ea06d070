"""What a device says twice is taken once, by its outbox and sequence; what is new is never taken for a repeat."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from device_agent.protocol.links import Parcel
from device_agent.protocol.messages import Event, Hello, OutcomeRecord, Return, encode
from gateway.rooms import Rooms
from tests.peers.database import a_job, opened_rooms, spooled
from tests.peers.waiting import until

DEVICE = "cam"
OUTBOX, ANOTHER = b"outbox 1", b"outbox 2"


@asynccontextmanager
async def a_gateway(folder: Path, outbox: bytes = OUTBOX, oldest: int = 1) -> AsyncIterator[Rooms]:
    """A gateway with a device that says hello."""
    async with opened_rooms(folder / "lisbon", masters=True, working=True) as rooms:
        connect(rooms, outbox, oldest)
        yield rooms


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Rooms]:
    async with a_gateway(tmp_path) as rooms:
        yield rooms


def connect(rooms: Rooms, outbox: bytes = OUTBOX, oldest: int = 1) -> None:
    hello = Hello("0" * 16, "1", {"id": DEVICE}, outbox, oldest)
    rooms.registry.hello("mqtt", DEVICE, hello)
    rooms.collection.hello(DEVICE, hello)


async def given(rooms: Rooms, number: int = 0) -> str:
    now = rooms.sealer.now()
    job = a_job(number, issued=now, expires=now + 300)
    await rooms.acceptance.accept_from_above(Parcel(encode(job), ()), 300.0, "a master")
    return job.jid


async def said(rooms: Rooms, jid: str, sequence: int, outbox: bytes = OUTBOX, **changed: Any) -> None:
    """The device says it, and the gateway has put it on disk."""
    fields: dict[str, Any] = {"outcome": "ok", "value": True, "executions": 1, **changed}
    await rooms.collection.returned(
        DEVICE, Return(jid=jid, fun="test.ping", outbox=outbox, sequence=sequence, **fields), 10
    )
    await rooms.collection.drain()


def counted(rooms: Rooms, name: str) -> int:
    return rooms.metrics.counters[name]


async def outcomes(rooms: Rooms) -> list[str]:
    return [item.jid for item in await spooled(rooms) if isinstance(item, OutcomeRecord)]


async def test_a_repeat_is_known_without_its_job(gateway: Rooms) -> None:
    jid = await given(gateway)
    await said(gateway, jid, 1)
    for table in ("outcomes", "jobs"):
        # As after the time for which jobs are kept.
        await gateway.writer.commit([(f"DELETE FROM {table} WHERE jid = ?", [(jid,)])])
    await said(gateway, jid, 1)
    assert counted(gateway, "returns_repeated") == 1
    assert not gateway.metrics.peers
    assert await outcomes(gateway) == [jid]


async def test_a_repeat_is_known_after_the_gateway_started_anew(tmp_path: Path) -> None:
    async with a_gateway(tmp_path) as rooms:
        jid = await given(rooms)
        await said(rooms, jid, 7)
    async with a_gateway(tmp_path, oldest=7) as rooms:
        await rooms.writer.commit([("DELETE FROM outcomes WHERE jid = ?", [(jid,)])])
        await said(rooms, jid, 7)
        assert counted(rooms, "returns_repeated") == 1


async def test_a_late_return_is_one_event_however_often_it_is_said(gateway: Rooms) -> None:
    jid = await given(gateway)
    await said(gateway, jid, 1, outcome="unknown")
    for _ in range(3):
        await said(gateway, jid, 2)
    late = [item for item in await spooled(gateway) if isinstance(item, Event) and item.data.get("late")]
    assert len(late) == 1
    assert (counted(gateway, "returns_late"), counted(gateway, "returns_repeated")) == (1, 2)


async def test_a_device_that_lost_its_flash_is_not_taken_for_one_that_repeats_itself(gateway: Rooms) -> None:
    await said(gateway, await given(gateway), 1)
    connect(gateway, ANOTHER)
    jid = await given(gateway, 1)
    await said(gateway, jid, 1, ANOTHER)
    assert jid in await outcomes(gateway)
    assert (counted(gateway, "returns_repeated"), counted(gateway, "device_outboxes_renewed")) == (0, 1)


async def test_what_somebody_waits_for_is_taken_whatever_its_number(gateway: Rooms) -> None:
    """The row that the number stands for may be lost with a damaged file: the job is asked for again."""
    await said(gateway, await given(gateway), 1)
    jid = await given(gateway, 1)
    await said(gateway, jid, 1)
    assert jid in await outcomes(gateway)


async def test_what_the_device_says_is_over_is_not_a_gap(gateway: Rooms) -> None:
    for number in range(5):
        await said(gateway, await given(gateway, number), 100 * number + 1)
    connect(gateway, oldest=401)
    await said(gateway, await given(gateway, 5), 402)
    [(kept,)] = await gateway.reader.rows("SELECT length(taken) FROM outboxes WHERE device = ?", (DEVICE,))
    assert kept <= 8


async def test_a_commit_that_failed_takes_nothing(gateway: Rooms) -> None:
    jid = await given(gateway)
    hold = "CREATE TRIGGER hold BEFORE INSERT ON outboxes BEGIN SELECT RAISE(ABORT, 'held'); END"
    await gateway.writer.commit([(hold, [()])])
    message = Return(jid=jid, fun="test.ping", outcome="ok", value=True, executions=1, outbox=OUTBOX, sequence=1)
    await gateway.collection.returned(DEVICE, message, 10)
    await until(lambda: counted(gateway, "returns_not_committed"), what="the failure")
    await gateway.writer.commit([("DROP TRIGGER hold", [()])])
    await said(gateway, jid, 1)
    assert await outcomes(gateway) == [jid]
    assert counted(gateway, "returns_repeated") == 0
