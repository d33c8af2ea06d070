"""The timer of `outstation check` agrees with the code."""

from __future__ import annotations

from configparser import RawConfigParser

from typer.main import get_command

from device_agent.errors import EXIT_CONFIG, EXIT_NOT_ALL_OK, EXIT_NOT_RUNNING
from gateway.cli.program import app
from tests.house.tree import ROOT


def unit(name: str) -> RawConfigParser:
    found = RawConfigParser()
    found.optionxform = str  # type: ignore[assignment,method-assign]  # the documented way to keep the case of keys
    found.read_string((ROOT / "systemd" / name).read_text(encoding="utf-8"))
    return found


def test_the_timer_starts_a_command_that_exists_and_takes_findings_for_no_failure() -> None:
    service = unit("outstation-check.service")["Service"]
    program, *words = service["ExecStart"].split()
    assert (program, words) == ("/usr/bin/outstation", ["check", "--tell"])
    command = get_command(app).commands["check"]  # type: ignore[attr-defined]  # a group has its commands
    assert "--tell" in {option for parameter in command.params for option in parameter.opts}
    wanted = {EXIT_NOT_ALL_OK, EXIT_CONFIG, EXIT_NOT_RUNNING}
    assert {int(status) for status in service["SuccessExitStatus"].split()} == wanted
    assert (service["Type"], service["User"]) == ("oneshot", "outstation")


def test_the_service_is_only_started_by_the_timer() -> None:
    assert "Install" not in unit("outstation-check.service")
    timer = unit("outstation-check.timer")
    assert timer["Install"]["WantedBy"] == "timers.target"
    assert timer["Timer"]["OnUnitActiveSec"] == "10min"
