"""device_agent/functions: each function as an operator meets it, through the loader."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from device_agent import loader
from device_agent.ended import Ended
from device_agent.host import LocalHost
from device_agent.protocol import limits

GRAINS = {
    "os": "Debian",
    "roles": ["camera", "edge"],
    "location": {"room": {"name": "Dock"}},
    "disks": [{"name": "sda"}],
    "none": None,
    "a/b": {"c:d": 1},
}
HOST = LocalHost(GRAINS)


async def call(name: str, *arg: Any, **kwarg: Any) -> Ended:
    async with asyncio.timeout(20):
        return await loader.call(name, HOST, list(arg), kwarg)


async def test_ping_answers() -> None:
    assert await call("test.ping") == Ended(True)


@pytest.mark.parametrize("value", ["foo bar baz", "", 5, 2.5, None, True, ["a", {"b": b"c"}]])
async def test_echo_returns_what_it_was_given(value: Any) -> None:
    assert await call("test.echo", value) == Ended(value)


async def test_sleep_ends_with_true() -> None:
    assert await call("test.sleep", 0.01) == Ended(True)
    assert await call("test.sleep", "0") == Ended(True)


@pytest.mark.parametrize("length", [-1, "soon", None, True, float("nan"), limits.RUN_LIMIT_MAX_SECONDS + 1])
async def test_sleep_refuses_what_is_no_length_of_time(length: Any) -> None:
    ended = await call("test.sleep", length)
    assert ended.outcome == "refused"
    assert ended.why.startswith("bad_arguments: test.sleep takes (length); length: ")


async def test_fail_fails_as_asked() -> None:
    assert await call("test.fail") == Ended(None, 1, "failed", "the function was asked to fail")
    assert await call("test.fail", "out of film", retcode=3) == Ended(None, 3, "failed", "out of film")


async def test_items_are_all_grains() -> None:
    assert await call("grains.items") == Ended(GRAINS)


@pytest.mark.parametrize(
    ("arg", "expected"),
    [
        (["os"], "Debian"),
        (["location:room:name"], "Dock"),
        (["location:room"], {"name": "Dock"}),
        (["roles:1"], "edge"),
        (["disks:0:name"], "sda"),
        (["none"], None),
        (["absent"], ""),
        (["absent", "else"], "else"),
        (["os:deeper"], ""),
        (["roles:2"], ""),
        (["roles:-1"], ""),
        (["a/b/c:d", "", "/"], ""),
        (["a/b|c:d", "", "|"], 1),
    ],
)
async def test_get_finds_a_grain_or_gives_the_default(arg: list[Any], expected: Any) -> None:
    assert await call("grains.get", *arg) == Ended(expected)


async def test_get_refuses_an_empty_delimiter() -> None:
    assert (await call("grains.get", "os", delimiter="")).outcome == "refused"


async def test_run_returns_what_was_printed_and_no_last_newline() -> None:
    assert await call("cmd.run", "echo hello; echo") == Ended("hello")


async def test_run_puts_standard_error_behind_standard_output() -> None:
    assert await call("cmd.run", "echo err >&2; echo out") == Ended("out\nerr")
    assert await call("cmd.run", "echo err >&2") == Ended("err")


async def test_run_uses_a_shell_unless_told_not_to() -> None:
    assert await call("cmd.run", "echo a | tr a b && echo $((1 + 1))") == Ended("b\n2")
    assert await call("cmd.run", "echo a | tr $HOME 'x y'", python_shell=False) == Ended("a | tr $HOME x y")
    assert await call("cmd.run", "test -n $BASH && echo yes", shell="/bin/bash") == Ended("yes")


async def test_run_takes_a_folder_input_and_environment(tmp_path: Path) -> None:
    ended = await call(
        "cmd.run",
        'pwd; cat; echo "$WORD$COUNT"',
        cwd=str(tmp_path),
        stdin="first\nsecond\n",
        env={"WORD": "é", "COUNT": 3},
    )
    assert ended == Ended(f"{tmp_path.resolve()}\nfirst\nsecond\né3")


async def test_a_command_that_fails_keeps_its_output_and_its_code() -> None:
    assert await call("cmd.run", "echo half; exit 3") == Ended("half", 3, "failed", "the command exited with 3")
    assert (await call("cmd.run", "there-is-no-such-program")).retcode == 127


async def test_a_command_ended_by_a_signal_says_which() -> None:
    assert await call("cmd.run", "kill -USR1 $$") == Ended("", -10, "failed", "the command was ended by SIGUSR1")


async def test_a_command_past_its_time_is_stopped_and_keeps_its_output() -> None:
    ended = await call("cmd.run", "echo begun; sleep 1000", timeout=0.3)
    assert ended == Ended("begun", 1, "timed_out", "the command was stopped after 0.3 seconds")


async def test_a_command_that_cannot_start_says_why(tmp_path: Path) -> None:
    ended = await call("cmd.run", "true", cwd=str(tmp_path / "absent"))
    assert (ended.outcome, ended.retcode, ended.value) == ("failed", 127, None)
    assert "absent" in ended.why
    assert (await call("cmd.run", "no-such-program x", python_shell=False)).why.startswith(
        "the command did not start: "
    )
    assert (await call("cmd.run", "echo 'unclosed", python_shell=False)).outcome == "failed"
    assert (await call("cmd.run", "echo \0")).outcome == "failed"
    assert (await call("cmd.run", "true", env={"A=B": "x"})).outcome == "failed"


@pytest.mark.parametrize(
    ("arg", "kwarg"),
    [
        ([], {}),
        ([5], {}),
        ([""], {}),
        ([["ls"]], {}),
        (["true"], {"timeout": 0}),
        (["true"], {"env": ["A"]}),
        (["true"], {"no": 1}),
    ],
)
async def test_run_refuses_arguments_of_another_kind(arg: list[Any], kwarg: dict[str, Any]) -> None:
    ended = await call("cmd.run", *arg, **kwarg)
    assert ended.outcome == "refused"
    assert ended.why.startswith("bad_arguments: cmd.run takes (cmd, cwd=None")


async def test_output_that_is_not_utf_8_is_still_text() -> None:
    assert await call("cmd.run", r"printf 'a\377b'") == Ended("a\ufffdb")


async def test_long_output_is_cut_and_says_by_how_much() -> None:
    ended = await call("cmd.run", "head -c 1000000 /dev/zero | tr '\\0' x")
    assert ended.outcome == "ok"
    assert (
        ended.value == "x" * limits.VALUE_TEXT_BYTES + f"\n[{1_000_000 - limits.VALUE_TEXT_BYTES} more bytes were cut]"
    )


async def test_long_output_on_both_streams_still_fits() -> None:
    ended = await call("cmd.run", r"head -c 200000 /dev/zero | tr '\0' '\377'; head -c 200000 /dev/zero >&2")
    assert ended.outcome == "ok"
    assert len(ended.value.encode()) < limits.VALUE_TEXT_BYTES + 100


async def test_functions_are_listed_by_module_and_by_glob() -> None:
    assert await call("sys.list_functions") == Ended(list(loader.names()))
    assert await call("sys.list_functions", "grains") == Ended(["grains.get", "grains.items"])
    assert await call("sys.list_functions", "test.[ep]*", "cmd.run") == Ended(["cmd.run", "test.echo", "test.ping"])
    assert await call("sys.list_functions", "nothing") == Ended([])


async def test_every_function_is_documented_with_an_example_that_names_it() -> None:
    documented = (await call("sys.doc")).value
    assert list(documented) == list(loader.names())
    for name, text in documented.items():
        assert text.startswith(f"{name} takes (")
        assert "CLI Example:" in text
        assert "outstation run '" in text
        assert f" {name}" in text.partition("CLI Example:")[2]


async def test_documentation_is_given_by_name() -> None:
    assert list((await call("sys.doc", "cmd.run")).value) == ["cmd.run"]
    assert list((await call("sys.doc", "sys")).value) == ["sys.doc", "sys.list_functions"]
