"""Devices without an agent beside one with an agent: one command from a master, one table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.devices.ssh_device import host_key_fingerprint
from tests.peers.ssh_beds import SshBed, dropbear, openssh
from tests.peers.system import System

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]


@pytest.fixture
def beds(tmp_path: Path) -> Iterator[list[SshBed]]:
    with openssh(tmp_path / "openssh") as gnu, dropbear(tmp_path / "dropbear") as small:
        yield [gnu, small]


def add(system: System, name: str, bed: SshBed) -> None:
    fingerprint = host_key_fingerprint(bed.host_keys[0])
    words = ["--ssh", f"root@127.0.0.1:{bed.port}", "--key", str(bed.client_key), "--fingerprint", fingerprint]
    system.command("devices", "add", name, *words, station="lisbon", status=0)


def test_one_command_from_a_master_reaches_them_all(system: System, beds: list[SshBed]) -> None:
    system.add_master()
    system.add_gateway("lisbon", "central")
    system.join("lisbon")
    system.add_agent("with-agent", "lisbon")
    names = {"gnu": beds[0], "small": beds[1]}
    for name, bed in names.items():
        add(system, name, bed)
    system.present(3)
    everybody = {*names, "with-agent"}

    done = system.command("run", "*", "test.ping", "--json", status=0)
    assert all(name in done.out for name in everybody)
    ended = system.ended("central", system.issue("central", "*", "cmd.run", "echo $((6 * 7))"))
    assert {name: each.value for name, each in ended.by_device().items()} == dict.fromkeys(everybody, "42")
    ended = system.ended("central", system.issue("central", "G@kernel:Linux", "test.echo", "x", tgt_type="compound"))
    assert ended.words() == dict.fromkeys(everybody, "ok")

    endless = system.issue("central", "*", "cmd.run", "sleep 60099")
    system.until(lambda: beds[0].running("60099") and beds[1].running("60099"), "it runs")
    # As it is typed: a jid has more digits than a number may have.
    system.command("run", "*", "saltutil.kill_job", endless, status=0)
    assert system.ended("central", endless).words() == dict.fromkeys(everybody, "failed")
    system.until(lambda: not any(bed.running("60099") for bed in beds), "it is killed on the devices too")

    beds[1].server.kill()
    system.until(lambda: not system.is_here("small"), "its end is noticed")
    ended = system.ended("central", system.issue("central", "*", "test.ping"))
    assert ended.words() == {"gnu": "ok", "with-agent": "ok", "small": "unreachable"}
    assert ended.by_device()["small"].why == "connection_refused: Connection refused"
    shown = json.loads(system.command("devices", "show", "small", "--json", station="lisbon", status=0).out)
    assert shown["ssh"]["state"] == "away"
    assert shown["ssh"]["why"].startswith("connection_refused")


def test_a_device_known_by_both_is_reached_over_ssh_while_its_agent_is_gone(system: System, beds: list[SshBed]) -> None:
    system.add_master()
    system.add_gateway("lisbon", "central")
    system.join("lisbon")
    system.add_agent("cam-1", "lisbon")
    system.present(1)
    add(system, "cam-1", beds[1])

    def link() -> tuple[str, str]:
        [shown] = system.view("lisbon", "/devices/cam-1")["devices"]
        return shown["link"], shown["ssh"]["state"]

    system.until(lambda: link() == ("mqtt", "standby"), "ssh stands by")
    where = ["cmd.run", "test -e /opt/dropbear && echo over ssh || echo by the agent"]
    assert system.ended("central", system.issue("central", "*", *where)).by_device()["cam-1"].value == "by the agent"
    system.kill("cam-1")
    system.until(lambda: link() == ("ssh", "used"), "ssh is used")
    assert system.ended("central", system.issue("central", "*", *where)).by_device()["cam-1"].value == "over ssh"
    system.add_agent("cam-1", "lisbon")
    system.until(lambda: link() == ("mqtt", "standby"), "the agent comes first again")
    assert system.ended("central", system.issue("central", "*", *where)).by_device()["cam-1"].value == "by the agent"
