"""Masters that are known by names: what a name server does to one link is no other link's affair."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from device_agent import name_lookup
from tests.peers.ports import Below
from tests.peers.rope import connected, new_keys, played_master, uplink_part
from tests.peers.waiting import until
from upstream import endpoints
from upstream.dealer import LinkLost
from upstream.endpoints import Endpoints, split
from upstream.uplink import MasterAddress, Uplink


@pytest.fixture
def below() -> Below:
    return Below()


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[str]]]:
    """Names and their addresses; no name server answers for any other name while a test runs."""
    known: dict[str, list[str]] = {}
    over = threading.Event()

    def find(host: str) -> Sequence[Any]:
        if host not in known:
            over.wait(60)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [
            each for text in known[host] for each in socket.getaddrinfo(text, None, type=socket.SOCK_STREAM)
        ]  # fmt: skip

    monkeypatch.setattr(name_lookup, "_find", find)
    yield known
    over.set()


def by_name(name: str, address: MasterAddress) -> MasterAddress:
    return MasterAddress(f"tcp://{name}:{address.address.rpartition(':')[2]}", address.key)


def roles(uplink: Uplink) -> list[str]:
    return [link["role"] for link in uplink.status()["links"]]


def states(uplink: Uplink) -> list[str]:
    return [link["state"] for link in uplink.status()["links"]]


async def test_a_silent_name_server_delays_its_own_master_only(below: Below, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "NOTICE_SECONDS", 0.2)
    silent = MasterAddress("tcp://silent.example:4510", new_keys().public)
    async with played_master() as master:
        rules: dict[str, Any] = {"master_type": "failover", "master_alive_interval": 5.0}
        async with uplink_part(below, silent, master.address, **rules) as uplink:
            await until(lambda: roles(uplink) == ["", "active"], what="the master that has an address is active")
            assert states(uplink) == ["connecting", "connected"]
            assert "the name silent.example is not known yet" in uplink.status()["links"][0]["last_error"]
            assert master.hellos == 1


async def test_of_several_addresses_of_a_name_the_one_that_answers_is_used(
    below: Below, names: dict[str, list[str]]
) -> None:
    names["both.example"] = ["::1", "127.0.0.1"]
    async with played_master() as master, uplink_part(below, by_name("both.example", master.address)) as uplink:
        await until(lambda: connected(uplink), what="the link")


async def test_a_name_that_has_no_address_is_the_reason_of_the_link(
    below: Below, names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_lookup, "SECONDS", 0.1)
    async with played_master() as master, uplink_part(below, by_name("late.example", master.address)) as uplink:
        await until(lambda: "no address: no name server" in uplink.status()["last_error"], what="the reason")
        names["late.example"] = ["127.0.0.1"]


async def test_an_address_that_leads_to_no_answer_comes_last_the_next_time(names: dict[str, list[str]]) -> None:
    names["both.example"] = ["127.0.0.1", "127.0.0.2"]
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        first.listen()
        port = first.getsockname()[1]
        second.bind(("127.0.0.2", port))
        second.listen()
        found = Endpoints()
        assert await found.find("both.example", port, pytest.fail) == "127.0.0.1"
        found.failed()
        assert await found.find("both.example", port, pytest.fail) == "127.0.0.2"
        found.failed()
        assert await found.find("both.example", port, pytest.fail) == "127.0.0.1"
    with pytest.raises(LinkLost, match=r"none of the 2 addresses of both\.example takes a connection"):
        await found.find("both.example", port, pytest.fail)


@pytest.mark.parametrize(
    ("address", "found"),
    [("tcp://[2001:db8::1]:4510", ("2001:db8::1", 4510)), ("tcp://a.example:4510", ("a.example", 4510))],
)
def test_an_address_is_taken_apart(address: str, found: tuple[str, int]) -> None:
    assert split(address) == found


async def test_an_address_needs_no_name_server() -> None:
    assert await Endpoints().find("2001:db8::1", 4510, pytest.fail) == "[2001:db8::1]"
    assert await Endpoints().find("fe80::1%lo", 4510, pytest.fail) == "[fe80::1%lo]"
    with pytest.raises(LinkLost, match="it is not tcp://HOST:PORT"):
        split("tcp://4510")
