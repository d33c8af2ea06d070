"""gateway/devices/client_addresses.py: lines as mosquitto 2.0 writes them, and as a hostile client would like them."""

from __future__ import annotations

import pytest

from gateway.devices import client_addresses
from gateway.devices.client_addresses import ClientAddresses

DID = "h3qvg7bccfnrfck4vcbdxql3jy"
OTHER = "rku4rztk5jbqnxcbnhxzx3ndde"


def line(address: str = "192.0.2.7", client: str = DID, user: str = "enroll") -> str:
    return f"New client connected from {address}:41234 as {client} (p2, c1, k60, u'{user}')."


@pytest.mark.parametrize("address", ["192.0.2.7", "2001:db8::7", "::ffff:192.0.2.7"])
@pytest.mark.parametrize("stamp", ["", "1795230900: "])
def test_a_connection_to_the_enrollment_listener_tells_the_address(address: str, stamp: str) -> None:
    addresses = ClientAddresses()
    assert addresses.line(stamp + line(address))
    assert addresses.of(DID) == address


def test_the_newest_connection_counts() -> None:
    addresses = ClientAddresses()
    addresses.line(line("192.0.2.7"))
    addresses.line(line("198.51.100.9"))
    assert addresses.of(DID) == "198.51.100.9"


def test_a_device_at_the_other_listener_is_no_device_that_enrolls() -> None:
    addresses = ClientAddresses()
    assert addresses.line(line(user=DID))
    assert addresses.of(DID) == ""


@pytest.mark.parametrize(
    "client",
    [
        f"x as {DID} (p2, c1, k60, u'enroll').",
        f"{DID} (p2, c1, k60, u'enroll'). x",
        f"x from 192.0.2.7:1 as {DID}",
        f"{DID}\u00e9",
        DID.upper(),
        DID[:-1],
    ],
)
def test_a_client_id_cannot_pass_for_another_line(client: str) -> None:
    addresses = ClientAddresses()
    addresses.line(line("198.51.100.9", client))
    assert addresses.of(DID) == ""


@pytest.mark.parametrize(
    "text",
    [
        "New connection from 127.0.0.1:41234 on port 1884.",
        f"Client {DID} closed its connection.",
        f"Client {DID} disconnected.",
        f"Client {DID} already connected, closing old connection.",
        "Client <unknown> disconnected, not authorised.",
    ],
)
def test_what_the_broker_says_of_connections_belongs_in_no_other_log(text: str) -> None:
    assert ClientAddresses().line(text)


def test_what_else_the_broker_says_is_left_to_others() -> None:
    assert not ClientAddresses().line("Error: Address already in use")


def test_the_oldest_addresses_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_addresses, "CLIENTS", 1)
    addresses = ClientAddresses()
    addresses.line(line())
    addresses.line(line(client=OTHER))
    assert (addresses.of(DID), addresses.of(OTHER)) == ("", "192.0.2.7")
