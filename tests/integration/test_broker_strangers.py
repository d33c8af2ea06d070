"""The embedded broker runs inside the station: connections that say nothing must not take its descriptors."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from pathlib import Path

from gateway.broker import embedded_doors
from tests.peers.station import SECONDS
from tests.peers.walled import ada, embedded, knowing_two


async def test_strangers_at_the_embedded_broker_are_bounded_and_a_device_comes_in_after_them(tmp_path: Path) -> None:
    async with embedded(tmp_path) as broker:
        await knowing_two(broker)
        with ExitStack() as stack:
            held = [
                stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), timeout=SECONDS))
                for _ in range(embedded_doors.STRANGERS + 10)
            ]
            ended = await asyncio.to_thread(lambda: [_is_cut(one) for one in held[-10:]])
            assert all(ended)
        visitor = await ada(broker)
        try:
            assert visitor.inside
        finally:
            visitor.leave()


def _is_cut(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except ConnectionResetError:
        return True
