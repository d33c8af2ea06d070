"""gateway/checks/ports.py."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.checks import ports
from gateway.checks.own_processes import is_own
from gateway.checks.ports import at_rest, check
from gateway.config import ApiSettings, BrokerSettings, SitesSettings
from tests.peers.broker import free_ports
from tests.unit.gateway.checks.conftest import Told, a_box


@contextmanager
def listening(port: int) -> Iterator[None]:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen(1)
        yield


def test_the_ports_of_every_listener_are_looked_at(tmp_path: Path) -> None:
    box = a_box(
        tmp_path,
        broker=BrokerSettings(port=1884, tls_port=8883),
        sites=SitesSettings(),
        api=ApiSettings(listen="[::1]:4512"),
    )
    assert box.tcp_ports == [
        ("broker.port", "0.0.0.0", 1884),
        ("broker.enroll_port", "0.0.0.0", 1885),
        ("broker.tls_port", "0.0.0.0", 8883),
        ("sites.listen", "0.0.0.0", 4510),
        ("api.listen", "::1", 4512),
    ]
    elsewhere = a_box(tmp_path, broker=BrokerSettings(mode="external"), sites=SitesSettings(listen="tcp://*:*"))
    assert elsewhere.tcp_ports == []


def test_a_port_that_another_program_has_is_told_with_its_name(tmp_path: Path) -> None:
    taken, free = free_ports(2)
    box = a_box(tmp_path, broker=BrokerSettings(host="127.0.0.1", port=free, enroll_port=taken))
    with listening(taken):
        (finding,) = at_rest(box)
    assert (finding.severity, finding.about) == ("error", "broker.enroll_port")
    assert finding.finding.startswith(f"port {taken} (broker.enroll_port) is taken by ")
    assert finding.finding.endswith(f"(process {os.getpid()})")
    assert finding.meaning == "the gateway cannot start until it is free"
    assert finding.fix.startswith(f"ss -ltnp 'sport = :{taken}'")
    (fine,) = at_rest(box)
    assert (fine.severity, fine.finding) == (
        "ok",
        f"free for it: {free} (broker.port), {taken} (broker.enroll_port)",
    )


def test_a_program_whose_name_is_no_utf_8_is_named(tmp_path: Path) -> None:
    process = tmp_path / "12"
    (process / "fd").mkdir(parents=True)
    (process / "comm").write_bytes(b"caf\xe9\n")
    (process / "stat").write_bytes(b"12 (caf\xe9) S 7 12 12 0\n")
    assert ports.words_of(process) == "caf\ufffd (process 12)"
    assert not is_own(process, a_box(tmp_path))


def test_an_address_that_this_machine_has_not_is_told(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    listen = SitesSettings(listen=f"tcp://192.0.2.77:{port}")
    broker = BrokerSettings(host="192.0.2.77", port=port, enroll_port=port + 1)
    # One address, one finding: the check of the broker has that of its own.
    (finding,) = at_rest(a_box(tmp_path, broker=broker, sites=listen))
    assert finding.severity == "error"
    assert "cannot be opened on 192.0.2.77" in finding.finding
    assert "until this machine has that address" in finding.meaning
    assert finding.fix == "ip -brief address shows the addresses of this machine; correct sites.listen in the settings"


def test_a_port_that_needs_a_privilege_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_bind", lambda *_: PermissionError(errno.EACCES, "Permission denied"))
    (finding,) = at_rest(a_box(tmp_path, sites=SitesSettings(listen="tcp://0.0.0.0:443")))
    assert finding.severity == "error"
    assert finding.finding.startswith("port 443 (sites.listen) is below 1024")
    assert "above 1023" in finding.fix


async def test_a_running_station_listens_at_every_port(tmp_path: Path, facts: Told) -> None:
    first, second = free_ports(2)
    facts.of_box = a_box(tmp_path, broker=BrokerSettings(port=first, enroll_port=second), running=True)
    with listening(first):
        (finding,) = await check(facts)
        assert (finding.severity, finding.about) == ("error", "broker.enroll_port")
        assert finding.finding == f"nobody listens at port {second} (broker.enroll_port)"
        assert "turned away" in finding.meaning
        assert finding.fix.startswith("systemctl restart outstation-gateway")
        with listening(second):
            (fine,) = await check(facts)
            assert (fine.severity, f"{first} (broker.port)" in fine.finding) == ("ok", True)


async def test_where_proc_is_hidden_nothing_is_said(
    tmp_path: Path, facts: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "TABLES", (str(tmp_path / "hidden"),))
    facts.of_box = a_box(tmp_path, broker=BrokerSettings())
    assert await check(facts) == []
