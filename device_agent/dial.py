"""Open a TCP connection to the first address of a host that takes one (RFC 8305, "Happy Eyeballs")."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Sequence
from typing import Final

from device_agent.name_lookup import Address, NameLookup

NEXT_SECONDS: Final = 0.25
"""After this time the next address is tried beside those before it (RFC 8305, section 5)."""


async def dial(host: str, port: int, lookup: NameLookup) -> socket.socket:
    """Return a connected socket that does not block. Raises ``OSError``. The caller bounds the time."""
    return await first_connected(await lookup.addresses(host, port))


async def first_connected(addresses: Sequence[Address]) -> socket.socket:
    """Return the first connection that any of the addresses takes. Raises ``OSError`` of the last that failed."""
    tries: list[asyncio.Task[socket.socket | OSError]] = []
    won: socket.socket | None = None
    failure = OSError("there is no address")
    try:
        async with asyncio.TaskGroup() as group:
            for number in range(len(addresses)):
                tries.append(group.create_task(_connected(addresses[number]), name="dial"))
                last = number == len(addresses) - 1
                won, failure = await _settled(tries, None if last else NEXT_SECONDS, failure)
                if won is not None:
                    break
            for each in tries:
                each.cancel()
    finally:
        for each in tries:
            if each.done() and not each.cancelled() and not each.exception():
                sock = each.result()
                if isinstance(sock, socket.socket) and sock is not won:
                    sock.close()
    if won is None:
        raise failure
    return won


async def _settled(
    tries: Sequence[asyncio.Task[socket.socket | OSError]], seconds: float | None, failure: OSError
) -> tuple[socket.socket | None, OSError]:
    """Wait for a connection for so long, or until every try has failed; the connection, and the last failure."""
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        for each in tries:
            if each.done():
                result = each.result()
                if isinstance(result, socket.socket):
                    return result, failure
                failure = result
        waiting = [each for each in tries if not each.done()]
        left = None if end is None else end - time.monotonic()
        if not waiting or (left is not None and left <= 0):
            return None, failure
        await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)


async def _connected(address: Address) -> socket.socket | OSError:
    family, place = address
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        return error
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, place)
    except OSError as error:
        sock.close()
        # asyncio's own words do not say what went wrong.
        return OSError(error.errno, os.strerror(error.errno)) if error.errno else error
    except BaseException:
        sock.close()
        raise
    return sock
