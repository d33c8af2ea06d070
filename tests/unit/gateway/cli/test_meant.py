"""gateway/cli/meant.py and remote.py: which station is meant, and what is not sent to it."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import NotRunning, PolicyRefused, StationFailed, UsageInvalid
from gateway.cli.client import refusal
from gateway.cli.meant import Meant, meant
from gateway.cli.remote import Remote, remote
from tests.peers.api_double import ApiDouble
from tests.unit.gateway.cli.conftest import Shell

EVERYTHING = {
    "OUTSTATION_SOCKET": "/env.sock",
    "OUTSTATION_API": "https://env:1",
    "OUTSTATION_TOKEN_FILE": "/env.token",
    "OUTSTATION_CA": "/env.crt",
}
FROM_ENVIRONMENT: dict[str, Any] = {"token_file": Path("/env.token"), "authorities": Path("/env.crt")}


@pytest.mark.parametrize(
    ("typed", "environment", "found"),
    [
        ({}, {}, Meant()),
        ({}, {"OUTSTATION_SOCKET": "/env.sock"}, Meant(socket=Path("/env.sock"))),
        ({"socket": Path("/typed")}, {"OUTSTATION_SOCKET": "/env.sock"}, Meant(socket=Path("/typed"), typed=True)),
        ({"socket": Path("/typed")}, EVERYTHING, Meant(socket=Path("/typed"), typed=True, **FROM_ENVIRONMENT)),
        ({}, EVERYTHING, Meant(api="https://env:1", **FROM_ENVIRONMENT)),
        (
            {"api": "https://typed:2", "token_file": Path("/typed.token"), "ca": Path("/typed.crt")},
            EVERYTHING,
            Meant(api="https://typed:2", token_file=Path("/typed.token"), authorities=Path("/typed.crt"), typed=True),
        ),
    ],
)
def test_what_is_typed_goes_before_the_environment(
    typed: dict[str, Any], environment: dict[str, str], found: Meant
) -> None:
    assert meant(typed, environment) == found


def test_two_stations_typed_are_a_mistake(shell: Shell, api: ApiDouble) -> None:
    with pytest.raises(UsageInvalid, match="by its socket or by its API"):
        meant({"socket": Path("/x"), "api": "https://y:1"}, {})
    finished = shell.here("--socket", "/x", "--api", "https://y:1", "jobs", "list")
    assert (finished.status, finished.out) == (2, "")


def token(folder: Path, text: str = "os1_secret\n", mode: int = 0o600) -> Path:
    path = folder / "token"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_token_is_sent_and_never_shown(tmp_path: Path) -> None:
    station = remote("https://192.0.2.1:4512", token(tmp_path), None)
    assert station.headers() == {"Authorization": "Bearer os1_secret"}
    assert str(station) == "https://192.0.2.1:4512"
    assert "secret" not in f"{station!r} {station}"
    assert remote("http://localhost:80/", token(tmp_path), None).secure is False


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("192.0.2.1:4512", "no address of an API"),
        ("https://192.0.2.1", "no address of an API"),
        ("https://:4512", "no address of an API"),
        ("https://x:99999", "no address of an API"),
        ("ftp://x:1", "no address of an API"),
        ("https://x:1/jobs", "no address of an API"),
        ("http://192.0.2.1:4512", "not sent in the clear"),
        ("http://localhost.example:4512", "not sent in the clear"),
    ],
)
def test_an_address_that_is_none_or_would_give_the_token_away_is_refused(
    address: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageInvalid, match=words):
        remote(address, token(tmp_path), None)


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("os1_secret", 0o644, "everybody on this machine may read the token"),
        ("", 0o600, "holds no token"),
        ("two words", 0o600, "holds no token"),
        ("é", 0o600, "cannot be read"),
    ],
)
def test_a_token_file_that_is_none_is_told(text: str, mode: int, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageInvalid, match=words) as error:
        remote("https://x:1", token(tmp_path, text, mode), None)
    assert "os1_secret" not in str(error.value)


def test_without_a_token_nobody_is_asked(tmp_path: Path) -> None:
    with pytest.raises(UsageInvalid, match="wants a token"):
        remote("https://x:1", None, None)
    with pytest.raises(UsageInvalid, match="cannot be read"):
        remote("https://x:1", tmp_path / "none", None)


def test_what_goes_wrong_on_the_way_is_told_apart(tmp_path: Path) -> None:
    station = Remote("x", 1, secure=True, token="t", authorities=tmp_path / "none")
    with pytest.raises(UsageInvalid, match="certificates cannot be read"):
        station.connection(1)
    untrusted = ssl.SSLCertVerificationError()
    untrusted.verify_message = "self-signed certificate"
    assert isinstance(station.unreachable(untrusted), StationFailed)
    assert isinstance(station.unreachable(ConnectionRefusedError(111, "Connection refused")), NotRunning)


@pytest.mark.parametrize("status", [401, 403, 429])
def test_who_is_turned_away_is_refused_by_policy(status: int) -> None:
    error = refusal(status, b'{"error": {"what": "no", "id": "operator.unknown", "hint": "ask"}}')
    assert isinstance(error, PolicyRefused)
    assert (error.error_id, error.hint) == ("operator.unknown", "ask")
