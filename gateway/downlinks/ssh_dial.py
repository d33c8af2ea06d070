"""Wait for the first word of whoever answers at a device's address, before anything is said by us."""

from __future__ import annotations

import asyncio
import socket


async def first_word(door: socket.socket) -> None:
    """Wait until the other side says something or hangs up. Nothing of it is taken.

    An SSH server speaks first (RFC 4253, section 4.2). The kernel of a device that hangs still takes connections.
    """
    loop = asyncio.get_running_loop()
    heard = loop.create_future()
    loop.add_reader(door.fileno(), lambda: None if heard.done() else heard.set_result(None))
    try:
        await heard
    finally:
        loop.remove_reader(door.fileno())
