"""What is kept of the station above: fetched once, judged, bounded, and there while nobody can be asked."""

from __future__ import annotations

import asyncio
import os
from itertools import count
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
    Listing,
    decode,
    encode,
)
from gateway.files import fetches, store
from gateway.files.settings import FilesSettings
from gateway.metrics import Metrics
from tests.peers.clock import HandClock
from tests.peers.file_server import Server, server, settled, sha256
from tests.peers.small_disk import small_disk
from tests.peers.waiting import until

LARGE = CHUNK_BYTES * 5 + 77


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetches, "AGAIN_FIRST_SECONDS", 0.01)
    monkeypatch.setattr(fetches, "AGAIN_CEILING_SECONDS", 0.02)
    monkeypatch.setattr(fetches, "HOLD_SECONDS", 0.2)
    monkeypatch.setattr(fetches, "FAILED_SECONDS", 0.0)


async def found(made: Server, path: str) -> FileEntry:
    return decode(await made.ask(FIND, encode(FindFile(path))), FileEntry)


async def collected(made: Server, entry: FileEntry) -> bytes:
    """A whole file, as a device collects it."""
    data = b""
    while len(data) < entry.size:
        data += await made.ask(CHUNK, encode(AskChunk(entry, len(data))))
    return data


async def test_a_file_comes_once_however_many_ask_and_is_there_when_the_line_is_cut(tmp_path: Path) -> None:
    data = settled(tmp_path / "srv/deep/fw.bin", os.urandom(LARGE))
    async with server(tmp_path / "up", {"base": [tmp_path / "srv"]}) as top:
        above = top.above()
        async with server(tmp_path / "site", above=above) as site:
            entry = await found(site, "deep/fw.bin")
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(collected(site, entry)) for _ in range(30)]
            assert {task.result() for task in tasks} == {data}
            assert above.chunk_bytes == LARGE
            assert decode(await site.ask(LIST, encode(ListFiles())), Listing).paths == ["deep/fw.bin"]
            with pytest.raises(Refused, match="not_found"):
                await found(site, "absent")
            above.cut = True
            assert await found(site, "deep/fw.bin") == entry
            assert await collected(site, entry) == data
        # Also after a restart of the gateway, cut off from the beginning.
        async with server(tmp_path / "site", above=above) as site:
            assert await found(site, "deep/fw.bin") == entry
            assert decode(await site.ask(LIST, encode(ListFiles())), Listing).paths == ["deep/fw.bin"]
            assert await collected(site, entry) == data
            assert [each.path for each in await site.files.listed("base")] == ["deep/fw.bin"]
            with pytest.raises(Refused, match="not_found"):
                await found(site, "absent")
            with pytest.raises(Refused, match="cut_off"):
                await found(site, "never asked for")
        assert above.chunk_bytes == LARGE


async def test_a_cut_in_the_middle_goes_on_where_it_was(tmp_path: Path) -> None:
    data = settled(tmp_path / "srv/a", os.urandom(LARGE))
    async with server(tmp_path / "up", {"base": [tmp_path / "srv"]}) as top:
        above = top.above()
        chunks = count(1)

        def cut_after_three(about: str) -> None:
            if about == CHUNK and above.chunk_bytes >= 3 * CHUNK_BYTES and not above.cut and next(chunks) == 1:
                above.cut = True

        above.before = cut_after_three
        async with server(tmp_path / "site", above=above) as site:
            entry = await found(site, "a")
            async with asyncio.TaskGroup() as group:
                task = group.create_task(collected(site, entry))
                await until(lambda: site.metrics.counters["files_unanswered"] > 2, what="that nobody answers")
                assert not task.done()
                above.cut = False
            assert task.result() == data
        # What was under way when the line was cut came twice, and no more than that.
        assert above.chunk_bytes <= LARGE + 4 * CHUNK_BYTES


async def test_a_gateway_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    data = settled(tmp_path / "srv/a", os.urandom(LARGE))
    async with server(tmp_path / "up", {"base": [tmp_path / "srv"]}) as top:
        above = top.above()

        def stop(about: str) -> None:
            above.cut = above.cut or (about == CHUNK and above.chunk_bytes >= 3 * CHUNK_BYTES)

        above.before = stop
        async with server(tmp_path / "site", above=above) as site:
            entry = await found(site, "a")
            await site.files.fetches.piece(entry, 0, 1)
            await until(lambda: site.metrics.counters["files_unanswered"] > 2, what="that nobody answers")
        # The process is gone; of the last chunk it had written a part.
        (part,) = (path for path in (tmp_path / "site/files/parts").iterdir() if path.suffix != ".marks")
        with part.open("r+b") as file:
            file.seek(CHUNK_BYTES + 100)
            file.write(b"torn")
        above.before = lambda _: None
        above.cut, above.chunk_bytes = False, 0
        async with server(tmp_path / "site", above=above) as site:
            assert await collected(site, entry) == data
        assert 0 < above.chunk_bytes < LARGE - CHUNK_BYTES


async def test_a_corrupt_chunk_is_known_and_comes_again(tmp_path: Path) -> None:
    data = settled(tmp_path / "srv/a", os.urandom(LARGE))
    async with server(tmp_path / "up", {"base": [tmp_path / "srv"]}) as top:
        above = top.above()
        wrong = count(1)
        above.garble = lambda asked, sent: (
            bytes(len(sent)) if asked.offset == CHUNK_BYTES * 2 and next(wrong) < 3 else sent
        )
        async with server(tmp_path / "site", above=above) as site:
            assert await collected(site, await found(site, "a")) == data
            assert site.refused("corrupt") == 2


async def test_a_chunk_that_never_comes_right_ends_the_fetch_and_others_are_served(tmp_path: Path) -> None:
    settled(tmp_path / "srv/a", os.urandom(LARGE))
    other = settled(tmp_path / "srv/b", os.urandom(LARGE))
    async with server(tmp_path / "up", {"base": [tmp_path / "srv"]}) as top:
        above = top.above()
        above.garble = lambda asked, sent: bytes(len(sent)) if asked.entry.path == "a" else sent
        async with server(tmp_path / "site", above=above) as site:
            entry = await found(site, "a")
            with pytest.raises(Refused, match="corrupt"):
                await collected(site, entry)
            assert await collected(site, await found(site, "b")) == other


async def test_what_rots_on_the_disk_is_known_and_fetched_again(tmp_path: Path) -> None:
    data = settled(tmp_path / "srv/a", os.urandom(LARGE))
    async with server(tmp_path / "up", {"base": [tmp_path / "srv"]}) as top:
        above = top.above()
        async with server(tmp_path / "site", above=above) as site:
            entry = await found(site, "a")
            await collected(site, entry)
            await until(lambda: site.files.store.has(entry.sha256), what="the whole")
        kept = tmp_path / "site/files/whole" / entry.sha256[:2] / entry.sha256
        with kept.open("r+b") as file:
            file.seek(CHUNK_BYTES + 9)
            file.write(b"rot")
        above.chunk_bytes = 0
        async with server(tmp_path / "site", above=above) as site:
            assert await collected(site, entry) == data
            assert site.refused("damaged") == 1
        assert above.chunk_bytes == CHUNK_BYTES


async def test_a_file_that_changed_above_is_refused_and_found_anew(tmp_path: Path) -> None:
    settled(tmp_path / "srv/a", os.urandom(LARGE))
    settings = FilesSettings(fresh_seconds=3600.0)
    async with server(tmp_path / "up", {"base": [tmp_path / "srv"]}) as top:
        above = top.above()
        async with server(tmp_path / "site", above=above, settings=settings) as site:
            entry = await found(site, "a")
            data = settled(tmp_path / "srv/a", os.urandom(LARGE))
            with pytest.raises(Refused, match="changed"):
                await collected(site, entry)
            entry = await found(site, "a")
            assert await collected(site, entry) == data


async def test_a_full_cache_lets_the_oldest_go_and_spares_what_is_needed(tmp_path: Path) -> None:
    clock = HandClock()
    settings = FilesSettings(cache_megabytes=1, fresh_seconds=0.0)
    data = {name: settled(tmp_path / f"srv/{name}", os.urandom(400_000)) for name in ("a", "b", "c", "d")}
    large = settled(tmp_path / "srv/large", os.urandom(1_000_001))
    async with server(tmp_path / "up", {"base": [tmp_path / "srv"]}) as top:
        above = top.above()
        async with server(tmp_path / "site", above=above, settings=settings, clock=clock) as site:
            kept = site.files.store
            wanted: list[str] = []
            site.files.spare_for(lambda: wanted)

            async def get(name: str) -> bool:
                entry = await found(site, name)
                assert await collected(site, entry) == data[name]
                await until(lambda: kept.has(entry.sha256), what=f"the whole of {name}")
                clock.move(store.BUSY_SECONDS + 1.0)
                return True

            def here() -> set[str]:
                return {name for name, body in data.items() if kept.has(sha256(body))}

            assert await get("a")
            assert await get("b")
            assert await get("c")
            assert here() == {"b", "c"}
            wanted += ["salt://b"]
            assert await get("d")
            assert here() == {"b", "d"}
            assert kept.used_bytes == 800_000
            # A job needs the one, somebody reads the other.
            await kept.piece(sha256(data["d"]), 0, 10)
            with pytest.raises(Refused, match=r"cache_full.*files\.cache_megabytes"):
                await collected(site, await found(site, "a"))
            with pytest.raises(Refused, match="cache_full"):
                await collected(site, await found(site, "large"))
            assert here() == {"b", "d"}
            assert site.metrics.counters["files_evicted"] == 2
            assert "1000001 bytes have no room in 1000000" in kept.full
            wanted.clear()
            clock.move(store.BUSY_SECONDS + 1.0)
            assert await get("a")
            assert kept.full == ""
            assert len(large) == 1_000_001
            assert not list((tmp_path / "site/files/parts").iterdir())


async def test_the_rate_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = settled(tmp_path / "srv/a", os.urandom(LARGE))
    slept: list[float] = []
    clock = HandClock()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.move(seconds)

    monkeypatch.setattr("upstream.link_budget.asyncio.sleep", sleep)
    settings = FilesSettings(max_bytes_per_second=100_000)
    async with (
        server(tmp_path / "up", {"base": [tmp_path / "srv"]}) as top,
        server(tmp_path / "site", above=top.above(), settings=settings, clock=clock) as site,
    ):
        assert await site.files.read(await found(site, "a"), LARGE) == data
    assert sum(slept) >= (LARGE - 100_000) / 100_000


async def test_a_relay_serves_its_sites_and_hands_on_while_it_fetches(tmp_path: Path) -> None:
    data = settled(tmp_path / "srv/a", os.urandom(LARGE))
    async with server(tmp_path / "up", {"base": [tmp_path / "srv"]}) as top:
        above = top.above()
        async with server(tmp_path / "relay", above=above) as relay:
            middle = relay.above()
            async with server(tmp_path / "one", above=middle) as one, server(tmp_path / "two", above=middle) as two:
                entry = await found(one, "a")
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(collected(site, entry)) for site in (one, two)]
                assert [task.result() for task in tasks] == [data, data]
            assert (above.chunk_bytes, middle.chunk_bytes) == (LARGE, 2 * LARGE)
            above.cut = True
            async with server(tmp_path / "three", above=middle) as three:
                assert await collected(three, await found(three, "a")) == data


async def test_own_roots_come_before_those_above(tmp_path: Path) -> None:
    settled(tmp_path / "srv/a", b"above")
    settled(tmp_path / "srv/b", b"above")
    settled(tmp_path / "own/a", b"own")
    async with server(tmp_path / "up", {"base": [tmp_path / "srv"]}) as top:
        above = top.above()
        async with server(tmp_path / "site", {"base": [tmp_path / "own"]}, above=above) as site:
            listed = await site.files.listed("base")
            assert [(each.path, await site.files.read(each, 10)) for each in listed] == [("a", b"own"), ("b", b"above")]


async def test_a_master_is_asked_again_when_what_it_said_is_old(tmp_path: Path) -> None:
    clock = HandClock()
    settled(tmp_path / "srv/a", b"first")
    settings = FilesSettings(fresh_seconds=10.0)
    async with server(tmp_path / "up", {"base": [tmp_path / "srv"]}) as top:
        above = top.above()
        async with server(tmp_path / "site", above=above, settings=settings, clock=clock) as site:
            for _ in range(5):
                assert (await found(site, "a")).sha256 == sha256(b"first")
            settled(tmp_path / "srv/a", b"other")
            clock.move(9.0)
            assert (await found(site, "a")).sha256 == sha256(b"first")
            assert above.asked[FIND] == 1
            clock.move(1.0)
            assert (await found(site, "a")).sha256 == sha256(b"other")
            assert above.asked[FIND] == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
async def test_a_full_disk_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    data = os.urandom(LARGE)
    with small_disk(tmp_path / "disk", megabytes=1) as disk:
        kept = store.ContentStore(disk.folder / "files", 10**9, Metrics(HandClock()), HandClock())
        await kept.open()
        with pytest.raises(Refused, match="disk_full"):
            await kept.begin(sha256(data), 2**21, bytes(16 * 16))
        assert not list((disk.folder / "files/parts").iterdir())
        assert kept.used_bytes == 0
        assert await kept.begin(sha256(data), LARGE, bytes(16 * 6)) == set()


async def test_a_device_cannot_have_a_gateway_fetch_what_it_makes_up(tmp_path: Path) -> None:
    """Else one device could have the whole cache give way to a file of 64 GB that nobody has."""
    data = settled(tmp_path / "srv/a", os.urandom(LARGE))
    async with server(tmp_path / "up", {"base": [tmp_path / "srv"]}) as top:
        above = top.above()
        async with server(tmp_path / "site", above=above) as site:
            entry = await found(site, "a")
            assert await collected(site, entry) == data
            for made_up in (
                FileEntry("a", "base", 2**35, entry.sha256[::-1]),
                FileEntry("a", "base", 2**35, sha256(b"other")),
                FileEntry("b", "base", 2**35, sha256(b"other")),
            ):
                with pytest.raises(Refused, match="changed"):
                    await site.ask(CHUNK, encode(AskChunk(made_up, 0)))
            assert above.asked["file.hashes"] == 1
            assert site.files.store.used_bytes == LARGE


async def test_what_is_being_fetched_keeps_its_room_however_long_the_line_is_cut(tmp_path: Path) -> None:
    clock = HandClock()
    settings = FilesSettings(cache_megabytes=1, fresh_seconds=0.0)
    data = settled(tmp_path / "srv/a", os.urandom(LARGE))
    settled(tmp_path / "srv/b", os.urandom(LARGE))
    async with server(tmp_path / "up", {"base": [tmp_path / "srv"]}) as top:
        above = top.above()
        async with server(tmp_path / "site", above=above, settings=settings, clock=clock) as site:
            first, second = await found(site, "a"), await found(site, "b")
            above.before = lambda about: setattr(above, "cut", above.cut or above.chunk_bytes > CHUNK_BYTES)
            async with asyncio.TaskGroup() as group:
                task = group.create_task(collected(site, first))
                await until(lambda: site.metrics.counters["files_unanswered"] > 0, what="that nobody answers")
                clock.move(store.BUSY_SECONDS * 10)
                with pytest.raises(Refused, match="cache_full"):
                    site.files.store.make_room(second.size)
                above.before = lambda _: None
                above.cut = False
            assert task.result() == data


class Liar:
    """A station above that answers what it likes."""

    def __init__(self, answers: dict[str, bytes]) -> None:
        self._answers = answers

    async def ask(self, about: str, body: bytes = b"", *, patience: float = 60.0) -> bytes:
        return self._answers[about]


@pytest.mark.parametrize(
    ("about", "answer", "reason"),
    [
        (FIND, b"\xc1", "malformed"),
        (FIND, encode(FileEntry("b", "base", 1, "0" * 64)), "wrong_answer"),
        (FIND, encode(FileEntry("../a", "base", 1, "0" * 64)), "wrong_answer"),
        ("file.hashes", b"x" * 48, "corrupt"),
        ("file.hashes", b"x" * 7, "corrupt"),
        (CHUNK, b"too many bytes", "corrupt"),
    ],
)
async def test_an_answer_from_above_that_is_none_is_refused(
    tmp_path: Path, about: str, answer: bytes, reason: str
) -> None:
    good = {FIND: encode(FileEntry("a", "base", 5, sha256(b"hello"))), "file.hashes": b"x" * 16, CHUNK: b"hello"}
    liar: Any = Liar({**good, about: answer})
    async with server(tmp_path / "site", above=liar) as site:
        with pytest.raises(Refused, match=reason):
            await collected(site, await found(site, "a"))


def test_what_a_listing_names_is_looked_at() -> None:
    with pytest.raises(Refused):
        decode(b"\x91\x91\xa0", Listing)
