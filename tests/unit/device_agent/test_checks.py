"""device_agent/checks.py and standing.py: what a device says of itself at its own terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from device_agent import RELEASED, checks, standing
from device_agent.config import AgentSettings
from device_agent.identity import IdentityFile
from device_agent.standing import Standing
from device_agent.state_folder import StateFolder
from tests.peers.broker import free_port

NOW = RELEASED + 60.0


def settings(folder: Path) -> Path:
    path = folder / "agent.yaml"
    path.write_text(f"state_dir: {folder / 'state'}\nbroker: {{host: 127.0.0.1, port: {free_port()}}}\n")
    return path


def found(table: AgentSettings, now: float = NOW) -> dict[str, checks.Finding]:
    return {finding.check: finding for finding in checks.every(table, now)}


def test_a_machine_that_is_no_device_yet_is_told_how_to_become_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = settings(tmp_path)
    (tmp_path / "state").mkdir(mode=0o700)
    assert checks.main(config, as_json=False) == 1
    out = capsys.readouterr().out
    assert "this device belongs to no site" in out
    assert "outstation-agent join 'TOKEN'" in out
    assert checks.main(config, as_json=True) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    named = ["agent", "connection", "identity", "clock", "state", "disk", "files", "package"]
    assert [line["check"] for line in lines] == named
    assert all(line["fix"] for line in lines if line["severity"] != "ok")


def test_each_check_finds_what_is_wrong(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    table = AgentSettings(state_dir=str(folder))
    assert found(table)["state"].severity == "error"
    folder.mkdir(mode=0o700)
    assert found(table)["state"].severity == "ok"
    folder.chmod(0o755)
    assert (found(table)["state"].severity, found(table)["state"].fix) == ("warning", f"chmod 700 {folder}")
    assert found(table)["clock"].severity == "ok"
    assert found(table, 0.0)["clock"].severity == "warning"
    assert found(table)["connection"].severity == "info"
    IdentityFile(folder).load_or_begin()
    assert "its fingerprint is" in found(table)["identity"].finding
    (folder / "identity").write_bytes(b"no identity")
    damaged = found(table)["identity"]
    assert (damaged.severity, "damaged" in damaged.finding, bool(damaged.fix)) == ("error", True, True)


@pytest.mark.parametrize(
    ("status", "severity", "fix"),
    [
        ("install ok installed", "ok", ""),
        ("install ok half-configured", "error", "dpkg --configure -a"),
        ("install reinstreq half-installed", "error", "apt install --reinstall ./outstation-agent_1.1_*.deb"),
        ("deinstall ok config-files", "ok", ""),
        (None, "ok", ""),
    ],
)
def test_a_package_that_is_half_installed_is_told_with_what_mends_it(
    status: str | None, severity: str, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if status is not None:
        query = tmp_path / "dpkg-query"
        query.write_text(f"#!/bin/sh\nprintf '{status}\\t1.1'\n")
        query.chmod(0o755)
    finding = found(AgentSettings(state_dir=str(tmp_path)))["package"]
    assert (finding.severity, finding.fix) == (severity, fix)


def test_an_agent_that_runs_is_seen_and_what_it_says_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = settings(tmp_path)
    folder = StateFolder(tmp_path / "state")
    said = Standing(folder.path)
    assert standing.show(config, as_json=False) == 1
    assert "systemctl start outstation-agent" in capsys.readouterr().out
    folder.take()
    try:
        assert standing.show(config, as_json=True) == 1
        assert json.loads(capsys.readouterr().out)["status"] == "it starts"
        said.say("connected to 192.0.2.10:1883")
        assert standing.show(config, as_json=True) == 0
        shown = json.loads(capsys.readouterr().out)
        assert (shown["running"], shown["connected"], shown["status"]) == (True, True, said.said)
        by_name = found(AgentSettings(state_dir=str(folder.path)))
        assert (by_name["agent"].severity, by_name["connection"].severity) == ("ok", "ok")
        said.say("connected to 192.0.2.10:1883; 4 file operations have not returned since 09:12:03 in /mnt/nas")
        hung = found(AgentSettings(state_dir=str(folder.path)))["files"]
        assert (hung.severity, hung.finding) == ("warning", said.said.partition("; ")[2])
        said.say("not connected: the gateway is away")
        assert standing.show(config, as_json=False) == 1
        assert "the gateway is away" in capsys.readouterr().out
    finally:
        folder.release()
    assert not standing.running(folder.path)
    assert found(AgentSettings(state_dir=str(folder.path)))["agent"].severity == "error"
