"""When there is no socket left, a link to a Salt master waits, says why, and is made when there is one again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
import zmq.asyncio

from device_agent.questions import Unanswered
from tests.peers.salt_sockets import PlayedMaster, ping
from tests.peers.salt_uplink_bed import SaltBed
from tests.peers.waiting import until
from upstream.salt.channel import Connections
from upstream.salt.subscription import Subscription

NOWHERE = "tcp://127.0.0.1:9"
MOST = 12
"""Sockets of the gateway's context. libzmq keeps some for itself."""


class FewSockets(zmq.asyncio.Context):
    """As on a machine on which nobody has a file left to open."""

    def __init__(self) -> None:
        super().__init__()
        self.set(zmq.MAX_SOCKETS, MOST)


@pytest.fixture
def context() -> Iterator[zmq.asyncio.Context]:
    with FewSockets() as context:
        yield context
        context.destroy(linger=0)


def taken(context: zmq.asyncio.Context, but: int = 0) -> list[zmq.asyncio.Socket]:
    """All sockets that are left, but so many."""
    found: list[zmq.asyncio.Socket] = []
    while True:
        try:
            found.append(context.socket(zmq.PAIR))
        except zmq.ZMQError:
            break
    for _ in range(but):
        found.pop().close(linger=0)
    return found


def given_back(found: list[zmq.asyncio.Socket]) -> None:
    while found:
        found.pop().close(linger=0)


async def are_left(context: zmq.asyncio.Context, count: int) -> None:
    """Return when there are so many: a socket that is closed is free a moment later."""

    def counted() -> bool:
        found = taken(context)
        left = len(found)
        given_back(found)
        return left == count

    await until(counted, what=f"{count} free sockets")


async def test_a_question_without_a_socket_is_not_answered_and_the_next_one_is_asked(
    context: zmq.asyncio.Context,
) -> None:
    answering = context.socket(zmq.REP)
    port = answering.bind_to_random_port("tcp://127.0.0.1")
    connections = Connections(context, f"tcp://127.0.0.1:{port}", at_once=1)
    hogged = taken(context)
    for _ in range(3):
        with pytest.raises(Unanswered, match="no connection can be made"):
            await connections.ask(b"?", 30.0)
    count = len(hogged)
    given_back(hogged)
    await are_left(context, count)

    async def answer() -> None:
        await answering.send(await answering.recv())

    async def asked() -> bytes | None:
        try:
            return await connections.ask(b"!", 30.0)
        except Unanswered as none:
            # Those that were counted are closed, and free a moment later.
            if "no connection can be made" not in str(none):
                raise
            return None

    async with asyncio.TaskGroup() as group:
        group.create_task(answer())
        assert await until(asked, what="an answer: its turn was given back each time") == b"!"
    connections.close()
    answering.close(linger=0)


@pytest.mark.parametrize("left", [0, 1, 2])
async def test_a_subscription_that_is_made_in_part_leaves_nothing_behind(
    left: int, context: zmq.asyncio.Context
) -> None:
    """It takes three: its own, and two by which it knows whether its line is up."""
    hogged = taken(context, but=left)

    for _ in range(3):
        await are_left(context, left)
        with pytest.raises(Unanswered, match="no connection can be made"):
            Subscription(context, NOWHERE)
    await are_left(context, left)
    given_back(hogged)


async def test_a_gateway_without_sockets_says_so_and_is_connected_when_there_are_some(
    master: PlayedMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = SaltBed(tmp_path)
    monkeypatch.setattr(zmq.asyncio, "Context", FewSockets)
    async with bed.uplink(master):
        context = bed.up._links._context
        assert context is not None
        hogged = taken(context)
        await until(lambda: "no connection can be made" in bed.up.status()["last_error"], what="why it waits")
        assert not bed.feed.active_ones
        given_back(hogged)
        await bed.connected(master)
        hogged = taken(context)
        await master.publish(ping(1))
        await until(lambda: bed.orders.taken, what="an order over the line that is up")
        given_back(hogged)
        assert bed.up.status()["state"] == "connected"
    assert not bed.refusals.reasons
