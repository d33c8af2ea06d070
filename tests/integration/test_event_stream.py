"""Server-sent events over a real socket: what a listener is told, and how he goes on where he was."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from device_agent.clock import stamp
from device_agent.protocol.messages import OutcomeRecord
from device_agent.protocol.outcomes import Outcome
from gateway import bus as bus_module
from gateway.api import event_stream, events
from gateway.api.server import ApiServer
from gateway.bus import Bus
from gateway.jobs.record import return_event
from gateway.rooms import Rooms
from tests.peers.clock import STARTED_WALL, HandClock
from tests.peers.database import opened_rooms
from tests.peers.waiting import until

SECONDS = 60.0
JID = "20261121031500000001"


@dataclass
class Told:
    """One piece of a stream, by the fields that the standard names."""

    fields: dict[str, str] = field(default_factory=dict)

    @property
    def data(self) -> Any:
        """What its data says."""
        return json.loads(self.fields["data"])


class Listener:
    """A client that reads a stream field by field (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self.head: dict[str, str] = {}

    async def begin(self) -> None:
        """Read the head, and the first word of the stream."""
        async with asyncio.timeout(SECONDS):
            while line := (await self._reader.readline()).strip():
                name, _, value = line.decode().partition(": ")
                self.head[name.lower()] = value
        assert (await self.next()).fields == {"retry": "1000"}

    async def next(self) -> Told:
        """The next piece; a comment is one with the field of no name."""
        told = Told()
        async with asyncio.timeout(SECONDS):
            while line := (await self._reader.readline()).decode().rstrip("\n"):
                name, _, value = line.partition(":")
                assert name not in told.fields
                told.fields[name] = value.removeprefix(" ")
        return told

    async def ended(self) -> bool:
        """Whether nothing more comes."""
        async with asyncio.timeout(SECONDS):
            return not await self._reader.read(1)


@dataclass
class Served:
    """A station's bus behind its API."""

    rooms: Rooms
    path: Path

    @property
    def bus(self) -> Bus:
        """Where events are fired."""
        return self.rooms.bus

    async def fire(self, *tags: str) -> None:
        """Events with nothing in them but their number."""
        await self.bus.fire([self.bus.event(tag, {"n": number}) for number, tag in enumerate(tags)])

    @asynccontextmanager
    async def listening(self, query: str = "tag=test/*", last_id: str | None = None) -> AsyncIterator[Listener]:
        """Somebody who listens."""
        reader, writer = await asyncio.open_unix_connection(str(self.path))
        again = "" if last_id is None else f"Last-Event-ID: {last_id}\r\n"
        writer.write(f"GET /events?{query} HTTP/1.0\r\nAccept: text/event-stream\r\n{again}\r\n".encode())
        listener = Listener(reader)
        await listener.begin()
        try:
            yield listener
        finally:
            writer.close()
            await writer.wait_closed()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    stopping = asyncio.Event()
    async with AsyncExitStack() as stack:
        rooms = await stack.enter_async_context(opened_rooms(tmp_path / "state", clock=HandClock()))
        path = tmp_path / "api.sock"
        await stack.enter_async_context(ApiServer(path, rooms.operations(stopping), on_stop=stopping.set))
        yield Served(rooms, path)


def a_return(bus: Bus, device: str = "cam-1") -> Any:
    record = OutcomeRecord(
        jid=JID,
        site=bus.site,
        id=device,
        fun="test.ping",
        outcome=Outcome.OK,
        retcode=0,
        value=True,
        why="",
        seen=None,
        ended=STARTED_WALL,
    )
    return return_event(record, None)


async def test_an_event_has_an_id_and_salts_data_on_one_line(served: Served) -> None:
    async with served.listening() as listener:
        assert listener.head["content-type"] == "text/event-stream; charset=utf-8"
        assert listener.head["cache-control"] == "no-store"
        await until(lambda: served.bus.listened, what="the listener")
        await served.bus.fire([served.bus.event("test/a", {"text": "one\ntwo\r\u2028", "_stamp": "made up"})])
        told = await listener.next()
        assert told.fields["id"] == f"{served.bus.epoch}-1"
        when = stamp(STARTED_WALL)
        data = {"text": "one\ntwo\r\u2028", "_stamp": when}
        assert told.data == {"tag": "test/a", "data": data, "_stamp": when, "site": "lisbon"}


async def test_whoever_comes_back_hears_what_he_missed_once_and_then_the_rest(served: Served) -> None:
    await served.fire("test/0", "test/1", "other/2", "test/3")
    async with served.listening(last_id=f"{served.bus.epoch}-1") as listener:
        assert [(await listener.next()).data["tag"] for _ in range(2)] == ["test/1", "test/3"]
        await served.fire("test/4")
        told = await listener.next()
        assert (told.data["tag"], told.fields["id"]) == ("test/4", f"{served.bus.epoch}-5")


async def test_it_begins_with_the_newest_kept_ones_when_asked_and_ends_when_nobody_waits(served: Served) -> None:
    await served.fire("test/0", "test/1", "other/2", "test/3", "other/4")
    async with served.listening("tag=test/*&history=2&follow=false") as listener:
        assert [(await listener.next()).data["tag"] for _ in range(2)] == ["test/1", "test/3"]
        assert await listener.ended()


@pytest.mark.parametrize("last_id", ["0123456789abcdef-1", "1", "-1", "x" * 5000, "{epoch}-99", "{epoch}-1e3"])
async def test_an_id_of_another_store_is_a_gap_of_unknown_size(served: Served, last_id: str) -> None:
    await served.fire("test/0")
    async with served.listening(last_id=last_id.replace("{epoch}", served.bus.epoch)) as listener:
        told = await listener.next()
        assert told.fields["event"] == "missed"
        assert told.data == {"missed": None, "why": "the id is none of this station's store"}
        await served.fire("test/1")
        assert (await listener.next()).data["tag"] == "test/1"


async def test_what_is_no_longer_kept_is_counted(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_module, "KEPT_EVENTS", 2)
    await served.fire(*(f"test/{number}" for number in range(10)))
    await served.bus.prune()
    async with served.listening(last_id=f"{served.bus.epoch}-3") as listener:
        told = await listener.next()
        assert (told.fields["event"], told.data["missed"]) == ("missed", 5)
        assert [(await listener.next()).data["tag"] for _ in range(2)] == ["test/8", "test/9"]


async def test_more_than_a_page_comes_whole_and_in_order(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_module, "HISTORY_PAGE", 3)
    await served.fire("test/first")
    await served.fire(*(f"test/{number}" for number in range(10)))
    async with served.listening(last_id=f"{served.bus.epoch}-1") as listener:
        assert [(await listener.next()).data["data"]["n"] for _ in range(10)] == list(range(10))


async def test_a_return_comes_live_without_an_id(served: Served) -> None:
    async with served.listening("tag=salt/job/*") as listener:
        await until(lambda: served.bus.listened, what="the listener")
        served.bus.publish([a_return(served.bus)])
        told = await listener.next()
        assert (told.data["tag"], set(told.fields)) == (f"salt/job/{JID}/ret/cam-1", {"data"})
        late = a_return(served.bus)
        await served.bus.fire([served.bus.event(late.tag, {**late.data, "late": True})])
        told = await listener.next()
        assert (told.data["data"]["late"], told.fields["id"]) == (True, f"{served.bus.epoch}-1")
        await served.bus.fire([served.bus.event(f"salt/job/{JID}/close", {})])
        assert (await listener.next()).data["tag"] == f"salt/job/{JID}/close"


async def test_returns_that_found_no_room_are_counted_where_they_are_missing(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_module, "SUBSCRIBER_EVENTS", 2)
    monkeypatch.setattr(event_stream, "SUBSCRIBER_EVENTS", 2)
    async with served.listening("tag=salt/job/*") as listener:
        await until(lambda: served.bus.listened, what="the listener")
        served.bus.publish([a_return(served.bus, f"cam-{number}") for number in range(5)])
        assert [(await listener.next()).data["data"]["id"] for _ in range(2)] == ["cam-0", "cam-1"]
        told = await listener.next()
        assert (told.fields["event"], told.data) == ("missed", {"missed": 3, "why": "the listener is slow"})


async def test_a_comment_keeps_a_quiet_stream_alive(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "KEEPALIVE_SECONDS", 0.01)
    async with served.listening() as listener:
        assert (await listener.next()).fields == {"": ""}


async def test_one_who_goes_away_is_forgotten(served: Served) -> None:
    async with served.listening():
        await until(lambda: served.bus.listened, what="the listener")
    await until(lambda: not served.bus.listened, what="it is forgotten")
