"""What the runner ``http.query`` sends to whom, and that waiting for a stranger holds up nobody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest

from gateway.calls.call import CallFailed
from gateway.calls.running import Running
from gateway.runners.http import HttpRunner
from tests.peers.waiting import until

NOBODY = cast("Running", None)
"""The runner asks nothing of its call."""


@asynccontextmanager
async def played(answer: str | None) -> AsyncIterator[tuple[str, list[str]]]:
    """A server with one answer, or none at all: its address, and the heads of what it was asked."""
    asked: list[str] = []
    over = asyncio.Event()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        if answer is None:
            await over.wait()
        else:
            writer.write(answer.encode())
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
    finally:
        over.set()
        server.close()


async def query(url: str, **named: Any) -> dict[str, Any]:
    return await HttpRunner().query(NOBODY, url, **named)


async def test_a_password_goes_to_the_address_that_it_is_for_and_not_where_that_one_points() -> None:
    async with played("HTTP/1.0 200 OK\r\n\r\nthere") as (there, seen):
        async with played(f"HTTP/1.0 302 Found\r\nLocation: {there}/x\r\n\r\n") as (here, asked):
            given = {"username": "ada", "password": "hunter2", "header_dict": {"X-Key": "hunter3"}}
            assert (await query(here, **given))["body"] == "there"
        assert "Authorization: Basic" in asked[0]
        assert "X-Key: hunter3" in asked[0]
        assert not {"authorization", "x-key"} & {line.partition(":")[0].lower() for line in seen[0].splitlines()}


async def test_only_http_is_asked_though_an_answer_points_elsewhere() -> None:
    async with played("HTTP/1.0 302 Found\r\nLocation: ftp://127.0.0.1/x\r\n\r\n") as (here, _):
        assert (await query(here, status=True))["status"] == 302


async def test_one_who_does_not_answer_takes_no_thread_of_the_others() -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    async with played(None) as (here, asked), asyncio.TaskGroup() as group:
        waiting = group.create_task(query(here, timeout=300))
        async with asyncio.timeout(60):
            while not asked:
                await asyncio.to_thread(lambda: None)
        assert not waiting.done()
        waiting.cancel()


@pytest.mark.parametrize("head", ["", "HTTP/1.0 200 OK\r\n\r\n"], ids=["headers", "body"])
async def test_an_answer_that_drips_holds_no_thread_beyond_its_time(head: str) -> None:
    over = asyncio.Event()

    async def drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head.encode())
        with suppress(ConnectionError):
            while not over.is_set():
                writer.write(b"H")
                await writer.drain()
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await over.wait()
        writer.close()

    before = set(threading.enumerate())
    async with await asyncio.start_server(drips, "127.0.0.1", 0) as server:
        try:
            with pytest.raises(CallFailed, match=r"took longer than 0\.5 s"):
                await query(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout=0.5)
            await until(lambda: set(threading.enumerate()) <= before, what="the thread has ended")
        finally:
            over.set()
