"""upstream/salt/subscription.py: what is published is taken in whether or not somebody reads it, up to a bound."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import zmq
import zmq.asyncio

from tests.peers.waiting import until
from upstream.salt import subscription
from upstream.salt.subscription import Subscription

SIZE = 1024 * 1024


class Published:
    """A socket that publishes, and one that nobody reads yet."""

    def __init__(self, publisher: zmq.asyncio.Socket, heard: Subscription) -> None:
        self.heard = heard
        self.refused: Counter[str] = Counter()
        self._publisher = publisher

    async def publish(self, number: int) -> None:
        await self._publisher.send_multipart([b"broadcast", str(number).encode().ljust(SIZE)])

    async def send(self, frames: list[bytes]) -> None:
        await self._publisher.send_multipart(frames)

    async def read(self) -> int:
        return int((await self.heard.next())[1])

    def has_taken_in(self, count: int) -> bool:
        return len(self.heard._waiting) + self.refused.total() == count


@asynccontextmanager
async def subscribed() -> AsyncIterator[Published]:
    with zmq.asyncio.Context() as context:
        publisher = context.socket(zmq.XPUB)
        port = publisher.bind_to_random_port("tcp://127.0.0.1")
        found = Published(publisher, Subscription(context, f"tcp://127.0.0.1:{port}"))
        async with asyncio.TaskGroup() as group:
            reads = group.create_task(found.heard.take_in(lambda refusal: found.refused.update([refusal.reason])))
            while await publisher.recv() != b"\x01broadcast":
                pass
            try:
                yield found
            finally:
                reads.cancel()
                found.heard.close()
                found.heard._monitor.close(linger=0)
                publisher.close(linger=0)


async def test_what_nobody_reads_for_a_while_is_taken_in_and_read_in_its_order() -> None:
    async with subscribed() as published:
        for number in range(20):
            await published.publish(number)
            await until(partial(published.has_taken_in, number + 1))
        assert [await published.read() for _ in range(20)] == list(range(20))
    assert not published.refused


@pytest.mark.parametrize(("bound", "least"), [("WAITING", 5), ("WAITING_BYTES", 5 * SIZE + SIZE // 2)])
async def test_what_does_not_fit_is_counted_and_there_is_room_again_when_it_was_read(
    monkeypatch: pytest.MonkeyPatch, bound: str, least: int
) -> None:
    monkeypatch.setattr(subscription, bound, least)
    async with subscribed() as published:
        for number in range(8):
            await published.publish(number)
            await until(partial(published.has_taken_in, number + 1))
        assert published.refused == {"publishes_full": 3}
        assert [await published.read() for _ in range(5)] == list(range(5))
        await published.publish(8)
        assert await published.read() == 8


async def test_a_publish_of_many_frames_is_refused_and_counted() -> None:
    async with subscribed() as published:
        await published.send([b"broadcast", b"1", b"2"])
        await until(partial(published.has_taken_in, 1))
        await published.publish(3)
        assert await published.read() == 3
    assert published.refused == {"malformed": 1}
