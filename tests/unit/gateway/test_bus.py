"""gateway/bus.py: who hears what, and what becomes of an event when nobody keeps up or the disk is full."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from device_agent.protocol.messages import Event
from gateway import bus as bus_module
from gateway.api.door import NOBODY
from gateway.api.events import EventsApi
from gateway.api.operation import Asked
from gateway.bus import Bus
from gateway.metrics import Metrics
from gateway.spool.queue import Spool
from tests.peers.clock import STARTED_WALL, HandClock
from tests.peers.database import Store, opened_store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with opened_store(tmp_path) as opened:
        yield opened


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(HandClock())


@pytest.fixture
def bus(store: Store, metrics: Metrics) -> Bus:
    spool = Spool(store.writer, store.reader, store.epoch, enabled=True)
    return Bus(store.writer, store.reader, spool, metrics, HandClock(), "lisbon")


@pytest.fixture
def few_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that a test can reach."""
    monkeypatch.setattr(bus_module, "KEPT_EVENTS", 5)
    monkeypatch.setattr(bus_module, "PRUNE_EVERY", 10)


def numbered(bus: Bus, count: int, tag: str = "test/number") -> list[Event]:
    return [bus.event(f"{tag}/{number}", {"number": number}) for number in range(count)]


def waiting(queue: asyncio.Queue[Event]) -> list[str]:
    """The tags that wait in a queue."""
    return [queue.get_nowait().tag for _ in range(queue.qsize())]


async def test_a_subscriber_hears_what_matches_from_then_on(bus: Bus) -> None:
    await bus.fire([bus.event("salt/job/1/new", {})])
    with bus.subscribe("salt/job/*") as jobs, bus.subscribe("*") as everything:
        assert bus.listened
        await bus.fire([bus.event("salt/job/2/new", {}), bus.event("salt/auth", {})])
        assert waiting(jobs.queue) == ["salt/job/2/new"]
        assert waiting(everything.queue) == ["salt/job/2/new", "salt/auth"]
    assert not bus.listened


async def test_an_event_says_when_and_where_it_happened(bus: Bus) -> None:
    event = bus.event("test", {"a": 1})
    assert (event.stamp, event.site, event.data) == (STARTED_WALL, "lisbon", {"a": 1})


async def test_a_subscriber_that_is_slow_misses_events_and_they_are_counted(
    bus: Bus, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bus.subscribe("test/*") as slow, bus.subscribe("test/number/1?") as quick:
        slow.queue = asyncio.Queue(maxsize=10)
        bus.publish(numbered(bus, 25))
        assert slow.missed == 15
        assert metrics.counters["events_missed_slow_subscriber"] == 15
        assert waiting(slow.queue) == [f"test/number/{number}" for number in range(10)]
        # Nobody else misses anything for it.
        assert (quick.missed, quick.queue.qsize()) == (0, 10)


async def test_one_that_missed_events_is_told_how_many(bus: Bus) -> None:
    api = EventsApi(bus=bus, stopping=asyncio.Event())
    (operation,) = api.operations()
    answer: Any = await operation.handler(Asked(path={}, query={"tag": "test/*"}, body=None, operator=NOBODY))
    async with aclosing(answer) as lines:
        assert await anext(lines) is None
        (subscriber,) = bus._subscribers
        subscriber.queue = asyncio.Queue(maxsize=2)
        bus.publish(numbered(bus, 5))
        told = await anext(lines)
        assert (told["tag"], told["data"]) == ("outstation/missed", {"missed": 3})
        assert [(await anext(lines))["data"]["number"] for _ in range(2)] == [0, 1]
        bus.publish(numbered(bus, 3))
        assert (await anext(lines))["data"] == {"missed": 4}
    assert not bus.listened


async def test_what_is_heard_is_on_disk_and_on_its_way_up(bus: Bus, store: Store) -> None:
    with bus.subscribe("*") as subscriber:
        firing = [bus.event("test/kept", {"x": [1, "two", None]})]
        await bus.fire(firing)
        assert subscriber.queue.get_nowait() == firing[0]
    assert store.look("SELECT tag, site FROM events") == [("test/kept", "lisbon")]
    assert store.look("SELECT count(*) FROM spool_events") == [(1,)]
    assert await bus.history("*", 10) == firing


async def test_an_event_that_could_not_be_kept_is_counted_and_not_heard(
    bus: Bus, store: Store, metrics: Metrics
) -> None:
    await store.writer.commit([("DROP TABLE spool_events", [()])])
    with bus.subscribe("*") as subscriber:
        await bus.fire(numbered(bus, 3))
        assert subscriber.queue.empty()
    assert metrics.counters["events_lost_store"] == 3


async def test_the_history_is_the_newest_that_match_oldest_first(bus: Bus) -> None:
    await bus.fire(numbered(bus, 6, "a"))
    await bus.fire(numbered(bus, 6, "b"))
    assert [event.tag for event in await bus.history("a/*", 3)] == ["a/3", "a/4", "a/5"]
    assert [event.tag for event in await bus.history("nothing/*", 3)] == []


@pytest.mark.usefixtures("few_events")
async def test_only_the_newest_events_are_kept(bus: Bus, store: Store) -> None:
    for _ in range(3):
        await bus.fire(numbered(bus, 10))
    assert store.look("SELECT count(*), min(id), max(id) FROM events") == [(5, 26, 30)]


@pytest.mark.usefixtures("few_events")
async def test_old_events_that_cannot_be_let_go_stop_nobody(bus: Bus, store: Store, metrics: Metrics) -> None:
    await store.writer.commit(
        [("CREATE TRIGGER full BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'disk is full'); END", [()])]
    )
    with bus.subscribe("*") as subscriber:
        await bus.fire(numbered(bus, 20))
        await bus.fire(numbered(bus, 1))
        assert subscriber.queue.qsize() == 21
    assert store.look("SELECT count(*) FROM events") == [(21,)]


async def test_kept_events_are_read_on_from_any_number(bus: Bus) -> None:
    assert await bus.newest() == 0
    assert await bus.kept_after(0, "*") == ([], 0, 0, False)
    await bus.fire(numbered(bus, 4))
    assert await bus.newest() == 4
    page = await bus.kept_after(1, "test/number/[13]")
    assert ([(number, event.tag) for number, event in page.events], page.last) == (
        [(2, "test/number/1"), (4, "test/number/3")],
        4,
    )
    assert (page.gone, page.more) == (0, False)
    assert await bus.kept_after(4, "*") == ([], 4, 0, False)


@pytest.mark.usefixtures("few_events")
async def test_how_many_are_gone_before_a_page_is_known(bus: Bus) -> None:
    await bus.fire(numbered(bus, 30))
    page = await bus.kept_after(20, "*")
    assert (page.gone, [number for number, _ in page.events]) == (5, [26, 27, 28, 29, 30])


async def test_a_subscriber_is_woken_also_by_what_it_does_not_queue(bus: Bus) -> None:
    with bus.subscribe("test/*", queues=lambda event: event.tag.endswith("3")) as subscriber:
        bus.publish([bus.event("other", {})])
        assert not subscriber.heard.is_set()
        bus.publish(numbered(bus, 5))
        assert subscriber.heard.is_set()
        assert waiting(subscriber.queue) == ["test/number/3"]
