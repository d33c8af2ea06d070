"""The listener of webhook engines: strangers who say nothing do not keep out a sender with the token."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.api import connection as connection_module
from gateway.engines.context import Context
from gateway.engines.listening import CONNECTIONS, Came, Door, listen
from gateway.engines.report import Report
from tests.peers.broker import free_port
from tests.peers.station import SECONDS
from tests.peers.waiting import until

TOKEN = "a-token-of-sixteen"


class Counts:
    """Stands for the report to the station."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, name: str, amount: int = 1) -> None:
        self.counts[name] += amount


@asynccontextmanager
async def listening(counts: Counts, folder: Path) -> AsyncIterator[int]:
    port = free_port()
    context = Context(name="hook", opts={}, api=folder, events=None, folder=folder, report=cast("Report", counts))

    async def take(came: Came) -> str:
        return f"{len(came.body)} bytes\n"

    async with asyncio.TaskGroup() as group:
        door = Door(address="127.0.0.1", port=port, token=TOKEN)
        serving = group.create_task(listen(context, door, take))
        await until(lambda: _answers(port), what="it listens")
        yield port
        serving.cancel()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=SECONDS).close()
    except ConnectionRefusedError:
        return False
    return True


def _sent(port: int, token: str) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("POST", "/", body=b"{}", headers={"Authorization": f"Bearer {token}"})
        with connection.getresponse() as response:
            response.read()
            return response.status
    finally:
        connection.close()


async def test_strangers_who_say_nothing_keep_no_sender_out_and_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "HEAD_SECONDS", 3.0)
    counts = Counts()
    async with listening(counts, tmp_path) as port:
        with ExitStack() as stack:
            held = [
                stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=SECONDS))
                for _ in range(2 * CONNECTIONS)
            ]
            assert await asyncio.to_thread(_sent, port, TOKEN) == 200
            assert await asyncio.to_thread(_sent, port, "wrong") == 401
            ended = await asyncio.to_thread(lambda: [_ended(one) for one in held])
            assert all(ended)
        assert counts.counts == {"received": 1, "refused_token": 1}


async def test_a_body_that_is_too_large_ends_the_connection(tmp_path: Path) -> None:
    counts = Counts()
    async with listening(counts, tmp_path) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            f"POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 9000000\r\n\r\n".encode()
            + b"x" * 1_100_000
        )
        async with asyncio.timeout(SECONDS):
            answer: Any = await reader.read()
        assert answer.startswith(b"HTTP/1.1 413")
        writer.close()
    assert counts.counts == {"refused_too_large": 1}


def _ended(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except ConnectionResetError:
        return True
