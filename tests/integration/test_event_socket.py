"""Events for other processes: what a ZeroMQ reader hears, how it sees what it missed, and whom the socket is for."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
import zmq.asyncio

from device_agent.clock import stamp
from device_agent.errors import ConfigInvalid
from device_agent.parts import leaves
from gateway import event_socket
from gateway.bus import Bus
from gateway.event_socket import EventSocket, beside
from gateway.metrics import Metrics
from gateway.site_event import SiteEvent
from gateway.spool.queue import Spool
from tests.peers.clock import STARTED_WALL, HandClock
from tests.peers.database import Store, opened_store
from tests.peers.waiting import until

SECONDS = 60.0
LARGE = "x" * 60_000

Heard = tuple[str, dict[str, Any]]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with opened_store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(HandClock())


@pytest.fixture
def bus(store: Store, metrics: Metrics) -> Bus:
    spool = Spool(store.writer, store.reader, store.epoch, enabled=True)
    return Bus(store.writer, store.reader, spool, metrics, HandClock(), "lisbon")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "gateway-events.sock"


@pytest.fixture
async def published(bus: Bus, metrics: Metrics, path: Path) -> AsyncIterator[EventSocket]:
    async with EventSocket(path, bus=bus, metrics=metrics, queue=10) as part:
        yield part


class Reader:
    """Another process of this machine, as far as the socket can tell."""

    def __init__(self, line: zmq.asyncio.Socket) -> None:
        self._line = line

    async def next(self) -> Heard:
        """The next event: its tag and its data."""
        async with asyncio.timeout(SECONDS):
            tag, _, body = (await self._line.recv()).partition(b"\n\n")
        return tag.decode(), msgspec.msgpack.decode(body)

    def subscribe(self, prefix: bytes) -> None:
        """To one more beginning of tags."""
        self._line.subscribe(prefix)

    def unsubscribe(self, prefix: bytes) -> None:
        """And no more."""
        self._line.unsubscribe(prefix)

    async def until_tag(self, tag: str) -> list[Heard]:
        """Everything up to the event of this tag."""
        heard = [await self.next()]
        while heard[-1][0] != tag:
            heard.append(await self.next())
        return heard


@contextmanager
def a_reader(path: Path, *prefixes: bytes) -> Iterator[Reader]:
    """A subscriber; of a slow one next to nothing fits into its own queue."""
    with zmq.asyncio.Context() as context, context.socket(zmq.SUB) as line:
        line.linger = 0
        line.rcvhwm = 1
        line.connect(f"ipc://{path}")
        for prefix in prefixes:
            line.subscribe(prefix)
        yield Reader(line)


@asynccontextmanager
async def listening(path: Path, part: EventSocket, *prefixes: bytes) -> AsyncIterator[Reader]:
    """A reader whose subscriptions have come."""
    with a_reader(path, *prefixes) as reader:
        await until(lambda: set(prefixes) <= set(part._numbers) and part._subscriber, what="the subscription")
        yield reader


async def fire(bus: Bus, *tags: str, **data: Any) -> None:
    await bus.fire([bus.event(tag, data) for tag in tags])


async def test_an_event_of_a_site_has_its_origin_beside_its_data(bus: Bus, published: EventSocket, path: Path) -> None:
    async with listening(path, published, b"site/") as reader:
        bus.publish([SiteEvent.of(bus.event("site/door", {}), "lisbon/00/events/7"), bus.event("site/own", {})])
        assert (await reader.next())[1]["_origin"] == "lisbon/00/events/7"
        assert "_origin" not in (await reader.next())[1]


async def test_an_event_is_its_tag_two_newlines_and_salts_data(bus: Bus, published: EventSocket, path: Path) -> None:
    async with listening(path, published, b"salt/job/", b"salt/auth\n\n") as reader:
        await fire(bus, "salt/key", "salt/authors", "salt/job/1/new", "salt/auth", fun="test.ping", _stamp="made up")
        tag, data = await reader.next()
        assert tag == "salt/job/1/new"
        assert data == {
            "fun": "test.ping",
            "_stamp": stamp(STARTED_WALL),
            "_site": "lisbon",
            "_sequence": {"": 3, "salt/job/": 1},
        }
        assert (await reader.next())[1]["_sequence"] == {"": 4, "salt/auth\n\n": 1}


async def test_nothing_is_made_for_nobody(bus: Bus, published: EventSocket, path: Path) -> None:
    await until(lambda: not bus.listened, what="nobody")
    async with listening(path, published, b"a/", b"b/") as reader:
        reader.unsubscribe(b"a/")
        await until(lambda: b"a/" not in published._numbers, what="one of two subscriptions ended")
        assert bus.listened
        await fire(bus, "b/1")
        assert (await reader.next())[0] == "b/1"
    await until(lambda: not bus.listened, what="nobody listens any more")
    async with listening(path, published, b"") as reader:
        await fire(bus, "again")
        assert (await reader.next())[0] == "again"


async def test_a_reader_that_is_slow_sees_how_many_it_missed(bus: Bus, published: EventSocket, path: Path) -> None:
    async with listening(path, published, b"large/") as slow:
        for number in range(200):
            await fire(bus, f"large/{number}", value=LARGE)
            await fire(bus, f"other/{number}")
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(slow.until_tag("large/last"))

            async def told() -> bool:
                # What is fired now may still find no room: until one does.
                await fire(bus, "large/last")
                return reading.done()

            await until(told, what="the reader hears again")
        heard = reading.result()
        numbers = [data["_sequence"]["large/"] for _, data in heard]
        assert numbers == sorted(set(numbers))
        missed = numbers[-1] - len(numbers)
        assert missed > 0
        assert len(numbers) < 200
        assert bus._subscribers[0].missed == 0


async def test_what_the_bus_could_not_hand_over_is_a_gap_for_every_reader(
    bus: Bus, published: EventSocket, path: Path
) -> None:
    async with listening(path, published, b"a/", b"b/") as reader:
        await fire(bus, "a/1")
        assert (await reader.next())[1]["_sequence"]["a/"] == 1
        bus._subscribers[0].queue = asyncio.Queue(maxsize=2)
        bus.publish([bus.event("a/2", {}) for _ in range(5)])
        assert [(await reader.next())[1]["_sequence"]["a/"] for _ in range(2)] == [2, 3]
        await fire(bus, "b/1")
        assert (await reader.next())[1]["_sequence"]["b/"] == 4


async def test_only_so_many_subscriptions_are_numbered_and_the_others_hear_all_the_same(
    bus: Bus, metrics: Metrics, published: EventSocket, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_socket, "PREFIXES", 2)
    async with listening(path, published, b"a/", b"b/") as reader:
        reader.subscribe(b"c/")
        await until(lambda: metrics.refusals["events", "too_many_subscriptions"] == 1, what="it is counted")
        await fire(bus, "c/1")
        assert (await reader.next())[1]["_sequence"] == {"": 1}


async def test_what_speaks_no_zeromq_harms_nobody(bus: Bus, published: EventSocket, path: Path) -> None:
    for sent in (b"\x00" * 1000, b"GET / HTTP/1.1\r\n\r\n", b"\xff" + b"\x00" * 8 + b"\x7f" * 200):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(path))
            stranger.sendall(sent)
    async with listening(path, published, b"a/") as reader:
        await fire(bus, "a/1")
        assert (await reader.next())[0] == "a/1"


async def test_the_socket_is_for_its_owner_and_group_alone_and_goes_with_the_station(
    bus: Bus, metrics: Metrics, path: Path
) -> None:
    before = os.umask(0)
    try:
        async with EventSocket(path, bus=bus, metrics=metrics, queue=10):
            assert stat.S_ISSOCK(path.stat().st_mode)
            assert stat.S_IMODE(path.stat().st_mode) == 0o660
    finally:
        os.umask(before)
    assert not path.exists()


async def test_what_was_fired_before_the_end_is_told_before_it(bus: Bus, metrics: Metrics, path: Path) -> None:
    async with EventSocket(path, bus=bus, metrics=metrics, queue=1000) as part:
        with a_reader(path, b"") as reader:
            await until(lambda: bus.listened, what="the reader")
            bus.publish([bus.event(f"last/{number}", {}) for number in range(50)])
            await part.drain()
            assert (await reader.until_tag("last/49"))[-1][1]["_sequence"] == {"": 50}


async def test_a_file_that_nobody_answers_at_is_replaced(bus: Bus, metrics: Metrics, path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    async with EventSocket(path, bus=bus, metrics=metrics, queue=10) as part, listening(path, part, b"") as reader:
        await fire(bus, "a")
        assert (await reader.next())[0] == "a"


def too_long(path: Path) -> Path:
    return path.with_name("x" * 120)


def a_folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


@pytest.mark.parametrize("where", [too_long, a_folder])
async def test_a_path_that_cannot_be_a_socket_names_the_setting(
    where: Callable[[Path], Path], bus: Bus, metrics: Metrics, path: Path
) -> None:
    error = await refused(EventSocket(where(path), bus=bus, metrics=metrics, queue=10))
    assert (error.where, error.what) == ("events.socket", "the socket for events cannot be made")


@pytest.mark.usefixtures("published")
async def test_another_stations_socket_is_left_to_it(bus: Bus, metrics: Metrics, path: Path) -> None:
    error = await refused(EventSocket(path, bus=bus, metrics=metrics, queue=10, setting="socket"))
    assert (error.where, error.what) == ("socket", "another station answers at this socket")
    assert path.is_socket()


async def refused(part: EventSocket) -> ConfigInvalid:
    with pytest.raises(BaseException) as raised:
        async with part:
            pass
    (error,) = leaves(raised.value)
    assert isinstance(error, ConfigInvalid)
    return error


def test_it_is_beside_the_socket_of_the_api_where_there_is_room() -> None:
    assert beside(Path("/run/outstation/gateway.sock")) == Path("/run/outstation/gateway-events.sock")
    assert beside(Path("/" + "x" * 101)) is None


async def test_a_user_with_too_many_readers_loses_the_newest_and_keeps_the_oldest(
    bus: Bus, metrics: Metrics, published: EventSocket, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_socket, "READERS", 5)
    async with listening(path, published, b"salt/") as reader:
        more = [socket.socket(socket.AF_UNIX) for _ in range(10)]
        try:
            for one in more:
                one.settimeout(SECONDS)
                one.connect(str(path))
            await until(lambda: metrics.refusals["events", "too_many_connections"] == 6, what="they were ended")
            await fire(bus, "salt/job/1/new")
            assert (await reader.next())[0] == "salt/job/1/new"
        finally:
            for one in more:
                one.close()
