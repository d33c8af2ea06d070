"""The figures of ``bench ssh``: medians, which part comes last, and how the answers of other tools are counted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.bench import ssh_peers
from gateway.bench.figures import Found, Measured, Used, medians
from gateway.bench.ssh import MEANING, fields


def found(ours: float, peers: Mapping[str, ssh_peers.Figures] | None = None, **more: float) -> Found:
    return Found(Measured(10, ours, 1.0, {"gateway": Used(1.0, None, 5)}), more, peers or {})


def test_the_worst_part_is_last_and_each_figure_is_a_median() -> None:
    repeats = [
        {
            "connect": found(2.0, {"pyinfra": {"devices": 10, "ok": 10, "seconds": number}}),
            "command": found(number, n=number),
            "memory": found(1.0),
        }
        for number in (3.0, 5.0, 9.0)
    ]
    assert list(repeats[0]) == list(MEANING)
    parts = medians(repeats)
    assert list(parts) == ["memory", "connect", "command"]
    line = fields("command", {"devices": 10}, parts["command"], median=True)
    assert (line["bench"], line["part"], line["ours"], line["n"], line["peers"]) == ("ssh", "command", 5.0, 5.0, {})
    assert parts["connect"].peers == {"pyinfra": {"devices": 10, "ok": 10, "seconds": 5.0}}


def test_only_tools_that_are_there_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ssh_peers.found(tmp_path) == {}
    program = tmp_path / "salt/bin/salt-ssh"
    program.parent.mkdir(parents=True)
    program.touch()
    assert list(ssh_peers.found(tmp_path)) == ["salt-ssh"]
    # It is run elsewhere than where the folder was named.
    monkeypatch.chdir(tmp_path)
    assert ssh_peers.found(Path())["salt-ssh"].program == program


def test_only_right_answers_of_other_tools_count(tmp_path: Path) -> None:
    for name in ("salt/bin/salt-ssh", "pyinfra/bin/pyinfra"):
        program = tmp_path / name
        program.parent.mkdir(parents=True)
        program.touch()
    tools = ssh_peers.found(tmp_path)
    said = {"a": {"stdout": "here\n", "retcode": 0}, "b": {"stdout": "", "retcode": 255}, "c": "no way there"}
    assert tools["salt-ssh"].count("a warning\n" + json.dumps(said), "here") == 1
    assert tools["salt-ssh"].count("nothing", "here") == 0
    text = (
        "--> Starting operation: server.shell (echo here)\n[d-5]  here\n    [d-5]  Success\n[d-7] there\n[d-11] here\n"
    )
    assert tools["pyinfra"].count(text, "here") == 2
