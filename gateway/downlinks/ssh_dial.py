"""A TCP connection to where a device is, and whether anybody is there: before anything is said on it by us."""

from __future__ import annotations

import asyncio
import socket


async def dial(host: str, port: int) -> socket.socket:
    """A connected socket, to the first address of the host that answers. Raises ``OSError``."""
    loop = asyncio.get_running_loop()
    failure: OSError | None = None
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        door = socket.socket(family, kind, protocol)
        try:
            door.setblocking(False)
            door.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(door, address)
        except OSError as error:
            door.close()
            failure = error
        except BaseException:
            door.close()
            raise
        else:
            return door
    raise failure or OSError(f"{host} has no address")


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
