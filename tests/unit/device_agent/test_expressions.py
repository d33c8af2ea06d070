"""Regular expressions of operators: the same as ``re``, and nobody waits for one that takes for ever."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from device_agent import expressions, loader
from device_agent.ended import Ended, FunctionFailed
from device_agent.expressions import Expression, NoExpression
from device_agent.local_command import run_here
from device_agent.local_host import LocalHost
from tests.peers.waiting import until

HOST = LocalHost({})
TEXT = "alpha: 1\nbeta: 2\n\nAlpha: 3 \udcff\u00e9\nlast"
PATTERNS = [
    "alpha",
    "^alpha: (\\d)$",
    "^",
    "$",
    "",
    "(?P<name>\\w+): (\\d)",
    "(a)|b",
    "[a-z]+",
    "(?i)ALPHA",
    "(\\w)\\1?",
    ".*",
    "\\Z",
    "x*",
    "\u00e9",
]
NEVER = [r"(a+)+$", r"(a|a)*$", r"(?:a?){40}a{40}$", r"(.*)(.*)(.*)(.*)(.*)(.*)(.*)b\1$"]
EVIL = "a" * 4000 + "!\n"


def workers() -> list[int]:
    """The processes at work on an expression of this one."""
    found = []
    for pid in [pid for thread in Path("/proc/self/task").glob("*/children") for pid in thread.read_text().split()]:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"expression_worker.py" in words:
            found.append(int(pid))
    return found


@pytest.fixture(params=["at once", "by a process"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "by a process":
        monkeypatch.setattr(expressions, "STEPS", -1)
    return str(request.param)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("flags", [0, re.MULTILINE, re.MULTILINE | re.IGNORECASE, re.DOTALL, re.VERBOSE])
async def test_what_is_found_and_replaced_is_what_re_says(flags: int) -> None:
    data = TEXT.encode(errors="surrogateescape")
    for pattern in PATTERNS[:: 2 if flags == re.MULTILINE else 5]:
        plain = re.compile(pattern.encode(), flags)
        ours = Expression(pattern, flags, binary=True)
        lines = TEXT.splitlines()
        read = [line.encode(errors="surrogateescape") for line in lines]
        assert await ours.search(lines) == [plain.search(line) is not None for line in read]
        assert await ours.match(lines) == [plain.match(line) is not None for line in read]
        for new, count in (("<\\g<0>>", 0), ("\u00e9\\n", 2), ("", 1)):
            changed, hits = plain.subn(new.encode(), data, count)
            assert await ours.replace(new, TEXT, count) == (changed.decode(errors="surrogateescape"), hits)


@pytest.mark.usefixtures("way")
async def test_text_is_read_as_text_where_it_is_no_bytes() -> None:
    assert await Expression("^.$").search(["\u00e9", "ab", "\udcff", ""]) == [True, False, True, False]
    assert await Expression("\u00c9", re.IGNORECASE).match(["\u00e9", "e"]) == [True, False]
    assert await Expression("x").match([]) == []


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("pattern", ["(", "*", "a{2,1}", "(?P<", "[", "\\"])
async def test_what_is_no_expression_is_said(pattern: str) -> None:
    with pytest.raises(NoExpression, match="is no regular expression"):
        await Expression(pattern).search(["text"])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("new", ["\\1", "\\g<name>", "\\g<", "\\q"])
async def test_what_cannot_take_the_place_is_said_also_where_nothing_is_found(new: str) -> None:
    with pytest.raises(FunctionFailed, match="cannot take the place of what was found"):
        await Expression("x", binary=True).replace(new, "no such letter", 0)


@pytest.mark.usefixtures("way")
async def test_a_text_does_not_grow_beyond_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "TEXT_BYTES", 64)
    assert await Expression("a", binary=True).replace("bb", "a" * 32, 0) == ("b" * 64, 32)
    with pytest.raises(FunctionFailed, match="longer than 64 bytes"):
        await Expression("a", binary=True).replace("bbb", "a" * 32, 0)


@pytest.mark.parametrize("pattern", NEVER)
def test_what_could_take_for_ever_is_never_taken_at_once(pattern: str) -> None:
    assert not Expression(pattern, binary=True)._is_light([EVIL], anchored=True)


def test_what_is_common_is_taken_at_once() -> None:
    for pattern in ("^127", "PermitRootLogin", "^#?debug=.*", r"^pool \S+ iburst$"):
        assert Expression(pattern, re.MULTILINE, binary=True)._is_light(["x" * 300], anchored=False)


@pytest.mark.parametrize(
    ("fun", "arg", "kwarg"),
    [
        ("file.search", [NEVER[0]], {}),
        ("file.replace", [NEVER[1], "b"], {}),
        ("file.line", ["new"], {"mode": "ensure", "after": NEVER[0]}),
        ("file.contains_regex", [NEVER[3]], {}),
    ],
)
async def test_one_that_takes_for_ever_fails_and_changes_nothing(
    fun: str, arg: list[Any], kwarg: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expressions, "CPU_SECONDS", 1)
    path = tmp_path / "prepared"
    path.write_text(EVIL)
    ended = await loader.call(fun, HOST, [str(path), *arg], kwarg)
    assert ended.outcome == "failed"
    assert "was given up after 1 s of work" in ended.why
    assert path.read_text() == EVIL


async def test_names_and_processes_are_looked_through_the_same_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expressions, "CPU_SECONDS", 1)
    (tmp_path / ("a" * 200)).touch()
    calls: list[tuple[str, list[Any], dict[str, Any]]] = [
        ("file.find", [str(tmp_path)], {"regex": "(a+)+$(?<=b)"}),
        ("file.find", [str(tmp_path)], {"iname": "*a" * 40 + "b"}),
        ("ps.pgrep", [r"(.*)*\Bno-such-process$"], {"pattern_is_regex": True, "full": True}),
    ]
    for fun, arg, kwarg in calls:
        ended = await loader.call(fun, HOST, arg, kwarg)
        assert (ended.outcome, "was given up after 1 s of work" in ended.why) == ("failed", True), (fun, ended)


async def test_others_are_answered_while_one_is_at_work_and_with_its_job_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "prepared"
    path.write_text(EVIL)
    async with asyncio.TaskGroup() as group:
        held = group.create_task(loader.call("file.search", HOST, [str(path), NEVER[0]], {}))
        [pid] = await until(workers, what="it is looked for")
        assert await loader.call("test.echo", HOST, ["here"], {}) == Ended("here")
        assert workers() == [pid]
        held.cancel()
    assert not Path(f"/proc/{pid}").exists()


async def test_so_many_are_at_work_at_once_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "WORKERS", 2)
    begun: list[int] = []
    most = 0
    whole: Callable[..., Any] = run_here

    async def counted(*words: Any, **how: Any) -> Any:
        nonlocal most
        begun.append(1)
        most = max(most, len(begun))
        try:
            return await whole(*words, **how)
        finally:
            begun.pop()

    monkeypatch.setattr("device_agent.expressions.run_here", counted)
    async with asyncio.TaskGroup() as group:
        looks = [group.create_task(Expression("(?=a)").match(["a", "b"])) for _ in range(6)]
    assert [look.result() for look in looks] == [[True, False]] * 6
    assert most == 2
