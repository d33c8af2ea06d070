"""A broker is told to read its files again only once it handles the signal, which would end it before."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.broker.hangup import hang_up

UNREADY = "print('runs', flush=True); input()"
READY = "import signal; signal.signal(signal.SIGHUP, lambda *_: print('reads', flush=True)); " + UNREADY


@asynccontextmanager
async def running(program: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdin=PIPE, stdout=PIPE)
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"runs\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_process_that_handles_the_signal_gets_it() -> None:
    async with running(READY) as process:
        assert hang_up(process.pid)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"reads\n"


async def test_a_process_that_does_not_handle_it_yet_goes_on() -> None:
    async with running(UNREADY) as process:
        assert not hang_up(process.pid)
        await process.communicate(b"end\n")
        assert process.returncode == 0


async def test_a_process_that_is_gone_is_told_nothing() -> None:
    async with running(UNREADY) as process:
        await process.communicate(b"end\n")
    assert not hang_up(process.pid)
