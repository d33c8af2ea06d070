"""gateway/broker/mosquitto.py: how it is found and started; the process itself is in integration."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path

import pytest

from device_agent.errors import EXIT_CONFIG, EXIT_NOT_ALL_OK, ConfigInvalid
from gateway.broker import mosquitto
from gateway.broker.mosquitto import Mosquitto
from gateway.broker.start import find_mosquitto
from tests.peers.broker import free_ports


def test_mosquitto_is_found_outside_the_path_of_an_ordinary_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_mosquitto() == shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


async def test_without_mosquitto_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mosquitto, "find_mosquitto", lambda: None)
    with pytest.raises(ExceptionGroup) as error:
        async with Mosquitto(site="lisbon", state_dir=Path("/nowhere"), host="127.0.0.1", port=1884, enroll_port=1885):
            raise AssertionError("it started without mosquitto")
    (reason,) = error.value.exceptions
    assert isinstance(reason, ConfigInvalid)
    assert (reason.where, reason.hint) == ("broker.mode", "apt install mosquitto")


@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        ("activate capabilities: Operation not permitted", EXIT_CONFIG, "broker: {mode: service}"),
        ("failed to execute mosquitto: No such file or directory", EXIT_NOT_ALL_OK, "see: ip address"),
    ],
)
async def test_a_sandbox_that_lets_no_broker_start_is_a_wrong_setting(
    said: str, status: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setpriv = tmp_path / "setpriv"
    setpriv.write_text(f"#!/bin/sh\necho 'setpriv: {said}' >&2\nexit 1\n")
    setpriv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(mosquitto, "find_mosquitto", lambda: "/bin/true")
    monkeypatch.setattr(mosquitto, "PORT_RETRIES", 1)
    port, enroll_port = free_ports(2)
    with pytest.raises(ExceptionGroup) as error:
        async with Mosquitto(site="lisbon", state_dir=tmp_path, host="127.0.0.1", port=port, enroll_port=enroll_port):
            raise AssertionError("it started without setpriv")
    (reason,) = error.value.exceptions
    assert isinstance(reason, ConfigInvalid)
    assert said in str(reason.found)
    assert (reason.exit_status, words in str(reason.hint)) == (status, True)


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


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Warning: ACL pattern 'os/lisbon/trust' does not contain '%c' or '%u'.", True),
        ("Warning: Unable to set TCP_NODELAY.", True),
        ('Error: Unable to open pwfile "/tmp/x/devices.passwords".', False),
        ("Warning: Mosquitto should not be run as root/administrator.", False),
    ],
)
def test_its_warnings_about_what_is_meant_so_are_not_repeated(line: str, expected: bool) -> None:
    assert mosquitto._is_expected(line) is expected
