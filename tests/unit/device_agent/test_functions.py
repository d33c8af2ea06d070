"""device_agent/functions: each function as an operator meets it, through the loader."""

from __future__ import annotations

import asyncio
import difflib
import itertools
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from device_agent import loader
from device_agent.command_call import REST
from device_agent.ended import Ended
from device_agent.facts import CUSTOM_BYTES
from device_agent.functions.grains import GRAINS_FILE_BYTES
from device_agent.local_host import LocalHost
from device_agent.own import Own
from device_agent.protocol import limits
from device_agent.trust.reach import FUNCTIONS

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
    async with asyncio.timeout(60):
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


async def test_run_keeps_standard_error_where_it_came() -> None:
    assert await call("cmd.run", "echo err >&2; echo out") == Ended("err\nout")
    assert await call("cmd.run", "echo err >&2; echo out", redirect_stderr=False) == Ended("out\nerr")
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
    ended = await call("cmd.run", "echo begun; sleep 1000", timeout=3)
    assert ended == Ended("begun", 1, "timed_out", "the command was stopped after 3 seconds")


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
        ([True], {}),
        ([""], {}),
        ([[]], {}),
        (["true"], {"timeout": 0}),
        (["true"], {"env": [["A"]]}),
        (["true"], {"env": "A=x"}),
        (["true"], {"no": 1}),
    ],
)
async def test_run_refuses_arguments_of_another_kind(arg: list[Any], kwarg: dict[str, Any]) -> None:
    ended = await call("cmd.run", *arg, **kwarg)
    assert ended.outcome == "refused"
    assert ended.why.startswith("bad_arguments: cmd.run takes (cmd, cwd=None")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take another group")
async def test_a_command_runs_in_a_group_without_another_user() -> None:
    assert await call("cmd.run", "id -gn; id -un", group="nogroup") == Ended("nogroup\nroot")


async def test_output_that_is_not_utf_8_is_still_text() -> None:
    assert await call("cmd.run", r"printf 'a\377b'") == Ended("a\ufffdb")


async def test_long_output_is_cut_and_says_by_how_much_and_where_the_rest_is() -> None:
    ended = await call("cmd.run", "head -c 1000000 /dev/zero | tr '\\0' x")
    assert ended.outcome == "ok"
    lost = 1_000_000 - limits.VALUE_TEXT_BYTES
    assert ended.value == "x" * limits.VALUE_TEXT_BYTES + f"\n[{lost} more bytes were cut; {REST}]"
    assert "file.seek_read" in REST


async def test_long_output_on_both_streams_still_fits() -> None:
    ended = await call("cmd.run", r"head -c 200000 /dev/zero | tr '\0' '\377'; head -c 200000 /dev/zero >&2")
    assert ended.outcome == "ok"
    assert len(ended.value.encode()) < limits.VALUE_TEXT_BYTES + 100


async def test_functions_are_listed_by_module_and_by_glob() -> None:
    assert await call("sys.list_functions") == Ended(list(loader.names()))
    assert await call("sys.list_functions", "saltutil.*job") == Ended(
        ["saltutil.find_job", "saltutil.kill_job", "saltutil.term_job"]
    )
    assert "grains.get" in (await call("sys.list_functions", "grains")).value
    assert await call("sys.list_functions", "test.e*o*", "cmd.run") == Ended(["cmd.run", "test.echo", "test.exception"])
    assert await call("sys.list_functions", "nothing") == Ended([])


async def test_every_function_is_documented_with_an_example_that_names_it() -> None:
    documented = (await call("sys.doc")).value
    assert list(documented) == list(loader.names())
    for name, text in documented.items():
        assert text.startswith(f"{name} takes (")
        assert text.splitlines()[1].startswith(FUNCTIONS[name])
        assert "CLI Example:" in text
        assert "outstation run '" in text
        assert f" {name}" in text.partition("CLI Example:")[2]


async def test_documentation_is_given_by_name() -> None:
    assert list((await call("sys.doc", "cmd.run")).value) == ["cmd.run"]
    assert {"sys.doc", "sys.list_functions"} < set((await call("sys.doc", "sys")).value)


async def test_more_grains_than_are_read_again_are_not_written(tmp_path: Path) -> None:
    kept, host = tmp_path / "grains", LocalHost({"id": "cam-1"})
    own = Own(grains_file=str(kept))
    kept.write_text("built: 2026-11-22\n")
    assert (await loader.call("grains.setval", host, ["floor", 3], {}, own)).outcome == "ok"
    ended = await loader.call("grains.setval", host, ["map", "x" * CUSTOM_BYTES], {}, own)
    assert ended.outcome == "failed"
    assert f"at most {CUSTOM_BYTES}" in ended.why
    for value, words in (([7] * 5000, "more than 4000 values"), (["'"] * 8000, "longer than")):
        ended = await loader.call("grains.setval", host, ["map", value], {}, own)
        assert ended.outcome == "failed"
        assert words in ended.why
    assert (kept.read_text(), host.grains) == ("built: 2026-11-22\nfloor: 3\n", {"id": "cam-1", "floor": 3})


async def test_of_grains_that_are_set_at_once_none_is_lost(tmp_path: Path) -> None:
    kept, host, own = tmp_path / "grains", LocalHost({}), Own(grains_file=str(tmp_path / "grains"))
    async with asyncio.TaskGroup() as tasks:
        for number in range(8):
            tasks.create_task(loader.call("grains.setval", host, [f"floor{number}", number], {}, own))
            tasks.create_task(loader.call("grains.append", host, ["roles", str(number)], {}, own))
            tasks.create_task(loader.call("grains.set", host, [f"place:{number}", number], {}, own))
    found = yaml.safe_load(kept.read_text())
    assert {name: found[name] for name in found if name.startswith("floor")} == {f"floor{n}": n for n in range(8)}
    assert sorted(found["roles"]) == [str(number) for number in range(8)]
    assert sorted(found["place"]) == [str(number) for number in range(8)]


@pytest.mark.timeout(120)
async def test_a_file_of_grains_that_grows_without_end_when_it_is_read_is_left_alone(tmp_path: Path) -> None:
    kept = tmp_path / "grains"
    names = "abcdefghij"
    levels = ["a: &a {k: 1}"]
    levels += [
        f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 10)}]}}" for before, name in itertools.pairwise(names)
    ]
    kept.write_text("\n".join(levels))
    ended = await loader.call("grains.setval", LocalHost({}), ["floor", 3], {}, Own(grains_file=str(kept)))
    assert ended.outcome == "failed"
    assert "so it was not changed" in ended.why
    kept.write_text("# " + "x" * GRAINS_FILE_BYTES)
    ended = await loader.call("grains.setval", LocalHost({}), ["floor", 3], {}, Own(grains_file=str(kept)))
    assert ended.outcome == "failed"
    assert "so it was not changed" in ended.why
    assert kept.stat().st_size > GRAINS_FILE_BYTES


async def changed(path: Path, text: str, pattern: str, repl: str) -> Ended:
    path.write_text(text)
    return await call("file.replace", str(path), pattern, repl, backup=False)


async def test_the_difference_of_a_long_file_is_that_of_its_lines_around(tmp_path: Path) -> None:
    lines = [f"line {number}\n" for number in range(50_000)]
    ended = await changed(tmp_path / "f", "".join(lines), "^line 4000.$", "new")
    expected = "".join(difflib.unified_diff(lines, [*lines[:40_000], *["new\n"] * 10, *lines[40_010:]]))
    assert ended == Ended(expected)


async def test_whatever_a_file_holds_its_difference_is_found_soon_and_is_bounded(tmp_path: Path) -> None:
    draw = random.Random(1)
    text = "".join(f"word {draw.randrange(150)}\n" for _ in range(100_000))
    # Of work, and not by a clock that goes on while others work.
    begun = time.process_time()
    ended = await changed(tmp_path / "f", text, r"word (\d*)0$", r"x \1")
    assert time.process_time() - begun < 10
    assert ended.outcome == "ok"
    assert ended.value.startswith("--- \n+++ \n@@ -")
    assert ended.value.endswith(" more bytes were cut; the file itself is as it is now: file.seek_read]")
    assert "x 1\n" in (tmp_path / "f").read_text()


async def test_what_was_deleted_is_listed_as_far_as_there_is_room_and_counted_beyond(tmp_path: Path) -> None:
    for number in range(1200):
        (tmp_path / f"{number:04}{'x' * 200}").touch()
    place = str(tmp_path)
    ended = await call("file.find", place, type="f", delete="f")
    assert ended.outcome == "ok"
    assert not list(tmp_path.iterdir())
    listed = len(ended.value)
    assert 0 < listed < 1200
    assert ended.why == f"{1200 - listed} more were done and are not listed"
    assert ended.value == sorted(ended.value)


async def test_what_a_command_says_of_many_files_is_bounded_too(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / str(number)).write_text("word " * 10_000)
    ended = await call("file.find", str(tmp_path), type="f", exec="cat {}", print="path,size")
    assert ended.outcome == "ok"
    assert ended.why.endswith(" more were done and are not listed")
    ended = await call("file.find", str(tmp_path), regex="[01]$", delete="f", print="size,name")
    assert sorted(map(str, ended.value)) == sorted([f"{tmp_path}/0", f"{tmp_path}/1", "[50000, '0']", "[50000, '1']"])


async def test_an_age_full_of_spaces_is_read_at_once(tmp_path: Path) -> None:
    ended = await call("file.find", str(tmp_path), mtime=" " * 5000 + "x")
    assert ended.value.startswith("error: invalid time interval")
