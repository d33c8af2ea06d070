"""gateway/cli/completion.py, as a shell asks for it."""

from __future__ import annotations

import pytest

from tests.peers.api_double import JID, ApiDouble, job
from tests.unit.gateway.cli.conftest import Shell


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
    api.devices = [{"id": "cam-1", "site": "lisbon"}, {"id": "$(reboot)", "site": "lisbon"}]
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
        ("outstation devices show ", ["cam-1"]),
        ("outstation keys token revoke ", ["360c73b90e7c0fcf"]),
        ("outstation jobs show 1 --outcome un", ["unreachable", "unknown"]),
        ("outstation check --js", ["--json"]),
        ("outstation run * test.pi", ["test.ping"]),
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


def test_the_script_for_a_shell_is_printed(shell: Shell) -> None:
    # Which shell it is, is otherwise read off the parent process, which need not be one.
    shell.environment["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"
    finished = shell.run("--show-completion", "bash")
    assert finished.status == 0
    assert "_OUTSTATION_COMPLETE=complete_bash" in finished.out
