"""device_agent/name_lookup.py, dial.py: a silent name server delays its own name only; addresses are tried together."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from device_agent import dial as dial_module
from device_agent import name_lookup
from device_agent.dial import dial, first_connected
from device_agent.name_lookup import NameLookup, NameUnknown
from tests.peers.waiting import until

V4, V6 = socket.AF_INET, socket.AF_INET6


class NameServer:
    """Answers for the names it knows; any other name blocks its thread until the test ends."""

    def __init__(self, **names: Sequence[tuple[int, str]]) -> None:
        self.names = {name.replace("_", "."): found for name, found in names.items()}
        self.asked: list[str] = []
        self.free = threading.Event()

    def find(self, host: str) -> Sequence[Any]:
        self.asked.append(host)
        if host not in self.names:
            assert self.free.wait(30)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        if not self.names[host]:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        tail: dict[int, tuple[int, ...]] = {V4: (0,), V6: (0, 0, 0)}
        return [(family, socket.SOCK_STREAM, 6, "", (text, *tail[family])) for family, text in self.names[host]]


@pytest.fixture
def server() -> Iterator[NameServer]:
    found = NameServer(good_example=[(V4, "192.0.2.1")], none_example=[])
    yield found
    found.free.set()


async def test_an_address_needs_no_lookup(server: NameServer) -> None:
    lookup = NameLookup(1, server.find)
    assert await lookup.addresses("192.0.2.7", 22) == [(V4, ("192.0.2.7", 22))]
    assert await lookup.addresses("2001:db8::7", 22) == [(V6, ("2001:db8::7", 22, 0, 0))]
    assert server.asked == []


async def test_a_silent_server_is_named_and_asked_once_for_each_name(server: NameServer) -> None:
    lookup = NameLookup(2, server.find)
    for _ in range(3):
        with pytest.raises(NameUnknown, match=r"no name server answered for silent\.example in 0\.05 s"):
            await lookup.addresses("silent.example", 22, 0.05)
    assert server.asked == ["silent.example"]


async def test_names_of_a_silent_server_leave_threads_for_other_names(server: NameServer) -> None:
    lookup = NameLookup(4, server.find)
    silent = [f"silent-{number}.example" for number in range(8)]

    async def give_up(name: str) -> None:
        with pytest.raises(NameUnknown):
            await lookup.addresses(name, 22, 0.1)

    async with asyncio.TaskGroup() as group:
        for name in silent:
            group.create_task(give_up(name))
    server.free.set()
    await until(lambda: not lookup._running)
    server.free.clear()
    async with asyncio.TaskGroup() as group:
        for name in silent:
            group.create_task(give_up(name))
        await until(lambda: len(lookup._running) == 2)
        assert await lookup.addresses("good.example", 22, 5) == [(V4, ("192.0.2.1", 22))]


async def test_unknown_names_are_remembered_up_to_a_limit_the_newest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_lookup, "DOUBTED_MAX", 3)
    server = NameServer(**{f"none-{number}_example": [] for number in range(9)})
    lookup = NameLookup(4, server.find)
    for number in (0, 1, 2, 0, 3):
        with pytest.raises(NameUnknown):
            await lookup.addresses(f"none-{number}.example", 22)
    assert list(lookup._doubted) == ["none-2.example", "none-0.example", "none-3.example"]
    assert [lookup._allowed(f"none-{number}.example") for number in (0, 1, 3)] == [2, 4, 2]


async def test_a_name_without_an_address_is_an_error(server: NameServer) -> None:
    with pytest.raises(NameUnknown) as found:
        await NameLookup(1, server.find).addresses("none.example", 22)
    assert found.value.strerror == "none.example: Name or service not known"
    with pytest.raises(NameUnknown, match="is no host name"):
        await NameLookup().addresses("a" * 70 + ".example", 22)


async def test_a_lookup_for_which_there_is_no_thread_fails_at_once_and_can_be_tried_again(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookup, start = NameLookup(1, server.find), threading.Thread.start

    def fails_once(_: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", start)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fails_once)
    with pytest.raises(NameUnknown) as found:
        await lookup.addresses("good.example", 22)
    assert found.value.errno == errno.EAGAIN
    assert await lookup.addresses("good.example", 22) == [(V4, ("192.0.2.1", 22))]


async def test_families_take_turns_and_no_address_comes_twice() -> None:
    given = [(V6, "2001:db8::1"), (V6, "2001:db8::2"), (V6, "2001:db8::1"), (V4, "192.0.2.1")]
    server = NameServer(both_example=given)
    found = await NameLookup(1, server.find).addresses("both.example", 22)
    assert [address[0] for _, address in found] == ["2001:db8::1", "192.0.2.1", "2001:db8::2"]


@contextlib.contextmanager
def listening(host: str = "127.0.0.1", backlog: int = 5) -> Iterator[tuple[int, tuple[Any, ...]]]:
    with socket.socket(V6 if ":" in host else V4) as door:
        door.bind((host, 0))
        door.listen(backlog)
        yield door.family, door.getsockname()


@contextlib.contextmanager
def silent_address() -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Where no connection is taken and none is refused: a full backlog (listen(2))."""
    with listening(backlog=0) as (family, address), contextlib.ExitStack() as stack:
        for _ in range(4):
            filler = stack.enter_context(socket.socket(family))
            filler.setblocking(False)
            filler.connect_ex(address)
        yield family, address


async def test_an_address_that_says_nothing_does_not_delay_the_next_one() -> None:
    with silent_address() as silent, listening("::1") as good:
        async with asyncio.timeout(10):
            with await first_connected([silent, good]) as sock:
                assert sock.getpeername()[:2] == good[1][:2]


async def test_an_address_that_refuses_is_passed_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dial_module, "NEXT_SECONDS", 60.0)
    with listening() as (family, gone):
        pass
    with listening() as good:
        async with asyncio.timeout(10):
            with await first_connected([(family, gone), good]) as sock:
                assert sock.getpeername() == good[1]
    with pytest.raises(ConnectionRefusedError):
        await dial("127.0.0.1", gone[1], NameLookup())
