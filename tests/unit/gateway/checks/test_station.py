"""gateway/checks/station.py and gateway/checks/settings.py: a station that does not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_agent.errors import ConfigInvalid
from gateway.checks import station
from gateway.checks.settings import unreadable
from gateway.checks.station import at_rest, unit_says
from tests.unit.gateway.checks.conftest import a_box


@pytest.mark.parametrize(
    ("unit", "said", "fix"),
    [
        ({}, "the gateway does not run: nobody answers at ", "systemctl enable --now outstation-gateway"),
        ({"ActiveState": "inactive"}, "the gateway does not run: ", "systemctl enable --now outstation-gateway"),
        (
            {"ActiveState": "failed", "Result": "exit-code", "ExecMainStatus": "6"},
            "outstation-gateway has failed (exit-code, exit status 6)",
            "journalctl -u outstation-gateway -n 50",
        ),
        (
            {"ActiveState": "activating"},
            "outstation-gateway is activating and does not answer at ",
            "systemctl status outstation-gateway",
        ),
        (
            {"ActiveState": "activating", "StatusText": "has failed 7 times in a row: waits 300 s, until 21:14:05"},
            "it said: has failed 7 times in a row: waits 300 s",
            "systemctl restart outstation-gateway",
        ),
        (
            {"ActiveState": "failed", "Result": "signal", "StatusText": "the broker does not start"},
            "it said: the broker does not start",
            "journalctl -u outstation-gateway",
        ),
    ],
)
def test_it_says_what_systemd_knows(
    unit: dict[str, str], said: str, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(station, "unit_says", lambda name: unit if name == "outstation-gateway" else {})
    (finding,) = at_rest(a_box(tmp_path))
    assert finding.severity == "error"
    assert said in finding.finding
    assert finding.fix.startswith(fix)
    assert "what it has on disk is kept" in finding.meaning


def test_systemd_is_asked_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "systemctl"
    program.write_text(
        '#!/bin/sh\n[ "$1 $2" = "show outstation-gateway" ] || exit 1\n'
        "echo LoadState=loaded; echo ActiveState=failed; echo StatusText=a = b\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(station, "SYSTEMD", tmp_path)
    assert unit_says("outstation-gateway") == {
        "LoadState": "loaded",
        "ActiveState": "failed",
        "StatusText": "a = b",
    }
    assert unit_says("another") == {}
    monkeypatch.setattr(station, "SYSTEMD", tmp_path / "none")
    assert unit_says("outstation-gateway") == {}


def test_settings_that_stop_a_start_are_told_with_what_is_allowed() -> None:
    error = ConfigInvalid("there is no such port", where="g.yaml:3: broker.port", found="99999", allowed="1 to 65535")
    finding = unreadable(Path("g.yaml"), error, "outstation-gateway", running=False)
    assert finding.severity == "error"
    assert finding.finding == "g.yaml:3: broker.port: there is no such port, found: 99999"
    assert finding.meaning.endswith("; allowed: 1 to 65535")
    assert finding.fix == "mend g.yaml; then systemctl restart outstation-gateway"
