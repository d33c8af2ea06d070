"""gateway/broker/mosquitto.py: what it writes and what it will not serve; the process itself is in integration."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path

import pytest

from device_agent.errors import ConfigInvalid
from device_agent.protocol import limits
from gateway.broker import mosquitto
from gateway.broker.mosquitto import Mosquitto, find_mosquitto, refuse_open_address, settings_text


def settings(host: str = "127.0.0.1", port: int = 1884) -> dict[str, str]:
    """The settings by name; the last of those that may stand twice."""
    return dict(line.split(" ", 1) for line in settings_text(host, port).splitlines())


def test_it_listens_where_it_is_told_and_nowhere_else() -> None:
    listeners = [line for line in settings_text("::1", 1999).splitlines() if line.startswith(("listener", "port"))]
    assert listeners == ["listener 1999 ::1"]


def test_the_limits_that_drop_answers_are_lifted() -> None:
    """mosquitto.conf(5): 0 is without a limit for both."""
    assert settings()["max_queued_messages"] == "0"
    assert settings()["max_inflight_messages"] == "0"
    assert settings()["set_tcp_nodelay"] == "true"


def test_the_largest_message_of_ours_passes_with_its_topic_and_a_larger_one_does_not() -> None:
    longest_topic = len(f"os/{'s' * 64}/d/{'d' * 128}/up/return")
    assert limits.MESSAGE_BYTES + longest_topic < int(settings()["max_packet_size"]) < 2 * limits.MESSAGE_BYTES


def test_nothing_is_kept_on_disk() -> None:
    assert settings()["persistence"] == "false"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
def test_this_machine_is_served(host: str) -> None:
    refuse_open_address(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.0.2.1", "broker.example", "localhost.example", "", "127.0.0.1 ", "127.1"]
)
def test_a_broker_of_ours_is_open_to_nobody_else(host: str) -> None:
    with pytest.raises(ConfigInvalid) as error:
        refuse_open_address(host)
    assert (error.value.where, error.value.found) == ("broker.host", host)
    assert "127.0.0.1" in str(error.value.allowed)


def test_mosquitto_is_found_outside_the_path_of_an_ordinary_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_mosquitto() == shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


async def test_without_mosquitto_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mosquitto, "find_mosquitto", lambda: None)
    with pytest.raises(ExceptionGroup) as error:
        async with Mosquitto("127.0.0.1", 1884):
            raise AssertionError("it started without mosquitto")
    (reason,) = error.value.exceptions
    assert isinstance(reason, ConfigInvalid)
    assert (reason.where, reason.hint) == ("broker.mode", "apt install mosquitto")


@pytest.mark.parametrize(
    ("user", "known", "command"),
    [
        (1000, True, ["SETPRIV", "--pdeathsig", "TERM", "--"]),
        (
            0,
            True,
            ["SETPRIV", "--pdeathsig", "TERM", "--reuid", "mosquitto", "--regid", "mosquitto", "--clear-groups", "--"],
        ),
        (0, False, ["SETPRIV", "--pdeathsig", "TERM", "--"]),
    ],
)
def test_it_dies_with_us_and_does_not_run_as_root(
    user: int, known: bool, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def entry(name: str) -> object:
        if not known:
            raise KeyError(name)
        return object()

    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(pwd, "getpwnam", entry)
    monkeypatch.setattr(shutil, "which", lambda name: name.upper())
    assert mosquitto._prefix() == command


def test_without_setpriv_it_is_started_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert mosquitto._prefix() == []
