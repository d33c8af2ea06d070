"""gateway/cli/completion.py, as a shell asks for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli.completion_scripts import SHELLS, script
from tests.peers.api_double import JID, ApiDouble, job
from tests.unit.gateway.cli.conftest import ROOT, Shell

ZONES = ("zone", "zonecode")


def offered(shell: Shell, line: str) -> list[str]:
    """What bash is offered at the end of a line."""
    words = line.split(" ")
    shell.environment |= {
        "_OUTSTATION_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    finished = shell.run()
    assert finished.error == ""
    return finished.out.split()


@pytest.fixture(autouse=True)
def station(api: ApiDouble) -> None:
    api.jobs = [job(), job(jid="20261121031600000000", state="open"), job(jid="$(reboot)")]
    api.sites = [{"site": "lisbon"}, {"site": "porto"}, {"site": "`x`"}]
    api.keys = [{"site": "faro", "state": "pending"}]
    grains = {"os": "Debian", "lens": {"tags": ["night", "wide"]}, "roles": ["door", "$(reboot)"], "cpus": 4}
    api.devices = [
        {"id": "cam-1", "site": "lisbon", "grains": grains},
        {"id": "$(reboot)", "site": "lisbon"},
        {"id": "cam-2", "site": "lisbon", "grains": {"os": "Alpine"}},
    ]
    entry = {"function": "test.ping", "makes": "job", "enabled": True}
    engine = {"module": "slack", "state": "running"}
    api.answers = {
        "/nodegroups": {"nodegroups": {"doors": "G@roles:door", "$(reboot)": "*"}},
        "/schedule": {
            "enabled": True,
            "timezone": "UTC",
            "entries": [{**entry, "name": "nightly"}, {**entry, "name": "$(reboot)"}],
        },
        "/engines": {"engines": [{**engine, "name": "desk"}, {**engine, "name": "`x`"}]},
        "/reactor": {"rules": [{"tag": "door/open"}, {"tag": "door/*"}, {"tag": "$(reboot)"}]},
    }
    api.join_tokens = [{"id": "360c73b90e7c0fcf"}, {"id": "used", "state": "used"}]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("outstation jo", ["jobs"]),
        ("outstation jobs ", ["list", "show", "watch", "cancel", "release"]),
        ("outstation jobs show ", [JID, "20261121031600000000"]),
        ("outstation jobs cancel ", ["20261121031600000000"]),
        ("outstation sites show l", ["lisbon"]),
        ("outstation devices list --site ", ["lisbon", "porto"]),
        ("outstation keys accept ", ["faro"]),
        ("outstation devices show ", ["cam-1", "cam-2"]),
        ("outstation run cam", ["cam-1", "cam-2"]),
        ("outstation run -L cam-1,", ["cam-1,cam-2"]),
        ("outstation run -G ", ["cpus:", "lens:", "os:", "roles:"]),
        ("outstation run -G os:", ["os:Alpine", "os:Debian"]),
        ("outstation devices match -G lens:tags:n", ["lens:tags:night"]),
        ("outstation run -G roles:", ["roles:door"]),
        ("outstation run -E cam", []),
        ("outstation run -N d", ["doors"]),
        ("outstation schedule run ", ["nightly"]),
        ("outstation engines restart ", ["desk"]),
        ("outstation reactor test ", ["door/open"]),
        ("outstation keys token revoke ", ["360c73b90e7c0fcf"]),
        ("outstation jobs show 1 --outcome un", ["unreachable", "unknown"]),
        ("outstation check --js", ["--json"]),
        ("outstation run * test.pi", ["test.ping"]),
        ("outstation run * test.ping,test.pi", ["test.ping,test.ping"]),
        ("outstation run * cmd.run,test.ping,timezone.get_z", [f"cmd.run,test.ping,timezone.get_{z}" for z in ZONES]),
    ],
)
def test_a_shell_is_offered_what_there_is_and_nothing_it_would_run(shell: Shell, line: str, words: list[str]) -> None:
    assert offered(shell, line) == words


def test_a_socket_on_the_line_is_the_one_that_is_asked(api: ApiDouble, shell: Shell) -> None:
    shell.environment["OUTSTATION_SOCKET"] = "/nowhere"
    assert offered(shell, f"outstation --socket {api.path} sites show ") == ["lisbon", "porto"]


def test_without_a_station_nothing_is_offered_and_nothing_is_said(shell: Shell) -> None:
    shell.environment["OUTSTATION_SOCKET"] = "/nowhere"
    assert offered(shell, "outstation sites show ") == []


@pytest.fixture
def typed(api: ApiDouble, tmp_path: Path) -> dict[str, str]:
    """The environment of a shell that finds the program, and the station."""
    program = tmp_path / "bin" / "outstation"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m gateway.cli.main "$@"\n')
    program.chmod(0o755)
    for shell in SHELLS:
        (tmp_path / shell).write_text(script(shell).replace("timeout 3", "timeout 60"))
    path = f"{program.parent}:{os.environ['PATH']}"
    return {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "OUTSTATION_SOCKET": str(api.path),
        "HOME": str(tmp_path),
    }


def answered(shell: str, text: str, environment: dict[str, str]) -> list[str]:
    """What a program for a shell prints, line by line."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: packaging/appliance-packages")
    quiet = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run(
        [shell, *quiet, "-c", text], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("outstation jo", ["jobs"]),
        ("outstation jobs cancel ", ["20261121031600000000"]),
        ("outstation run '*' test.pi", ["test.ping"]),
        # What stands before the colon is on the line already, as bash sees it.
        ("outstation run -G os:D", ["Debian"]),
        ("outstation run -L cam-1,", ["cam-1,cam-2"]),
        ("outstation run -N d", ["doors"]),
        ("outstation schedule run ", ["nightly"]),
    ],
)
def test_bash_offers_it(line: str, words: list[str], typed: dict[str, str]) -> None:
    text = (
        "source \"$HOME/bash\"; COMP_WORDBREAKS=$' \\t\\n\"\\'><=;|&(:'; COMP_LINE=$LINE; COMP_POINT=${#LINE}; "
        '_outstation_completion outstation; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    assert answered("bash", text, {**typed, "LINE": line}) == words


def test_fish_offers_it(typed: dict[str, str]) -> None:
    lines = {
        "outstation jobs cancel ": ["20261121031600000000"],
        "outstation sites show l": ["lisbon"],
        "outstation run -N ": ["doors"],
        "outstation engines restart ": ["desk"],
    }
    for line, words in lines.items():
        found = answered("fish", 'source $HOME/fish; complete -C "$LINE"', {**typed, "LINE": line})
        assert [each.split("\t")[0] for each in found] == words


@pytest.mark.parametrize(
    ("words", "offered_there"),
    [
        ("outstation sites show ''", ["lisbon", "porto"]),
        ("outstation schedule run ''", ["nightly"]),
        ("outstation reactor test ''", ["door/open"]),
        ("outstation run -N ''", ["doors"]),
    ],
)
def test_zsh_offers_it(words: str, offered_there: list[str], typed: dict[str, str]) -> None:
    # Outside of its line editor zsh has no completion going on: what the program tells _arguments is what counts.
    text = (
        'compdef() { :; }; _arguments() { print -r -- "$@"; }; source "$HOME/zsh";'
        f" words=({words}); CURRENT=4; _outstation"
    )
    told = " ".join(answered("zsh", text, typed))
    assert all(each in told for each in offered_there)
    assert "reboot" not in told


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_waits_a_bounded_time_and_hears_no_complaint(shell: str) -> None:
    assert "timeout 3 " in script(shell)
    assert "2>/dev/null" in script(shell)


def test_the_script_for_a_shell_is_printed(shell: Shell) -> None:
    # Which shell it is, is otherwise read off the parent process, which need not be one.
    shell.environment["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"
    finished = shell.run("--show-completion", "bash")
    assert finished.status == 0
    assert "_OUTSTATION_COMPLETE=complete_bash" in finished.out
