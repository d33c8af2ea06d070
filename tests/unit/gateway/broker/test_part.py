"""The brokers' parts before they open: what they are told, and what they will not take or serve."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_agent.errors import ConfigInvalid
from gateway.broker.embedded import EmbeddedBroker, refuse_open_address
from gateway.broker.external import ExternalBroker
from gateway.broker.passwords import hash_password


def test_the_station_comes_to_an_external_broker_as_its_settings_say() -> None:
    part = ExternalBroker(
        site="lisbon",
        state_dir=Path("/nowhere"),
        host="broker.example",
        port=1884,
        enroll_port=1885,
        username="station",
        password="1234",
    )
    address = part.station_address()
    assert (address.host, address.port, address.unix_socket) == ("broker.example", 1884, None)
    assert (address.username, address.password) == ("station", "1234")
    assert part.tls_authority_digest is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
def test_the_embedded_broker_serves_this_machine(host: str) -> None:
    refuse_open_address(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.0.2.1", "broker.example", "localhost.example", "", "127.0.0.1 ", "127.1"]
)
def test_the_embedded_broker_is_open_to_nobody_else(host: str) -> None:
    with pytest.raises(ConfigInvalid) as error:
        refuse_open_address(host)
    assert (error.value.where, error.value.found) == ("broker.host", host)
    assert "127.0.0.1" in str(error.value.allowed)


@pytest.mark.parametrize("did", ["", "enroll", "a" * 25, "a" * 26 + "\n", "A" * 26])
async def test_what_is_no_did_never_comes_in(did: str) -> None:
    part = EmbeddedBroker(site="lisbon", host="127.0.0.1", port=1884, enroll_port=1885)
    with pytest.raises(ValueError, match="no device"):
        await part.add_user(did, hash_password("secret"))
    with pytest.raises(ValueError, match="no device"):
        await part.set_users({did: hash_password("secret")})
    with pytest.raises(ValueError, match="no device"):
        await part.add_user("a" * 26, "secret")
    assert part.status()["users"] == 0
