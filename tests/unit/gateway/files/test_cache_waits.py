"""The cache of a site when somebody lies, is silent, or asks for what is not there: nobody else waits for it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import Refused
from device_agent.protocol.file_questions import (
    CHUNK,
    CHUNK_BYTES,
    FIND,
    LIST,
    AskChunk,
    FileEntry,
    FindFile,
    ListFiles,
    decode,
    encode,
)
from device_agent.questions import Unanswered
from gateway.files import fetches, kept_answers, store
from gateway.metrics import Metrics
from tests.peers.clock import HandClock
from tests.peers.file_server import Server, server, settled, sha256
from tests.peers.waiting import until

LARGE = CHUNK_BYTES * 5 + 77


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetches, "AGAIN_FIRST_SECONDS", 0.01)
    monkeypatch.setattr(fetches, "AGAIN_CEILING_SECONDS", 0.02)
    monkeypatch.setattr(fetches, "HOLD_SECONDS", 0.2)
    monkeypatch.setattr(fetches, "FAILED_SECONDS", 0.0)


class Liar:
    """A station above that answers what it likes."""

    def __init__(self, answers: dict[str, bytes]) -> None:
        self._answers = answers

    async def ask(self, about: str, body: bytes = b"", *, patience: float = 60.0) -> bytes:
        return self._answers[about]


class Silent:
    """A station above that hears and says nothing."""

    def __init__(self) -> None:
        self.asked = 0
        self.over = asyncio.Event()

    async def ask(self, about: str, body: bytes = b"", *, patience: float = 60.0) -> bytes:
        self.asked += 1
        await self.over.wait()
        raise Unanswered("nobody answered")


async def found(made: Server, path: str) -> FileEntry:
    return decode(await made.ask(FIND, encode(FindFile(path))), FileEntry)


async def collected(made: Server, entry: FileEntry) -> bytes:
    """A whole file, as a device collects it."""
    data = b""
    while len(data) < entry.size:
        data += await made.ask(CHUNK, encode(AskChunk(entry, len(data))))
    return data


async def refusal_of(made: Server, path: str) -> str:
    with pytest.raises(Refused) as refused:
        await found(made, path)
    return refused.value.reason


async def test_marks_that_rot_on_the_disk_are_asked_for_anew(tmp_path: Path) -> None:
    data = settled(tmp_path / "srv/a", os.urandom(LARGE))
    async with server(tmp_path / "up", {"base": [tmp_path / "srv"]}) as top:
        above = top.above()
        async with server(tmp_path / "site", above=above) as site:
            entry = await found(site, "a")
            await collected(site, entry)
            await until(lambda: site.files.store.has(entry.sha256), what="the whole")
        kept = tmp_path / f"site/files/whole/{entry.sha256[:2]}/{entry.sha256}.marks"
        kept.write_bytes(bytes(kept.stat().st_size))
        async with server(tmp_path / "site", above=above) as site:
            with pytest.raises(Refused, match="corrupt"):
                await collected(site, entry)
            assert await collected(site, entry) == data


async def test_a_content_that_nobody_brings_holds_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetches, "TURN_SECONDS", 0.0)
    names = [f"lost-{number}" for number in range(fetches.AT_ONCE)]
    lost = {name: settled(tmp_path / f"srv/{name}", os.urandom(LARGE)) for name in names}
    data = settled(tmp_path / "srv/there", os.urandom(LARGE))
    async with server(tmp_path / "up", {"base": [tmp_path / "srv"]}) as top:
        above = top.above()
        # As a relay answers that has none of it yet.
        above.garble = lambda asked, sent: b"" if asked.entry.path in lost else sent
        async with server(tmp_path / "site", above=above) as site, asyncio.TaskGroup() as group:
            tasks = [group.create_task(collected(site, await found(site, name))) for name in lost]
            await until(lambda: above.asked[CHUNK] >= len(lost), what="that they have their turns")
            assert await collected(site, await found(site, "there")) == data
            above.garble = lambda _, sent: sent
        assert [task.result() for task in tasks] == list(lost.values())


async def test_a_size_that_a_station_above_makes_up_is_refused(tmp_path: Path) -> None:
    """Else whoever reads the file would wait for bytes that nobody has, and with it all of the station."""
    settled(tmp_path / "srv/a", b"hello")
    async with server(tmp_path / "up", {"base": [tmp_path / "srv"]}) as top:
        above: Any = top.above()
        async with server(tmp_path / "site", above=above) as site:
            entry = await found(site, "a")
            assert await site.files.read(entry, 10) == b"hello"
            await until(lambda: site.files.store.has(entry.sha256), what="the whole")
            site.files.above = Liar({FIND: encode(FileEntry("a", "base", 6, entry.sha256))})
            with pytest.raises(Refused, match="wrong_size"):
                await site.files.read(await found(site, "a"), 10)


async def test_room_is_made_for_what_a_content_grows_by(tmp_path: Path) -> None:
    kept = store.ContentStore(tmp_path, 1_000_000, Metrics(HandClock()), HandClock())
    await kept.open()
    await kept.begin("0" * 64, 1, bytes(16))
    with pytest.raises(Refused, match="cache_full"):
        await kept.begin("0" * 64, 1_000_001, bytes(16 * 8))
    assert kept.used_bytes == 1


async def test_a_content_that_gave_way_is_no_error_of_the_station(tmp_path: Path) -> None:
    data = os.urandom(LARGE)
    kept = store.ContentStore(tmp_path, 1_000_000, Metrics(HandClock()), HandClock())
    await kept.open()
    await kept.begin(sha256(data), LARGE, bytes(16 * 6))
    kept.drop(sha256(data))
    assert await kept.piece(sha256(data), 0, 10) is None


async def test_those_who_wait_for_an_answer_that_does_not_come_wait_together(tmp_path: Path) -> None:
    settled(tmp_path / "srv/a", b"hello")
    async with server(tmp_path / "up", {"base": [tmp_path / "srv"]}) as top:
        above = top.above()
        async with server(tmp_path / "site", above=above) as site:
            entry = await found(site, "a")
            above.asked.clear()
            silent = Silent()
            site.files.above = silent
            async with asyncio.TaskGroup() as group:
                known = [group.create_task(found(site, "a")) for _ in range(7)]
                unknown = [group.create_task(refusal_of(site, "b")) for _ in range(7)]
                await until(lambda: silent.asked >= 2, what="that the master is asked")
                silent.over.set()
            assert [task.result() for task in known] == [entry] * 7
            assert {task.result() for task in unknown} == {"cut_off"}
            assert silent.asked == 2


async def test_what_a_device_makes_up_drives_out_no_answer_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in (("KEPT_MOST", 6), ("NOTHING_MOST", 3), ("TRIM_EVERY", 1)):
        monkeypatch.setattr(kept_answers, name, most)
    settled(tmp_path / "srv/a", b"hello")
    async with server(tmp_path / "up", {"base": [tmp_path / "srv"]}) as top:
        above = top.above()
        async with server(tmp_path / "site", above=above) as site:
            entry = await found(site, "a")
            for number in range(20):
                assert await refusal_of(site, f"made-up-{number}") == "not_found"
                await site.ask(LIST, encode(ListFiles("base", f"made-up-{number}")))
        above.cut = True
        async with server(tmp_path / "site", above=above) as site:
            assert await found(site, "a") == entry
