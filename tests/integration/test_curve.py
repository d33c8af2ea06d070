"""The ZAP answerer on real sockets: libzmq asks it at every handshake, and no question may end it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import zmq
import zmq.asyncio

from tests.peers.clock import HandClock
from tests.peers.ports import SECONDS, Above
from tests.peers.rope import new_keys
from tests.peers.waiting import until
from upstream.curve import ZAP_ADDRESS, ZAP_DOMAIN, CurveKeys, ZapAnswerer, load_or_make

QUESTION = [b"1.0", b"7", ZAP_DOMAIN.encode(), b"192.0.2.1", b"", b"CURVE", b"k" * 32]


class Server:
    """A CURVE socket that asks the answerer, as the master's does."""

    def __init__(self, above: Above) -> None:
        self.keys = new_keys()
        self.above = above
        self.context = zmq.asyncio.Context()
        self.zap = ZapAnswerer(self.context, above, above, HandClock())
        self.zap.open()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.curve_server = True
        self.socket.curve_secretkey = self.keys.secret.encode()
        self.socket.zap_domain = ZAP_DOMAIN.encode()
        self.socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        self.socket.bind("tcp://127.0.0.1:*")

    @asynccontextmanager
    async def client(self, keys: CurveKeys) -> AsyncIterator[zmq.asyncio.Socket]:
        """A connection with these keys."""
        context = zmq.asyncio.Context()
        socket = context.socket(zmq.DEALER)
        socket.linger = 0
        socket.curve_serverkey = self.keys.public.encode()
        socket.curve_publickey, socket.curve_secretkey = keys.public.encode(), keys.secret.encode()
        socket.connect(self.socket.getsockopt_string(zmq.LAST_ENDPOINT))
        try:
            yield socket
        finally:
            context.destroy(linger=0)

    async def heard(self) -> tuple[bytes, str]:
        """The next message, and the key that ZAP put on it."""
        async with asyncio.timeout(SECONDS):
            *_, frame = await self.socket.recv_multipart(copy=False)
        return frame.bytes, str(frame.get("User-Id"))

    async def ask(self, *frames: bytes) -> list[bytes]:
        """A question as libzmq puts it; the answer."""
        asking = self.context.socket(zmq.REQ)
        asking.linger = 0
        asking.connect(ZAP_ADDRESS)
        try:
            async with asyncio.timeout(SECONDS):
                await asking.send_multipart(frames)
                answer: list[bytes] = await asking.recv_multipart()
                return answer
        finally:
            asking.close(linger=0)


@pytest.fixture
def above() -> Above:
    return Above()


@pytest.fixture
async def server(above: Above) -> AsyncIterator[Server]:
    made = Server(above)
    try:
        async with asyncio.TaskGroup() as group:
            answering = group.create_task(made.zap.run())
            yield made
            answering.cancel()
    finally:
        made.zap.close()
        made.context.destroy(linger=0)


async def test_every_message_carries_the_key_of_who_sent_it(server: Server) -> None:
    one, two = new_keys(), new_keys()
    async with server.client(one) as first, server.client(two) as second:
        await first.send(b"one")
        await second.send(b"two")
        assert {await server.heard(), await server.heard()} == {(b"one", one.public), (b"two", two.public)}


async def test_keys_from_a_file_are_keys_that_libzmq_takes(server: Server, tmp_path: Path) -> None:
    keys = load_or_make(tmp_path / "curve.key")
    async with server.client(keys) as client:
        await client.send(b"x")
        assert await server.heard() == (b"x", keys.public)


async def test_without_an_answer_nobody_is_let_in(above: Above) -> None:
    made = Server(above)
    try:
        async with made.client(new_keys()) as client:
            await client.send(b"too early")
            for _ in range(20):
                await asyncio.sleep(0)
            assert not await made.socket.poll(0)
            async with asyncio.TaskGroup() as group:
                answering = group.create_task(made.zap.run())
                assert (await made.heard())[0] == b"too early"
                answering.cancel()
    finally:
        made.zap.close()
        made.context.destroy(linger=0)


async def test_questions_that_make_no_sense_get_an_answer_and_the_next_one_too(server: Server) -> None:
    for frames in ([b"1.0", b"7"], [b"", b""], [b"\xff"] * 30, QUESTION[:6], [b"2.0", *QUESTION[1:]]):
        version, number, status, *_ = await server.ask(*frames)
        assert (version, number, status) == (b"1.0", frames[1], b"400")
    async with server.client(new_keys()) as client:
        await client.send(b"still here")
        assert (await server.heard())[0] == b"still here"


async def test_a_question_too_short_to_answer_does_not_end_it(server: Server) -> None:
    asking = server.context.socket(zmq.DEALER)
    asking.linger = 0
    asking.connect(ZAP_ADDRESS)
    for frames in ([b""], [b"", b"1.0"], [b"x"]):
        await asking.send_multipart(frames)
    assert (await server.ask(*QUESTION))[2] == b"200"
    asking.close(linger=0)


async def test_one_turned_away_by_the_rate_comes_in_at_a_later_try(above: Above, server: Server) -> None:
    clock = server.zap._clock
    assert isinstance(clock, HandClock)
    while (await server.ask(*QUESTION))[2] == b"200":
        pass
    keys = new_keys()
    async with server.client(keys) as client:
        await client.send(b"too early")
        await until(lambda: above.reasons["too_many_unknown_keys"] >= 2, what="the refusal")
    clock.move(1)
    async with server.client(keys) as client:
        await client.send(b"patient")
        assert await server.heard() == (b"patient", keys.public)
