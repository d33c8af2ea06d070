"""Modules from a real file server, by the questions that a device asks: in pieces, later, changed meanwhile, or not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from device_agent import loader
from device_agent.custom import station_files
from device_agent.custom.modules import CustomModules
from device_agent.ended import Ended
from device_agent.errors import Refused
from device_agent.local_host import LocalHost
from device_agent.own import Own
from device_agent.protocol.file_questions import CHUNK, CHUNK_BYTES, FIND
from device_agent.questions import Station, Unanswered
from tests.peers.file_server import Server, server
from tests.peers.fleet import Fleet
from tests.peers.released import DOOR, LENS, RELEASE_KEY, lay, release

ROOT = replace(Fleet().root, releases=(RELEASE_KEY.public,))
LARGE = f'{DOOR}\nPICTURE = "{"x" * (CHUNK_BYTES + 1000)}"\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return lay(tmp_path / "salt", {"_modules/door.py": LARGE, "_grains/lens.py": LENS})


@pytest.fixture
async def station(tmp_path: Path, root: Path) -> AsyncIterator[Server]:
    release(root)
    async with server(tmp_path / "station", {"base": [root], "dev": [tmp_path / "nothing"]}) as made:
        yield made


@pytest.fixture
def modules(tmp_path: Path) -> CustomModules:
    return CustomModules(tmp_path / "custom", lambda: ROOT)


async def sync(modules: CustomModules, station: Station, fun: str = "sync_modules", *arg: str) -> Ended:
    own = Own(custom=modules, station=station)
    return await loader.call(f"saltutil.{fun}", LocalHost({}), list(arg), {}, own)


async def test_a_module_of_several_pieces_is_brought_whole_and_runs(station: Server, modules: CustomModules) -> None:
    assert await sync(modules, station) == Ended(["modules.door"])
    assert (modules.folder / "_modules" / "door.py").read_text() == LARGE
    told = await loader.call("door.status", LocalHost({}), [], {}, Own(custom=modules))
    assert told.value == {"door": "shut", "times": 1}
    everything: dict[str, list[str]] = {kind: [] for kind in ("modules", "beacons", "engines", "runners", "states")}
    assert await sync(modules, station, "sync_all") == Ended({**everything, "grains": ["grains.lens"]})
    assert await sync(modules, station, "sync_all", "base,dev") == Ended({**everything, "grains": []})


async def test_a_station_that_serves_nothing_brings_nothing(tmp_path: Path, modules: CustomModules) -> None:
    async with server(tmp_path / "bare") as bare:
        assert await sync(modules, bare) == Ended([])
        assert await sync(modules, bare, "sync_modules", "no_such") == Ended([])


async def test_facts_that_cannot_be_told_are_named_by_the_sync(
    station: Server, modules: CustomModules, root: Path
) -> None:
    lay(root, {"_grains/lens.py": "async def f(host):\n    return 1 / 0\n"})
    release(root, 2)

    async def regrain() -> None:
        await modules.told(LocalHost({}), {})

    own = Own(custom=modules, station=station, regrain=regrain)
    ended = await loader.call("saltutil.sync_grains", LocalHost({}), [], {}, own)
    assert (ended.value, ended.outcome) == (["grains.lens"], "failed")
    assert "_grains/lens.py: f: ZeroDivisionError" in ended.why
    # Not asked to collect them, it has nothing to complain of.
    assert (await loader.call("saltutil.sync_grains", LocalHost({}), [], {"refresh": False}, own)).outcome == "ok"


class Odd:
    """A station whose answers to one kind of question are what a test says first, then its own."""

    def __init__(self, station: Server, about: str, *first: bytes | Exception) -> None:
        self._station = station
        self._about = about
        self._first = list(first)

    async def ask(self, about: str, body: bytes = b"", *, patience: float = 60.0) -> bytes:
        if about == self._about and self._first:
            answer = self._first.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        return await self._station.ask(about, body, patience=patience)


async def test_a_station_that_has_not_got_it_yet_is_asked_again(
    station: Server, modules: CustomModules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(station_files, "AGAIN_SECONDS", 0.0)
    odd = Odd(station, CHUNK, b"", Refused("busy"), b"")
    assert await sync(modules, odd) == Ended(["modules.door"])
    monkeypatch.setattr(station_files, "AGAIN_TIMES", 3)
    (modules.folder / "_modules" / "door.py").unlink()
    ended = await sync(modules, Odd(station, CHUNK, *[b""] * 4))
    # The list did not come; the one that is known counts on, and what it names comes.
    assert ended.value == ["modules.door"]
    assert ended.why == "module_refused: not_here: _release: the station has not got it in time"


@pytest.mark.parametrize(
    ("about", "answer", "why"),
    [
        (CHUNK, b"x" * 200_000, "wrong_answer"),
        (CHUNK, Refused("changed", "another file by now"), "changed: _release: another file by now"),
        (CHUNK, b"x", "altered"),
        (FIND, b"no entry", "salt://_release"),
        (FIND, Unanswered("nobody answered"), "nobody answered"),
    ],
)
async def test_a_hostile_or_absent_station_brings_nothing_and_is_named(
    station: Server, modules: CustomModules, about: str, answer: bytes | Exception, why: str
) -> None:
    ended = await sync(modules, Odd(station, about, answer))
    assert (ended.outcome, why in ended.why) == ("failed", True), ended
    mended = await sync(modules, station)
    assert mended.outcome == "ok"
