"""device_agent/mine.py and its words: Salt's shapes of ``mine_functions``, and when values are refreshed."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest

from device_agent import mine
from device_agent.ended import FunctionFailed
from device_agent.errors import Refused
from device_agent.functions import mine as functions
from device_agent.local_host import LocalHost
from device_agent.own import Own
from device_agent.pillar import HeldPillar
from device_agent.protocol import mine as words
from device_agent.protocol.messages import decode_value
from device_agent.protocol.pillar import ITEMS, PillarTold


@pytest.mark.parametrize(
    ("given", "fun", "arg", "kwarg", "allow"),
    [
        (None, "name", [], {}, ("", "glob")),
        ([], "name", [], {}, ("", "glob")),
        ({}, "name", [], {}, ("", "glob")),
        (["a", 1], "name", ["a", 1], {}, ("", "glob")),
        ([{"mine_function": "test.echo"}, "a", {"b": 2}], "test.echo", ["a"], {"b": 2}, ("", "glob")),
        ({"mine_function": "test.arg", "b": 2}, "test.arg", [], {"b": 2}, ("", "glob")),
        ([{"allow_tgt": "G@a:b"}, {"allow_tgt_type": "compound"}], "name", [], {}, ("G@a:b", "compound")),
        ({"allow_tgt": ["cam-1", "cam-2"]}, "name", [], {}, ("cam-1,cam-2", "list")),
    ],
)
def test_every_shape_that_salt_has_is_read(
    given: Any, fun: str, arg: list[Any], kwarg: dict[str, Any], allow: tuple[str, str]
) -> None:
    call = words.call("name", given)
    assert (call.name, call.fun, call.arg, call.kwarg) == ("name", fun, arg, kwarg)
    assert (call.allow_tgt, call.allow_tgt_type) == allow


@pytest.mark.parametrize(
    "given",
    [
        "test.ping",
        5,
        [["test.ping"]],
        ["test.ping", "test.ping"],
        {"x": 5},
        {"x": "text"},
        {5: []},
        {"": []},
        {"x": {"mine_function": 5}},
        {"x": {"allow_tgt": 5}},
        {f"x{number}": [] for number in range(words.ENTRIES + 1)},
    ],
)
def test_what_has_none_of_them_is_refused(given: Any) -> None:
    with pytest.raises(Refused):
        words.calls(given)


def test_a_list_is_of_names() -> None:
    assert [(call.name, call.fun) for call in words.calls(["test.ping", "test.true"])] == [
        ("test.ping", "test.ping"),
        ("test.true", "test.true"),
    ]


class Keeping:
    """A station that takes what it is asked."""

    def __init__(self) -> None:
        self.kept: list[words.Keep] = []

    async def ask(self, about: str, body: bytes = b"", *, patience: float = 60.0) -> bytes:
        assert about == words.KEEP
        self.kept.append(words.decode_keep(body))
        return b""


async def test_what_fails_is_left_out_and_the_others_go_in_as_many_questions_as_it_takes() -> None:
    station = Keeping()
    large = {f"large-{number}": [{"mine_function": "test.echo"}, "x" * 60_000] for number in range(3)}
    calls = words.calls({"fails": [{"mine_function": "test.exception"}], "mine.update": [], "no.such": [], **large})
    failed = await mine.refresh(calls, LocalHost({}), Own(station=station), clear=True)
    assert len(failed) == 3
    assert [[entry.name for entry in each.entries] for each in station.kept] == [["large-0", "large-1"], ["large-2"]]
    assert [each.clear for each in station.kept] == [True, False]


async def test_a_refresh_that_fails_is_tried_again_soon_and_without_an_interval_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mine, "AGAIN_SECONDS", 0.01)
    turns = list[int]()

    async def turn() -> None:
        turns.append(1)
        if len(turns) < 3:
            raise FunctionFailed("nobody answered")

    async with asyncio.timeout(60):
        await mine.keep_fresh(turn, 0, random.Random(1), first=0.0)
    assert len(turns) == 3


async def test_it_is_refreshed_on_the_interval_for_ever() -> None:
    turns, enough = list[int](), asyncio.Event()

    async def turn() -> None:
        turns.append(1)
        if len(turns) == 4:
            enough.set()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(mine.keep_fresh(turn, 0.0001, random.Random(1), first=0.0))
        await enough.wait()
        task.cancel()


class Giving(Keeping):
    """It gives a pillar as well."""

    def __init__(self, pillar: dict[str, Any]) -> None:
        super().__init__()
        self.pillar = pillar

    async def ask(self, about: str, body: bytes = b"", *, patience: float = 60.0) -> bytes:
        if about == ITEMS:
            return msgspec.msgpack.encode(PillarTold(msgspec.msgpack.encode(self.pillar)))
        return await super().ask(about, body, patience=patience)


async def test_the_pillar_adds_what_looks_to_what_the_settings_say(caplog: pytest.LogCaptureFixture) -> None:
    said = {
        "test.echo": ["from the pillar"],
        "told": [{"mine_function": "test.echo"}, "a value of the pillar"],
        "shadow": [{"mine_function": "file.read"}, "/etc/shadow"],
        "cmd.run": ["id"],
        "mine.get": [],
    }
    station = Giving({"mine_functions": said})
    own = Own(
        station=station, pillar=HeldPillar(station), settings={"mine_functions": {"test.echo": ["from the settings"]}}
    )
    assert await functions.update(LocalHost({}), own=own) is True
    [kept] = station.kept
    assert {entry.name: decode_value(entry.value) for entry in kept.entries} == {
        "test.echo": "from the settings",
        "told": "a value of the pillar",
    }
    assert await functions.valid(LocalHost({}), own=own) == {
        "test.echo": ["from the settings"],
        "told": {"test.echo": []},
    }
    assert "file.read" in caplog.text
    assert "/etc/shadow" not in caplog.text
    # What is no set of functions adds none, and of a pillar that cannot be had there is none.
    for wrong in ("text", 5, {"x": 5}, [1]):
        assert mine.from_pillar({"mine_functions": wrong}, {}) == []
    assert await functions.update(LocalHost({}), own=Own(station=Keeping())) is None


def test_an_entry_of_the_pillar_that_is_wrong_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    said = {"test.ping": [], "bad": 5, "test.echo": ["x"], "worse": {"mine_function": "test.echo", "allow_tgt": 427}}
    assert [call.name for call in mine.from_pillar({"mine_functions": said}, {})] == ["test.ping", "test.echo"]
    assert "bad: arguments are a list or a mapping" in caplog.text
    assert "worse: allow_tgt and allow_tgt_type are text" in caplog.text


class Choosy(Keeping):
    """It refuses the first page for a target, or for another reason."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason

    async def ask(self, about: str, body: bytes = b"", *, patience: float = 60.0) -> bytes:
        answer = await super().ask(about, body, patience=patience)
        if len(self.kept) == 1:
            raise Refused(self.reason, "allow_tgt of n0: no target")
        return answer


@pytest.mark.parametrize(("reason", "pages"), [("bad_target", 3), ("mine_full", 1)])
async def test_a_page_with_a_target_that_the_station_refuses_stops_no_other_page(reason: str, pages: int) -> None:
    station = Choosy(reason)
    entries = [words.Entry(f"n{number}", b"x" * words.VALUE_BYTES) for number in range(5)]
    with pytest.raises(FunctionFailed, match=reason):
        await mine.keep(Own(station=station), entries, clear=True)
    assert [page.clear for page in station.kept] == [True, False, False][:pages]
