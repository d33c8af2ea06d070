"""Look host names up in threads of their own, so that a silent name server delays no other work.

``getaddrinfo`` blocks its thread for 5 s and more for each name server that does not answer. The threads of an event
loop (its default executor, and the four of libuv) are shared: a few such lookups there stop everything that needs one.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

SECONDS: Final = 30.0
"""How long a caller waits. glibc asks each of three name servers twice, 5 s each time (resolv.conf(5))."""

ADDRESSES_MAX: Final = 8
"""Addresses of one name that are tried."""

DOUBTED_MAX: Final = 1024
"""Names whose last lookup failed that are remembered; the oldest is forgotten first."""

Address = tuple[int, tuple[Any, ...]]
"""An address family, and a socket address with its port."""

Find = Callable[[str], Sequence[Any]]


class NameUnknown(socket.gaierror):
    """A host name has no address, or no name server answered."""


class NameLookup:
    """The lookups of one owner. At most ``at_once`` threads; a name that is being looked up is not looked up twice.

    A name whose last lookup failed or took too long may use half of the threads at most, if there is more than one:
    names of a silent server do not keep a name in ``/etc/hosts`` waiting.
    """

    def __init__(self, at_once: int = 1, find: Find | None = None) -> None:
        self._at_once = at_once
        self._find = find
        self._running: dict[str, asyncio.Future[Sequence[Any] | OSError]] = {}
        self._doubted: dict[str, None] = {}
        self._ended = asyncio.Event()

    async def addresses(self, host: str, port: int, seconds: float | None = None) -> list[Address]:
        """The addresses of a host in the order of RFC 6724. Raises ``NameUnknown``.

        An address needs no lookup, and is returned at once.
        """
        with contextlib.suppress(OSError, UnicodeError):
            return _with_port(
                socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST), port
            )
        seconds = SECONDS if seconds is None else seconds
        try:
            async with asyncio.timeout(seconds):
                found = await self._look(host)
        except TimeoutError:
            self._doubt(host)
            words = f"no name server answered for {host} in {seconds:g} s"
            raise NameUnknown(socket.EAI_AGAIN, words) from None
        if isinstance(found, OSError):
            raise NameUnknown(found.errno or socket.EAI_NONAME, f"{host}: {found.strerror or found}")
        return _with_port(found, port)

    async def _look(self, host: str) -> Sequence[Any] | OSError:
        while host not in self._running:
            if len(self._running) < self._allowed(host):
                self._begin(host)
                break
            self._ended.clear()
            await self._ended.wait()
        # The lookup outlives a caller that gives up: the next one waits for the same answer.
        found = self._running[host]
        await asyncio.wait({found})
        return found.result()

    def _allowed(self, host: str) -> int:
        return self._at_once if host not in self._doubted else max(1, self._at_once // 2)

    def _doubt(self, host: str) -> None:
        self._doubted.pop(host, None)
        self._doubted[host] = None
        if len(self._doubted) > DOUBTED_MAX:
            del self._doubted[next(iter(self._doubted))]

    def _begin(self, host: str) -> None:
        loop = asyncio.get_running_loop()
        self._running[host] = loop.create_future()

        def look() -> None:
            found: Sequence[Any] | OSError
            try:
                found = (self._find or _find)(host)
            except OSError as error:
                found = error
            except ValueError:
                # What no name is: UnicodeError is one.
                found = OSError(f"{host[:64]!r} is no host name")
            with contextlib.suppress(RuntimeError):  # The loop is closed: the program has ended.
                loop.call_soon_threadsafe(self._end, host, found)

        # A daemon: a program that ends does not wait for a name server.
        try:
            threading.Thread(target=look, name=f"lookup/{host[:64]}", daemon=True).start()
        except RuntimeError:
            # The machine, or the unit, has no task left (pthread_create(3)).
            loop.call_soon(self._end, host, OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)))

    def _end(self, host: str, found: Sequence[Any] | OSError) -> None:
        if isinstance(found, OSError):
            self._doubt(host)
        else:
            self._doubted.pop(host, None)
        self._running.pop(host).set_result(found)
        self._ended.set()


def _find(host: str) -> Sequence[Any]:
    return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)


def _with_port(found: Sequence[Any], port: int) -> list[Address]:
    """Each address once, families in turn after the first one (RFC 8305, section 4)."""
    each = list(dict.fromkeys((int(family), (address[0], port, *address[2:])) for family, _, _, _, address in found))
    first = [entry for entry in each if entry[0] == each[0][0]]
    other = [entry for entry in each if entry[0] != each[0][0]]
    mixed = [entry for place in range(len(each)) for entry in (*first[place : place + 1], *other[place : place + 1])]
    return mixed[:ADDRESSES_MAX]
