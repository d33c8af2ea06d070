"""gateway/cli/run.py."""

from __future__ import annotations

import io
import json
import os
from typing import Any

import pytest

from gateway.cli.arguments import STDIN_BYTES
from gateway.cli.run import user_name
from tests.peers.api_double import JID, ApiDouble, job, outcome, watched
from tests.unit.gateway.cli.conftest import Shell

PING = ("run", "*", "test.ping")


def asked(api: ApiDouble) -> dict[str, Any]:
    ((_, body),) = api.asked("POST", "/jobs")
    assert body is not None
    return body


def test_a_job_is_asked_for_and_watched(api: ApiDouble, shell: Shell) -> None:
    finished = shell.run(*PING)
    assert (finished.status, finished.out) == (0, "cam-0001\tok\ttrue\n")
    assert finished.error == f"jid {JID}: 1 expected: 1 ok\n"
    wanted = asked(api)
    assert isinstance(wanted.pop("user"), str)
    assert wanted == {
        "tgt": "*",
        "tgt_type": "glob",
        "fun": "test.ping",
        "arg": [],
        "kwarg": {},
        "late": "drop",
        "expires_seconds": None,
        "run_limit": None,
    }


def test_arguments_and_options_reach_the_station(api: ApiDouble, shell: Shell) -> None:
    line = ["run", "-G", "os:Deb*", "test.echo", "3", "{a: [x]}", "timeout=5", "--late", "run", "--expires", "2h"]
    assert shell.here(*line, "--limit", "90s", "--json", "--", "-1", "--json").status == 0
    wanted = asked(api)
    assert (wanted["tgt"], wanted["tgt_type"], wanted["fun"]) == ("os:Deb*", "grain", "test.echo")
    assert wanted["arg"] == [3, {"a": ["x"]}, -1, "--json"]
    assert wanted["kwarg"] == {"timeout": 5}
    assert (wanted["late"], wanted["expires_seconds"], wanted["run_limit"]) == ("run", 7200, 90)


def piped(body: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(body), encoding="utf-8")


def test_arguments_of_standard_input_in_another_encoding_are_refused_by_line(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", piped("first\nGerät\n".encode("iso-8859-1")))
    finished = shell.here("run", "cam-1", "test.echo", "--args-stdin")
    assert (finished.status, finished.out) == (2, "")
    why = "line 2 of standard input is not UTF-8: convert it with iconv -f ISO-8859-1 -t UTF-8"
    assert why in finished.error


def test_arguments_of_standard_input_stand_behind_those_typed(
    api: ApiDouble, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", piped(b"secret word\ntimeout=5\n[a, b]\n"))
    assert shell.here("run", "cam-1", "test.echo", "typed", "--args-stdin", "--json").status == 0
    wanted = asked(api)
    assert (wanted["arg"], wanted["kwarg"]) == (["typed", "secret word", ["a", "b"]], {"timeout": 5})


def test_a_line_of_standard_input_is_an_argument_with_all_that_is_in_it(
    api: ApiDouble, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", piped("a\x0bb\u2028c\x1cd\r\n\n--json\n\tx".encode()))
    assert shell.here("run", "cam-1", "test.echo", "--args-stdin", "--json").status == 0
    assert asked(api)["arg"] == ["a\x0bb\u2028c\x1cd", "", "--json", "\tx"]


def test_named_arguments_that_are_not_to_be_read_keep_their_text(api: ApiDouble, shell: Shell) -> None:
    assert shell.here("run", "cam-1", "test.kwarg", "--no-parse", "a, b.c", "a=1", "b.c=yes", "d=1").status == 0
    assert asked(api)["kwarg"] == {"a": "1", "b.c": "yes", "d": 1}


def test_a_script_of_several_lines_arrives_as_it_is(api: ApiDouble, shell: Shell) -> None:
    script = "HOME=/tmp\nfor i in 1 2\ndo\techo $i # \ndone\n"
    assert shell.here("run", "cam-1", "cmd.run", script, f"stdin={script[10:22]}\n").status == 0
    assert (asked(api)["arg"], asked(api)["kwarg"]) == ([script], {"stdin": "for i in 1 2\n"})


def test_more_of_standard_input_than_a_job_carries_is_refused(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", piped(b"x" * (STDIN_BYTES + 1)))
    finished = shell.here("run", "cam-1", "test.echo", "--args-stdin")
    assert (finished.status, finished.out) == (2, "")
    assert "standard input" in finished.error


@pytest.mark.parametrize(
    ("typed", "arg"),
    [
        (["test.ping,test.version"], [[], []]),
        (["test.ping,test.version", ","], [[], []]),
        (["test.ping,cmd.run", ",", "uptime"], [[], ["uptime"]]),
        (["cmd.run,test.ping", "uptime", "cwd=/", ","], [["uptime", {"cwd": "/", "__kwarg__": True}], []]),
        (["test.echo,test.echo", "a, b", ",", "3"], [["a, b"], [3]]),
    ],
)
def test_several_functions_have_a_comma_between_their_arguments(
    typed: list[str], arg: list[Any], api: ApiDouble, shell: Shell
) -> None:
    assert shell.here("run", "*", *typed).status == 0
    wanted = asked(api)
    assert (wanted["fun"], wanted["arg"], wanted["kwarg"]) == (typed[0], arg, {})


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (["test.ping,cmd.run", "uptime"], "2 functions have arguments for 1"),
        (["test.ping,cmd.run", ",", "uptime", ","], "2 functions have arguments for 3"),
        (["test.ping,"], "found ''"),
        (["test.ping, test.version"], "found ' test.version'"),
        (["test.ping,cmd.run", ",", "cwd=/", "cwd=/tmp"], "cwd is given twice"),
    ],
)
def test_what_is_not_typed_so_is_said(typed: list[str], says: str, api: ApiDouble, shell: Shell) -> None:
    finished = shell.here("run", "*", *typed)
    assert finished.status == 2
    assert says in " ".join(finished.error.split())
    assert not api.asked("POST", "/jobs")


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ([], "glob"),
        (["-C"], "compound"),
        (["-E"], "pcre"),
        (["-L"], "list"),
        (["-G"], "grain"),
        (["--target-type", "compound"], "compound"),
        (["-C", "--target-type", "compound"], "compound"),
    ],
)
def test_targets_have_salts_letters(api: ApiDouble, shell: Shell, options: list[str], kind: str) -> None:
    assert shell.here("run", *options, "x", "test.ping").status == 0
    assert asked(api)["tgt_type"] == kind


def test_detach_prints_the_jid_alone_and_how_to_come_back(api: ApiDouble, shell: Shell) -> None:
    finished = shell.here(*PING, "--detach")
    assert (finished.status, finished.out) == (0, f"{JID}\n")
    assert f"outstation jobs watch {JID}" in finished.error
    assert not api.asked("GET", f"/jobs/{JID}/watch")


def test_detach_with_json_prints_the_job(api: ApiDouble, shell: Shell) -> None:
    shown = json.loads(shell.here(*PING, "--detach", "--json").out)
    assert (shown["type"], shown["jid"], shown["state"]) == ("job", JID, "open")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (["*", "ping"], "invalid value for FUNCTION: a function is module.function, as in test.ping; found 'ping'"),
        (["*", "a.b.c"], "invalid value for FUNCTION: a function is module.function, as in test.ping; found 'a.b.c'"),
        (["*", "test.ping", "a=1", "a=2"], "invalid value for ARG: the argument a is given twice"),
        (["-G", "-E", "*", "test.ping"], "invalid value for TARGET: a target is of one kind, found grain and pcre"),
        (["*", "test.ping", "--late", "never"], "invalid value for '--late': 'never' is not one of 'drop', 'run'"),
        (["*"], "missing argument 'FUNCTION'"),
    ],
)
def test_a_mistake_is_one_line_and_the_right_usage(api: ApiDouble, shell: Shell, line: list[str], error: str) -> None:
    finished = shell.here("run", *line)
    assert (finished.status, finished.out) == (2, "")
    assert finished.error.splitlines() == [
        f"error: {error}",
        "usage: outstation run [OPTION]… TARGET FUNCTION [ARG|NAME=VALUE]…",
        "help:  outstation run --help",
    ]
    assert not api.requests


def test_a_refusal_by_policy_has_its_lines_and_its_status(api: ApiDouble, shell: Shell) -> None:
    facts = {"id": "policy.fun", "what": "this site does not run it", "found": "cmd.run", "allowed": "test.*"}
    api.refusals["/jobs"] = (403, {"error": facts})
    finished = shell.here("run", "*", "cmd.run", "ls")
    assert (finished.status, finished.out) == (8, "")
    assert finished.error == "error: this site does not run it\n  found:   cmd.run\n  allowed: test.*\n"


def test_every_outcome_but_ok_is_a_failure(api: ApiDouble, shell: Shell) -> None:
    for name in ("failed", "refused", "expired", "unreachable", "timed_out", "unknown", "cancelled", "site_dark"):
        api.stream = watched([outcome("cam-1"), outcome("cam-2", outcome=name, value=None)])
        assert shell.here(*PING).status == 1, name


def test_who_asks_is_written_as_salt_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_USER", "alice")
    assert user_name() == "sudo_alice"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("LOGNAME", "bob")
    assert user_name() == "bob"


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.delenv("SUDO_USER", raising=False)
    monkeypatch.setattr("getpass.getuser", nameless)
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    assert user_name() == "uid-1234"


def test_the_reason_goes_with_the_job_and_a_held_one_says_what_it_waits_for(api: ApiDouble, shell: Shell) -> None:
    words = f"held: it starts when an approver releases it: outstation jobs release {JID}"
    api.jobs = [job(held=True)]
    finished = shell.here("run", "*", "test.ping", "--why", "ticket 7", "--detach")
    assert (api.asked("POST", "/jobs")[0][1] or {})["why"] == "ticket 7"
    assert (finished.out, finished.error.splitlines()[0]) == (f"{JID}\n", words)
    api.stream = watched([outcome()], held=True)
    assert words in shell.here("run", "*", "test.ping").error
