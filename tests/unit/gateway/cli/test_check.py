"""gateway/cli/check.py, and what it prints."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from gateway.cli import check_asked
from gateway.cli import client as clients
from tests.peers.api_double import ApiDouble, Fields
from tests.peers.broker import free_port
from tests.unit.gateway.cli.conftest import COLUMNS, Shell

FINE: Fields = {"check": "store", "severity": "ok", "finding": "it writes", "meaning": "not shown", "fix": "not shown"}
BROKEN: Fields = {
    "check": "uplink",
    "severity": "error",
    "finding": "no master answers",
    "meaning": "returns stay in the spool",
    "fix": "look at the masters in gateway.yaml",
}


def finding(check: str, severity: str, words: str = "so it is") -> Fields:
    return {"check": check, "severity": severity, "finding": words, "meaning": "it matters", "fix": "mend it"}


def test_findings_are_in_words_with_what_they_mean_and_how_to_mend_them(api: ApiDouble, shell: Shell) -> None:
    api.findings = [FINE, BROKEN]
    api.station = {
        "role": "gateway",
        "name": "lisbon",
        "version": "0.1.0",
        "uplink": {"state": "connected", "master": "tcp://192.0.2.1:4505"},
    }
    finished = shell.run("check")
    assert finished.status == 1
    assert finished.error == "gateway lisbon, outstation 0.1.0, uplink connected to tcp://192.0.2.1:4505\n"
    assert finished.out.splitlines() == [
        "error     uplink        no master answers",
        "                        means: returns stay in the spool",
        "                        try:   look at the masters in gateway.yaml",
        "ok        store",
        "1 error",
    ]


def test_the_worst_stands_first_and_notes_are_short(api: ApiDouble, shell: Shell) -> None:
    api.findings = [
        FINE,
        *(finding(f"note-{number}", "info") for number in range(7)),
        finding("disk", "warning"),
        finding("clock", "error"),
        finding("spool", "error"),
    ]
    lines = shell.here("check").out.splitlines()
    assert [line.split()[1] for line in lines if line[0] != " "] == [
        "clock", "spool", "disk", "note-0", "note-1", "note-2", "note-3", "note-4", "store", "errors,",
    ]  # fmt: skip
    assert sum("means:" in line for line in lines) == 3
    assert any("and 2 more notes: outstation check --all" in line for line in lines)
    assert lines[-1] == "2 errors, 1 warning"
    whole = shell.here("check", "--all").out
    assert (whole.count("means:"), "ok        store         it writes" in whole) == (10, True)
    assert "not shown" not in whole


def test_a_healthy_box_is_two_lines(api: ApiDouble, shell: Shell) -> None:
    api.findings = [FINE, {**FINE, "check": "disk"}, {**FINE, "check": "disk"}]
    finished = shell.here("check")
    assert (finished.status, finished.out) == (0, "ok        store, disk\nnothing is wrong\n")


def test_on_a_terminal_it_has_colours_and_long_words_hang(api: ApiDouble, shell: Shell) -> None:
    api.findings = [finding("disk", "warning", "a long way " * 20)]
    finished = shell.on_terminal("check")
    assert "\x1b[33mwarning" in finished.out
    lines = finished.seen.splitlines()
    assert all(len(line) <= COLUMNS for line in lines)
    (first,) = [place for place, line in enumerate(lines) if line.startswith("warning")]
    assert lines[first + 1].startswith(f"{'':<24}a long way")
    assert "\x1b" not in shell.run("check").out


@pytest.mark.parametrize(("severity", "status"), [("ok", 0), ("info", 0), ("warning", 0), ("error", 1)])
def test_only_an_error_is_a_failure(api: ApiDouble, shell: Shell, severity: str, status: int) -> None:
    api.findings = [FINE, {**BROKEN, "severity": severity}]
    assert shell.here("check").status == status
    finished = shell.here("check", "--json")
    assert finished.status == status
    worst = ["ok", "ok"] if severity == "ok" else [severity, "ok"]
    assert [json.loads(line)["severity"] for line in finished.out.splitlines()] == worst
    assert finished.error == ""


def test_what_was_told_is_printed_alone(api: ApiDouble, shell: Shell) -> None:
    api.findings = [FINE, BROKEN]
    api.news = [{"check": "uplink", "severity": "error", "was": "ok", "findings": [BROKEN]}]
    finished = shell.here("check", "--tell")
    assert finished.status == 1
    assert finished.out.splitlines()[:2] == [
        "error     uplink: was ok",
        "error     uplink        no master answers",
    ]
    api.news = []
    assert shell.here("check", "--tell").out == ""
    assert len(api.asked("POST", "/check")) == 2


# --- a station that does not run -------------------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings of a gateway that was never started, whatever runs on this machine."""
    monkeypatch.setattr(clients, "RUN_DIRECTORY", tmp_path / "run")
    path = tmp_path / "gateway.yaml"
    settings = {
        "name": "lisbon",
        "state_dir": str(tmp_path / "state"),
        "socket": str(tmp_path / "gone.sock"),
        "broker": {"port": free_port()},
    }
    path.write_text(json.dumps(settings), encoding="utf-8")
    path.chmod(0o644)
    return path


def test_a_station_that_does_not_run_is_looked_at_in_its_files(shell: Shell, config: Path) -> None:
    finished = shell.here("check", "--config", str(config))
    assert finished.status == 7
    assert finished.error == "gateway lisbon, not running: settings, files and this machine were looked at\n"
    assert finished.out.startswith("error     station       the gateway does not run: nobody answers at ")
    assert "sudo outstation gateway join" in finished.out
    found = [json.loads(line) for line in shell.here("check", "--config", str(config), "--json").out.splitlines()]
    assert {each["check"] for each in found} >= {"station", "disk", "clock", "permissions", "ports", "trust"}
    assert all(each["type"] == "finding" and each["about"] is not None for each in found)


def test_the_timer_says_what_is_wrong_where_no_station_can(shell: Shell, config: Path) -> None:
    finished = shell.here("check", "--config", str(config), "--tell")
    assert (finished.status, "error     station" in finished.out, "ok   " in finished.out) == (7, True, False)


def test_wrong_settings_are_told_with_their_line(shell: Shell, config: Path) -> None:
    config.write_text("name: lisbon\nbroker:\n  port: 99999\n", encoding="utf-8")
    finished = shell.here("check", "--config", str(config))
    assert finished.status == 6
    assert finished.out.startswith("error     settings      ")
    assert f"{config}:3" in finished.out
    assert "99999" in finished.out
    assert "1 to 65535" in finished.out
    assert finished.out.splitlines()[-1] == "1 error"


def test_wrong_settings_of_a_station_that_still_runs_are_told_as_well(
    shell: Shell, api: ApiDouble, config: Path, tmp_path: Path
) -> None:
    api.findings = [FINE]
    config.write_text("name: lisbon\nbroker:\n  port: 99999\n", encoding="utf-8")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "gateway.sock").symlink_to(shell.environment["OUTSTATION_SOCKET"])
    finished = shell.here("check", "--config", str(config))
    assert finished.status == 1
    assert f"{config}:3" in finished.out
    assert "gone at its next start" in finished.out
    assert "ok        store" in finished.out


def test_a_machine_with_both_stations_is_looked_at_whole(
    shell: Shell, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = tmp_path / "master.yaml"
    settings = {"name": "m", "state_dir": str(tmp_path / "m"), "socket": str(tmp_path / "m.sock")}
    master.write_text(json.dumps({**settings, "sites": {"listen": f"tcp://127.0.0.1:{free_port()}"}}), encoding="utf-8")
    monkeypatch.setattr(check_asked, "CONFIGS", {"gateway": config, "master": master})
    monkeypatch.delenv("OUTSTATION_SOCKET")
    finished = shell.here("check")
    assert [line.split(",")[0] for line in finished.error.splitlines()] == ["gateway lisbon", "master m"]
    assert finished.status == 7


def test_settings_that_the_package_brings_and_nobody_uses_are_not_looked_at(
    shell: Shell, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = tmp_path / "master.yaml"
    master.write_text("# The master of a fleet.\n", encoding="utf-8")
    monkeypatch.setattr(check_asked, "CONFIGS", {"gateway": config, "master": master})
    monkeypatch.delenv("OUTSTATION_SOCKET")
    assert shell.here("check").error.startswith("gateway lisbon, not running")
    assert "master" not in shell.here("check").error
    config.write_text(f"# The gateway of this site.\nsocket: {tmp_path / 'gone.sock'}\n", encoding="utf-8")
    finished = shell.here("check")
    assert (finished.error.split(",")[0], "outstation gateway join" in finished.out) == ("gateway", True)
    master.write_text("name: [\n", encoding="utf-8")
    finished = shell.here("check")
    assert (finished.error.split(",")[0], finished.out.split()[1]) == ("master", "settings")


def test_what_a_killed_gateway_left_behind_is_not_taken_for_one_that_is_used(
    shell: Shell, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = tmp_path / "master.yaml"
    settings = {"name": "m", "state_dir": str(tmp_path / "m"), "socket": str(tmp_path / "m.sock")}
    master.write_text(json.dumps({**settings, "sites": {"listen": f"tcp://127.0.0.1:{free_port()}"}}), encoding="utf-8")
    config.write_text("# The gateway of this site.\n", encoding="utf-8")
    monkeypatch.setattr(check_asked, "CONFIGS", {"gateway": config, "master": master})
    monkeypatch.setattr(clients, "RUN_DIRECTORY", tmp_path)
    monkeypatch.delenv("OUTSTATION_SOCKET")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "gateway.sock"))
        assert shell.here("check").error.startswith("master m, not running"), "only the file is there"
        door.listen()
        assert check_asked._is_used("gateway", config), "somebody is there, without a name yet"


# --- --fix -----------------------------------------------------------------------------------------------------------


def test_fix_says_what_it_does_and_what_is_left(shell: Shell, config: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "gone.sock"))
    config.chmod(0o666)
    finished = shell.here("check", "--config", str(config), "--fix", "--yes")
    folder, gone = tmp_path / "state", tmp_path / "gone.sock"
    assert f"done  chmod 644 {config}" in finished.error
    assert f"done  rm {gone}" in finished.error
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (config.stat().st_mode & 0o777, gone.exists()) == (0o644, False)
    # What it cannot mend is still said, and so is that it is still wrong.
    assert (finished.status, "permissions" in finished.out.splitlines()[-2]) == (7, True)
    assert "nothing that --fix could mend" in shell.here("check", "--config", str(config), "--fix", "--yes").error


def test_fix_leaves_what_it_may_not_change(shell: Shell, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", refused)
    config.chmod(0o666)
    finished = shell.here("check", "--config", str(config), "--fix", "--yes")
    assert f"left  chmod 644 {config}: Operation not permitted; try: sudo outstation check --fix" in finished.error


@pytest.mark.parametrize(("answer", "mended"), [("y\n", True), ("\n", False)])
def test_fix_asks_first(
    shell: Shell, config: Path, tmp_path: Path, answer: str, mended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            return answer

    monkeypatch.setattr("sys.stdin", Terminal())
    finished = shell.here("check", "--config", str(config), "--fix")
    assert "--fix does this:" in finished.error
    assert (tmp_path / "state").exists() == mended
    assert ("nothing was done" in finished.error) == (not mended)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--fix"], "only what is on this machine can be mended"),
        (["--yes"], "--yes is for --fix"),
        (["--fix", "--tell"], "a timer mends nothing"),
    ],
)
def test_words_that_do_not_go_together_are_refused(shell: Shell, words: list[str], said: str) -> None:
    finished = shell.here("check", *words)
    assert (finished.status, said in finished.error) == (2, True)


def test_fix_without_a_terminal_needs_yes(shell: Shell, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTSTATION_SOCKET")
    finished = shell.here("check", "--config", str(config), "--fix")
    assert (finished.status, "outstation check --fix --yes" in finished.error) == (2, True)


def test_a_gateway_without_a_name_is_told_how_to_join(shell: Shell, config: Path, tmp_path: Path) -> None:
    config.write_text(f"socket: {tmp_path / 'gone.sock'}\nstate_dir: {tmp_path / 'state'}\n", encoding="utf-8")
    finished = shell.here("check", "--config", str(config))
    assert finished.error == "gateway, not running: settings, files and this machine were looked at\n"
    assert (finished.status, "outstation gateway join" in finished.out) == (7, True)
