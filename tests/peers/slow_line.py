"""A line that carries so many bytes in a second and no more, with a short queue before it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

TURNS = 100
"""In a second."""

QUEUE_BYTES = 16 * 1024
"""The kernel's buffers on both sides of it; it doubles the number."""


async def _carry(source: socket.socket, sink: socket.socket, at_once: int) -> None:
    loop = asyncio.get_running_loop()
    # Either end may be gone at any moment; then so is the line.
    with suppress(OSError):
        while body := await loop.sock_recv(source, at_once):
            await loop.sock_sendall(sink, body)
            await asyncio.sleep(len(body) / (at_once * TURNS))
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@asynccontextmanager
async def slow_line(address: str, bytes_per_second: int) -> AsyncIterator[str]:
    """The address of its near end; the far one is at ``address``."""
    loop = asyncio.get_running_loop()
    host, port = address.removeprefix("tcp://").rsplit(":", 1)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, QUEUE_BYTES)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    listener.setblocking(False)
    at_once = max(1, bytes_per_second // TURNS)

    async def join(near: socket.socket) -> None:
        with near, socket.socket() as far, suppress(OSError):
            near.setblocking(False)
            far.setblocking(False)
            far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, QUEUE_BYTES)
            await loop.sock_connect(far, (host, int(port)))
            async with asyncio.TaskGroup() as both:
                both.create_task(_carry(near, far, at_once))
                both.create_task(_carry(far, near, at_once))

    async with asyncio.TaskGroup() as connections:

        async def accept() -> None:
            while True:
                near, _ = await loop.sock_accept(listener)
                joined.append(connections.create_task(join(near)))

        joined = [connections.create_task(accept())]
        try:
            yield "tcp://{}:{}".format(*listener.getsockname())
        finally:
            for task in joined:
                task.cancel()
            listener.close()
