"""Turn a master's address into one that ZeroMQ needs no name server for.

libzmq looks names up in its I/O thread, which all sockets of a context share: one silent name server would stop every
link. It also knows only the first address of a name.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from device_agent.dial import first_connected
from device_agent.name_lookup import Address, NameLookup
from upstream.dealer import LinkLost

NOTICE_SECONDS = 5.0
"""After this time without an address the others need not wait for this master."""


class Endpoints:
    """The endpoints of one link. ``CONNECT_SECONDS`` bounds the choice between several addresses of a name."""

    CONNECT_SECONDS = 10.0

    def __init__(self) -> None:
        self._lookup = NameLookup()
        self._given: Address | None = None
        self._failed: set[Address] = set()

    async def find(self, host: str, port: int, late: Callable[[str], object]) -> str:
        """Return the host as ZeroMQ writes an address: ``192.0.2.1`` or ``[2001:db8::1]``. Raises ``LinkLost``.

        Of several addresses it is the first that takes a connection; one that led to no answer comes last the next
        time. ``late`` is called with a reason when the name server has not answered after a while.
        """
        self._given = None
        words = f"the name {host} is not known yet: no name server has answered in {NOTICE_SECONDS:.0f} s"
        notice = asyncio.get_running_loop().call_later(NOTICE_SECONDS, late, words)
        try:
            found = await self._lookup.addresses(host, port)
        except OSError as error:
            raise LinkLost(f"no address: {error.strerror or error}") from None
        finally:
            notice.cancel()
        self._failed.intersection_update(found)
        if len(self._failed) == len(found):
            self._failed.clear()
        self._given = found[0]
        if len(found) > 1:
            self._given = await self._answering(sorted(found, key=self._failed.__contains__), host)
        place = str(self._given[1][0])
        return f"[{place}{_zone(self._given)}]" if self._given[0] == socket.AF_INET6 else place

    def failed(self) -> None:
        """The address that was given last led to no answer."""
        if self._given is not None:
            self._failed.add(self._given)

    async def _answering(self, addresses: list[Address], host: str) -> Address:
        try:
            async with asyncio.timeout(self.CONNECT_SECONDS):
                sock = await first_connected(addresses)
        except OSError as error:
            why = error.strerror or f"no answer in {self.CONNECT_SECONDS:.0f} s"
            raise LinkLost(f"none of the {len(addresses)} addresses of {host} takes a connection: {why}") from None
        with sock:
            peer = sock.getpeername()
        return next((each for each in addresses if each[1][:2] == peer[:2]), addresses[0])


def _zone(address: Address) -> str:
    """The interface of a link-local address; getaddrinfo of newer releases has it in the text already."""
    place = address[1]
    if "%" in place[0] or len(place) < 4 or not place[3]:
        return ""
    return f"%{socket.if_indextoname(place[3])}"


def split(address: str) -> tuple[str, int]:
    """The host and the port of ``tcp://HOST:PORT``. Raises ``LinkLost``."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    if not host or not port.isdigit():
        raise LinkLost(f"cannot connect to {address}: it is not tcp://HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)
