"""Devices without an agent are members of a fleet: the master knows them, and who is out is out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peers.ssh_beds import openssh
from tests.peers.system import System

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

PASSWORD = "made up for this test"


def names(system: System, station: str) -> dict[str, str]:
    """The state of each device, as a station knows it."""
    return {device["id"]: device["state"] for device in system.view(station, "/devices")["devices"]}


def test_a_device_over_ssh_is_a_member_that_the_master_knows_until_it_is_put_out(
    system: System, tmp_path: Path
) -> None:
    system.add_master()
    system.add_gateway("lisbon", "central")
    early = system.command(
        "devices", "add", "cam-1", "--ssh", "root@127.0.0.1:1", "--agent", "--fingerprint", "SHA256:" + "A" * 43,
        station="lisbon",
    )  # fmt: skip
    assert early.status == 8
    assert "belongs to no fleet" in early.error
    system.join("lisbon")
    system.certified("lisbon")
    (tmp_path / "word").write_text(f"{PASSWORD}\n")
    with openssh(tmp_path / "bed") as bed:
        for name in ("cam-1", "cam-2"):
            line = ("--ssh", f"root@127.0.0.1:{bed.port}", "--password-file", str(tmp_path / "word"), "--yes")
            system.command("devices", "add", name, *line, station="lisbon", status=0)
    system.until(
        lambda: names(system, "central") == {"cam-1": "accepted", "cam-2": "accepted"}, "the master knows them"
    )
    shown = system.command("devices", "show", "cam-1", station="lisbon", status=0).out
    assert f"root@127.0.0.1:{bed.port} by password" in shown
    assert "unproven" in shown
    above = system.command("devices", "show", "cam-1", status=0).out
    assert PASSWORD not in shown + above
    refused = system.command("devices", "remove", "cam-1", "--yes", station="central")
    assert refused.status == 2
    assert "no devices of its own" in refused.error

    system.kill("lisbon")
    system.restart("lisbon")
    system.connected("lisbon")
    assert names(system, "lisbon") == {"cam-1": "accepted", "cam-2": "accepted"}
    system.command("devices", "remove", "cam-1", "--yes", station="lisbon", status=0)
    system.command("keys", "revoke", "cam-2", "--yes", station="lisbon", status=0)
    assert names(system, "lisbon") == {}
    system.until(lambda: names(system, "central") == {}, "the master has heard that they are out")
    assert PASSWORD.encode() not in (system.state_of("lisbon") / "station.sqlite").read_bytes()
    assert PASSWORD not in system.log("lisbon")
