"""Files and pillar from a Salt master: what comes up the uplink once, and what is refused."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from device_agent.clock import Clock
from device_agent.errors import Refused
from device_agent.protocol.file_questions import (
    CHUNK,
    CHUNK_BYTES,
    FIND,
    AskChunk,
    AskHashes,
    FileEntry,
    FindFile,
    decode,
    encode,
)
from device_agent.protocol.pillar import OF, PillarOfWanted, PillarTold
from device_agent.questions import Unanswered
from gateway.files import fetches
from gateway.files.settings import FilesSettings
from gateway.metrics import Metrics
from gateway.salt import above_files
from gateway.salt.above import SaltAnswers
from gateway.salt.above_files import SaltFiles
from gateway.salt.above_pillar import SaltPillar
from gateway.salt.file_parts import FileParts
from tests.peers.clock import HandClock
from tests.peers.file_server import Server, server, sha256
from tests.peers.waiting import until

BUFFER = 256 * 1024
"""What the master hands out at once."""

LARGE = 3 * BUFFER + 77


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetches, "AGAIN_FIRST_SECONDS", 0.01)
    monkeypatch.setattr(fetches, "AGAIN_CEILING_SECONDS", 0.02)
    monkeypatch.setattr(fetches, "HOLD_SECONDS", 0.2)
    monkeypatch.setattr(fetches, "FAILED_SECONDS", 0.0)


class Master:
    """Implements ``SaltAbove`` as far as it is asked here, with what a stock master was seen to answer."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.said: dict[str, Any] = {}
        self.hash_type = "sha256"
        self.whole: dict[str, Any] = {}
        self.asked: Counter[str] = Counter()
        self.cut_after = 10**9

    async def request(self, cmd: str, fields: Mapping[str, Any], *, patience: float) -> Any:
        self.asked[cmd] += 1
        if self.asked[cmd] > self.cut_after:
            raise Unanswered("the link was lost")
        data = self.files.get(fields.get("path", ""))
        match cmd:
            case "_file_list":
                return sorted(self.files)
            case "_file_hash_and_stat":
                if data is None:
                    return ["", None]
                return [{"hash_type": self.hash_type, "hsum": sha256(data)}, [33188, 1, 2, 1, 0, 0, len(data), 0, 0, 0]]
            case "_serve_file" if data is not None:
                piece = data[fields["loc"] : fields["loc"] + BUFFER]
                try:
                    return {"data": piece.decode(), "dest": fields["path"]}
                except UnicodeDecodeError:
                    return {"data": piece, "dest": fields["path"]}
        return {"data": "", "dest": ""}

    async def pillar(self, grains: Mapping[str, Any], *, patience: float, **fields: Any) -> dict[str, Any]:
        self.asked["_pillar"] += 1
        assert grains == {"id": "lisbon"}
        return self.whole


class Above:
    """A link to this master, as the rooms of a station ask it."""

    def __init__(self, master: Any, answers: SaltAnswers) -> None:
        self.master = master
        self.answers = answers

    async def ask(self, about: str, body: bytes = b"", *, patience: float = 60.0) -> bytes:
        return await self.answers.answer(self.master, about, body, patience)


def files_of(tmp_path: Path) -> SaltFiles:
    return SaltFiles(tmp_path / "parts", 0, Metrics(Clock()), Clock())


def above_of(master: Master, files: SaltFiles, clock: Clock | None = None) -> Above:
    return Above(master, SaltAnswers(files, SaltPillar("lisbon", lambda: {"id": "lisbon"}, clock or Clock())))


async def found(made: Server, path: str) -> FileEntry:
    return decode(await made.ask(FIND, encode(FindFile(path))), FileEntry)


def entry_of(master: Master, path: str, size: int) -> FileEntry:
    """A file of so many bytes that the master has from now on."""
    data = master.files[path] = os.urandom(size)
    return FileEntry(path, "base", size, sha256(data))


async def collected(made: Server, entry: FileEntry) -> bytes:
    data = b""
    while len(data) < entry.size:
        data += await made.ask(CHUNK, encode(AskChunk(entry, len(data))))
    return data


async def test_a_file_comes_up_the_uplink_once_however_many_want_it(tmp_path: Path) -> None:
    master, files = Master(), files_of(tmp_path)
    master.files = {"fw/a.bin": os.urandom(LARGE), "motd": "grüße\n".encode() * 9, "empty": b""}
    async with server(tmp_path / "site", above=above_of(master, files)) as made:  # type: ignore[arg-type]  # any port will do
        files.store = made.files.store
        for path, data in master.files.items():
            entry = await found(made, path)
            assert (entry.size, entry.sha256) == (len(data), sha256(data))
            for _ in range(3):
                assert await collected(made, entry) == data
        assert master.asked["_serve_file"] == 4 + 1
        assert made.files.store.has(sha256(master.files["fw/a.bin"]))
        assert list((tmp_path / "parts").iterdir()) == []
        assert await made.files.paths("base") == ["empty", "fw/a.bin", "motd"]
        assert await made.files.paths("base", "fw") == ["fw/a.bin"]


async def test_what_came_before_a_cut_does_not_come_again(tmp_path: Path) -> None:
    master = Master()
    master.files = {"fw.bin": os.urandom(LARGE)}
    master.cut_after = 2
    async with server(tmp_path / "site") as made:
        entry = FileEntry("fw.bin", "base", LARGE, sha256(master.files["fw.bin"]))
        for files in (files_of(tmp_path), files_of(tmp_path)):
            # As after a restart: another of it, and the same disk.
            files.store = made.files.store
            with pytest.raises(Unanswered):
                await files.hashes(master, encode(AskHashes(entry)), 30.0)  # type: ignore[arg-type]  # no jobs here
        assert (tmp_path / "parts" / entry.sha256).stat().st_size == 2 * BUFFER
        master.cut_after = 10**9
        marks = await files.hashes(master, encode(AskHashes(entry)), 30.0)  # type: ignore[arg-type]  # as above
        assert len(marks) == 16 * -(-LARGE // CHUNK_BYTES)
        # Two before the cut, two that were cut, two that were missing.
        assert master.asked["_serve_file"] == 6


async def test_a_large_file_lets_others_have_their_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(above_files, "TURN_SECONDS", 0.0)
    master, files = Master(), files_of(tmp_path)
    master.files = {"fw.bin": os.urandom(LARGE)}
    async with server(tmp_path / "site", above=above_of(master, files)) as made:  # type: ignore[arg-type]  # any port will do
        files.store = made.files.store
        entry = await found(made, "fw.bin")
        asked = encode(AskHashes(entry))
        assert await files.hashes(master, asked, 30.0) == b""  # type: ignore[arg-type]  # no jobs here
        assert await collected(made, entry) == master.files["fw.bin"]
        assert master.asked["_serve_file"] == 4


async def test_many_large_files_that_are_wanted_at_once_all_come_and_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each goes on for one piece at a time, and lets another have its turn then.
    monkeypatch.setattr(above_files, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(fetches, "TURN_SECONDS", 0.0)
    master, files = Master(), files_of(tmp_path)
    master.files = {f"fw/{number}.bin": os.urandom(LARGE) for number in range(24)}
    master.cut_after = 1000
    roomy = FilesSettings(fresh_seconds=0.0, cache_megabytes=64)
    above = above_of(master, files)
    async with server(tmp_path / "site", above=above, settings=roomy) as made, asyncio.timeout(300):  # type: ignore[arg-type]  # any port will do
        files.store = made.files.store
        async with asyncio.TaskGroup() as group:
            coming = [
                group.create_task(collected(made, await found(made, path)), name=path) for path in list(master.files)
            ]
    assert [file.result() for file in coming] == [*master.files.values()]
    assert master.asked["_serve_file"] == 4 * len(coming)
    assert list((tmp_path / "parts").iterdir()) == []


async def test_what_is_wanted_keeps_its_room_and_what_nobody_wants_gives_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(above_files, "TURN_SECONDS", 0.0)
    master, clock, parts = Master(), HandClock(), tmp_path / "parts"
    wanted = [entry_of(master, f"{number}.bin", 3_000_000) for number in range(4)]
    crashed = entry_of(master, "crashed.bin", 3_000_000)
    parts.mkdir()
    (parts / crashed.sha256).write_bytes(master.files["crashed.bin"][:2_900_000])
    async with server(tmp_path / "site", clock=clock) as made:
        files = SaltFiles(parts, 0, Metrics(clock), clock)
        files.store, made.files.store.needed = made.files.store, lambda: {wanted[0].sha256}

        async def went_on(entry: FileEntry) -> bool:
            return bool(await files.hashes(master, encode(AskHashes(entry)), 30.0))  # type: ignore[arg-type]  # no jobs here

        # Of eight megabytes two have three each; what a crash left gave way to the second.
        assert [await went_on(entry) for entry in wanted[:2]] == [False, False]
        assert {part.name for part in parts.iterdir()} == {entry.sha256 for entry in wanted[:2]}
        with pytest.raises(Refused, match="busy"):
            await went_on(wanted[2])
        clock.move(61.0)
        assert not await went_on(wanted[2])
        # Nobody asked for the second again; a job needs the first, which may come late.
        assert {part.name for part in parts.iterdir()} == {wanted[0].sha256, wanted[2].sha256}
        with pytest.raises(Refused, match="busy"):
            await went_on(wanted[3])
        while not await went_on(wanted[0]):
            pass
        assert not await went_on(wanted[3])
        with pytest.raises(Refused, match="cache_full"):
            await went_on(entry_of(master, "larger-than-the-cache.bin", 9_000_000))


@pytest.mark.parametrize("step", ["begun", "add", "judged", "chunk", "drop"])
async def test_who_is_cancelled_leaves_nothing_at_work_on_the_parts(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work, most, free, works = 0, 0, threading.Event(), getattr(FileParts, step)

    def slowly(parts: FileParts, *given: Any) -> Any:
        nonlocal at_work, most
        assert threading.current_thread() is not threading.main_thread(), "it waits for the disk"
        at_work, most = at_work + 1, max(most, at_work + 1)
        free.wait()
        found = works(parts, *given)
        at_work -= 1
        return found

    monkeypatch.setattr(FileParts, step, slowly)
    master, files = Master(), files_of(tmp_path)
    asked = encode(AskHashes(entry_of(master, "fw.bin", 7)))
    async with server(tmp_path / "site") as made, asyncio.TaskGroup() as group:
        files.store = made.files.store
        first = group.create_task(files.hashes(master, asked, 30.0))  # type: ignore[arg-type]  # no jobs here
        try:
            await until(lambda: at_work, what=f"{step} in its thread")
            second = group.create_task(files.hashes(master, asked, 30.0))  # type: ignore[arg-type]  # as above
            for _ in range(2):
                first.cancel()
                for _ in range(10):
                    await asyncio.sleep(0)
            assert not first.done(), "it is still at work"
        finally:
            free.set()
        assert await second
    assert first.cancelled()
    assert most == 1


async def test_of_what_nobody_wants_only_a_few_are_kept(tmp_path: Path) -> None:
    master, files = Master(), files_of(tmp_path)
    (tmp_path / "parts").mkdir()
    for age in range(20):
        left = tmp_path / "parts" / sha256(bytes([age]))
        left.write_bytes(b"some")
        os.utime(left, (1e9 - age, 1e9 - age))
    async with server(tmp_path / "site") as made:
        files.store = made.files.store
        asked = encode(AskHashes(entry_of(master, "motd", 7)))
        assert await files.hashes(master, asked, 30.0)  # type: ignore[arg-type]  # no jobs here
    assert {part.name for part in (tmp_path / "parts").iterdir()} == {sha256(bytes([age])) for age in range(8)}


async def test_what_a_master_does_not_have_or_says_wrong_is_refused(tmp_path: Path) -> None:
    master, files = Master(), files_of(tmp_path)
    master.files = {"fw.bin": os.urandom(LARGE)}
    above = above_of(master, files)
    async with server(tmp_path / "site", above=above) as made:  # type: ignore[arg-type]  # any port will do
        files.store = made.files.store
        with pytest.raises(Refused, match="not_found"):
            await found(made, "nothing")
        entry = await found(made, "fw.bin")
        master.files["fw.bin"] = os.urandom(LARGE)
        with pytest.raises(Refused, match="changed"):
            await collected(made, entry)
        assert list((tmp_path / "parts").iterdir()) == []
        master.hash_type = "md5"
        with pytest.raises(Refused, match="set hash_type: sha256"):
            await above.ask(FIND, encode(FindFile("fw.bin")))
        with pytest.raises(Refused, match="bad_path"):
            await above.ask(FIND, encode(FindFile("../etc/shadow")))
    with pytest.raises(Unanswered, match=r"cannot be asked mine\.others"):
        await above.ask("mine.others")


async def pillar(above: Above, device: str, **wanted: Any) -> dict[str, Any]:
    question = PillarOfWanted(wanted.pop("site", "lisbon"), device, {}, **wanted)
    told = msgspec.msgpack.decode(await above.ask(OF, msgspec.msgpack.encode(question)), type=PillarTold)
    return told.value()


async def test_a_device_is_told_its_own_pillar_and_what_all_are_told(tmp_path: Path) -> None:
    master, clock = Master(), HandClock()
    master.whole = {
        "all_devices": {"ntp": "192.0.2.1", "onvif": {"user": "ops", "port": 80}},
        "devices": {"cam-1": {"onvif": {"password": "hunter2", "port": 81}}, "cam-2": {"ntp": "192.0.2.2"}},
        "gateway_only": "s3cret",
    }
    above = above_of(master, files_of(tmp_path), clock)
    first = await pillar(above, "cam-1")
    assert first == {"ntp": "192.0.2.1", "onvif": {"user": "ops", "port": 81, "password": "hunter2"}}
    assert await pillar(above, "cam-3") == master.whole["all_devices"]
    assert await pillar(above, "cam-2", given={"ntp": "x"}) == {"ntp": "x", "onvif": {"user": "ops", "port": 80}}
    assert master.asked["_pillar"] == 1
    clock.move(11.0)
    master.whole = {"devices": {"cam-1": {"a": 1}}, "_errors": ["Rendering SLS failed"]}
    assert await pillar(above, "cam-1") == {"a": 1, "_errors": ["Rendering SLS failed"]}
    assert master.asked["_pillar"] == 2
    with pytest.raises(Refused, match="another site"):
        await pillar(above, "cam-1", site="porto")


@pytest.mark.parametrize(
    ("whole", "reason"),
    [
        ({"devices": ["cam-1"]}, "malformed"),
        ({"devices": {"cam-1": "x"}}, "malformed"),
        ({"all_devices": 7}, "malformed"),
        ({"devices": {"cam-1": {"a": "x" * 300_000}}}, "too_large"),
    ],
)
async def test_a_pillar_that_is_none_is_refused(whole: dict[str, Any], reason: str, tmp_path: Path) -> None:
    master = Master()
    master.whole = whole
    with pytest.raises(Refused) as refused:
        await pillar(above_of(master, files_of(tmp_path)), "cam-1")
    assert refused.value.reason == reason
