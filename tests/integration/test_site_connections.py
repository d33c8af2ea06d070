"""Strangers at the port for sites: connections that never say hello take a bounded number of descriptors."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from typing import Any

import pytest
from zmq.utils.monitor import parse_monitor_message

from tests.peers.ports import SECONDS, Above
from tests.peers.rope import new_keys, played_site, sites_part
from tests.peers.waiting import until
from upstream import connection_watch, frames, site_connections

GREETING = b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\x00CURVE" + b"\0" * 15 + b"\0" + b"\0" * 31
"""The greeting of ZMTP 3.0 for CURVE (https://rfc.zeromq.org/spec/23/); no handshake follows."""

MOST = 20


@pytest.fixture(autouse=True)
def few_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port for 20 strangers."""
    monkeypatch.setattr(site_connections, "STRANGERS", MOST)


@contextmanager
def flood(address: str, count: int) -> Iterator[list[socket.socket]]:
    """Half-open connections."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    with ExitStack() as stack:
        held = []
        for _ in range(count):
            held.append(stack.enter_context(socket.create_connection((host, int(port)), timeout=SECONDS)))
            held[-1].sendall(GREETING)
        yield held


async def test_half_open_connections_give_way_to_newer_ones_and_a_site_goes_on() -> None:
    above, keys, mine = Above(), new_keys(), new_keys()
    above.states[mine.public] = "accepted"
    async with sites_part(above, keys) as sites:
        watched = sites._connections
        async with played_site(sites.address, keys.public, mine) as site:
            await site.hello()
            await site.hears(frames.SiteWelcome)
            with flood(sites.address, 10 * MOST):
                await until(lambda: above.reasons["too_many_connections"] >= 9 * MOST, what="they were ended")
                assert watched.strangers <= MOST
                assert await site.hears_nothing_before_the_echo() == []
                # Another site comes in through the flood.
                other = new_keys()
                above.states[other.public] = "accepted"
                async with played_site(sites.address, keys.public, other) as second:
                    await second.hello("madrid")
                    await second.hears(frames.SiteWelcome)
            await until(lambda: not watched.strangers, what="none is left")
            assert await site.hears_nothing_before_the_echo() == []


async def test_a_site_whose_hello_is_read_before_the_watch_hears_of_its_connection_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A busy machine may run the thread of the watch late, after the loop has read the hello."""
    hears = threading.Event()

    def late(message: list[bytes]) -> Any:
        assert hears.wait(SECONDS)
        return parse_monitor_message(message)

    monkeypatch.setattr(connection_watch, "parse_monitor_message", late)
    above, keys, mine = Above(), new_keys(), new_keys()
    above.states[mine.public] = "accepted"
    async with sites_part(above, keys) as sites:
        try:
            async with played_site(sites.address, keys.public, mine) as site:
                await site.hello()
                await site.hears(frames.SiteWelcome)
                hears.set()
                with flood(sites.address, 2 * MOST):
                    await until(lambda: above.reasons["too_many_connections"] >= MOST, what="they were ended")
                    assert await site.hears_nothing_before_the_echo() == []
        finally:
            hears.set()


async def test_one_site_has_one_connection_beside_those_of_strangers() -> None:
    """Its key lets it in; what counts is a hello, and the newest connection takes the place of the one before."""
    above, keys, mine = Above(), new_keys(), new_keys()
    above.states[mine.public] = "accepted"
    async with sites_part(above, keys) as sites, AsyncExitStack() as stack:
        many = [await stack.enter_async_context(played_site(sites.address, keys.public, mine)) for _ in range(MOST + 5)]
        for site in many[-3:]:
            await site.hello()
            await site.hears(frames.SiteWelcome)
        assert len(sites._peers) == 1
        await until(lambda: above.reasons["too_many_connections"] >= 2, what="the oldest have given way")
        assert sites._connections.strangers <= MOST
        assert await many[-1].hears_nothing_before_the_echo() == []


async def test_who_says_no_hello_in_time_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_connections, "PATIENCE_SECONDS", 3.0)
    above, keys, mine = Above(), new_keys(), new_keys()
    above.states[mine.public] = "accepted"
    async with sites_part(above, keys) as sites, played_site(sites.address, keys.public, mine) as site:
        await site.hello()
        await site.hears(frames.SiteWelcome)
        with flood(sites.address, 3) as held:
            await until(lambda: above.reasons["said_nothing"] == 3, what="they were ended")
            for one in held:
                while one.recv(1000):
                    pass
        assert await site.hears_nothing_before_the_echo() == []
        # What is no peer any more is a stranger again.
        sites._drop(next(iter(sites._peers.values())), "the test says so")
        await site.ended()


async def test_a_watch_ends_although_it_never_hears_that_the_monitor_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_watch, "LOOK_MILLISECONDS", 10)
    monkeypatch.setattr(connection_watch, "parse_monitor_message", lambda _: {"event": 0, "value": 0})
    async with sites_part(Above(), new_keys()) as sites:
        thread = sites._connections._thread
    assert thread is not None
    assert not thread.is_alive()
