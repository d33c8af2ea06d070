"""Files that change and lines that are written are told from real files, also when they are replaced or rotated."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from device_agent.beacons import inotify, inotify_calls
from device_agent.beacons import log as log_beacon
from device_agent.beacons.port import Found
from tests.peers.beacon_bench import around, made
from tests.peers.waiting import until

SECONDS = 60.0

Look = Callable[[], Awaitable[list[Found]]]


@asynccontextmanager
async def watching(name: str, data: Any) -> AsyncIterator[Look]:
    """The looks of a beacon, of which the first is over."""
    beacon = made(name, data)
    try:
        assert await beacon.look(around()) == []
        yield lambda: beacon.look(around())
    finally:
        await beacon.close()


def told(found: list[Found]) -> list[tuple[str, str, str]]:
    return [(each.tag, each.data["path"], each.data["change"]) for each in found]


async def test_what_changes_in_a_folder_is_told_with_salts_words(tmp_path: Path) -> None:
    folder, file = str(tmp_path), str(tmp_path / "a")
    async with watching("inotify", [{"files": {folder: {}}}]) as look:
        (tmp_path / "a").write_text("x")
        assert told(await look()) == [(folder, file, "IN_CREATE"), (folder, file, "IN_MODIFY")]
        (tmp_path / "a").unlink()
        (tmp_path / "sub").mkdir()
        assert told(await look()) == [
            (folder, file, "IN_DELETE"),
            (folder, str(tmp_path / "sub"), "IN_CREATE|IN_ISDIR"),
        ]
        assert await look() == []


async def test_a_file_that_is_replaced_is_watched_on_and_one_that_is_not_there_yet_when_it_is(tmp_path: Path) -> None:
    file, later = tmp_path / "a", tmp_path / "later"
    file.write_text("x")
    files = {str(file): {"mask": ["create", "close_write"]}, str(later): {"mask": ["modify"]}}
    async with watching("inotify", [{"files": files}]) as look:
        (tmp_path / "new").write_text("y")
        (tmp_path / "new").replace(file)
        assert told(await look()) == [(str(file), str(file), "IN_CREATE")]
        file.write_text("z")
        assert told(await look()) == [(str(file), str(file), "IN_CLOSE_WRITE")]
        later.write_text("1")
        assert await look() == []
        later.write_text("2")
        assert {each.data["change"] for each in await look()} == {"IN_MODIFY"}


async def test_a_file_and_a_folder_that_were_moved_away_are_watched_at_their_place_and_not_where_they_went(
    tmp_path: Path,
) -> None:
    file, folder = tmp_path / "log", tmp_path / "spool"
    file.touch()
    (folder / "in").mkdir(parents=True)
    recurse = {"mask": ["create"], "recurse": True}
    async with watching("inotify", [{"files": {str(file): {"mask": ["modify"]}, str(folder): recurse}}]) as look:
        file.rename(tmp_path / "log.1")
        folder.rename(tmp_path / "old")
        assert await look() == [], "there is nothing at their places yet"
        (tmp_path / "old/in/late").touch()
        assert await look() == [], "a folder is watched at its place alone"
        file.touch()
        (folder / "in").mkdir(parents=True)
        assert told(await look()) == [(str(folder), str(folder), "IN_CREATE")]
        (tmp_path / "log.1").write_text("x")
        (tmp_path / "old/in/a").touch()
        assert await look() == []
        file.write_text("x")
        (folder / "in/b").touch()
        assert set(told(await look())) == {
            (str(file), str(file), "IN_MODIFY"),
            (str(folder / "in"), str(folder / "in/b"), "IN_CREATE"),
        }


async def test_folders_without_end_in_one_another_silence_nothing(tmp_path: Path) -> None:
    tmp_path.joinpath(*["a"] * (inotify.DEPTH + 5)).mkdir(parents=True)
    beacon = made("inotify", [{"files": {str(tmp_path): {"mask": ["create"], "recurse": True}}}])
    (wrong,) = await beacon.look(around())
    assert wrong.data == {"error": f"{tmp_path} has folders deeper than {inotify.DEPTH}: not watched"}
    (tmp_path / "a/b").touch()
    assert told(await beacon.look(around())) == [(str(tmp_path / "a"), str(tmp_path / "a/b"), "IN_CREATE")]
    await beacon.close()


async def test_folders_below_are_watched_also_when_they_are_new_and_what_is_excluded_is_not(tmp_path: Path) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    exclude = [str(tmp_path / "cache"), "*.swp", {"/tmp[0-9]+$": {"regex": True}}]
    options = {"mask": ["create"], "recurse": True, "auto_add": True, "exclude": exclude}
    async with watching("inotify", [{"files": {str(tmp_path): options}}]) as look:
        (tmp_path / "deep/er/a").touch()
        assert told(await look()) == [(str(tmp_path / "deep/er"), str(tmp_path / "deep/er/a"), "IN_CREATE")]
        (tmp_path / "new").mkdir()
        (tmp_path / "new/quick").touch()
        found = told(await look())
        assert found[0] == (str(tmp_path), str(tmp_path / "new"), "IN_CREATE|IN_ISDIR")
        assert (str(tmp_path / "new"), str(tmp_path / "new/quick"), "IN_CREATE") in found
        (tmp_path / "new/a").touch()
        (tmp_path / "new/a.swp").touch()
        (tmp_path / "new/tmp7").touch()
        (tmp_path / "cache").mkdir()
        assert told(await look()) == [(str(tmp_path / "new"), str(tmp_path / "new/a"), "IN_CREATE")]


async def test_a_path_that_cannot_be_watched_and_one_that_has_gone_again_silence_no_other(tmp_path: Path) -> None:
    around_itself = tmp_path / "around"
    around_itself.symlink_to(around_itself)
    options = {"mask": ["create"], "auto_add": True}
    beacon = made("inotify", [{"files": {str(around_itself): {}, str(tmp_path): options}}])
    [wrong] = await beacon.look(around())
    assert wrong.data["error"] == f"{around_itself} cannot be watched: Too many levels of symbolic links"
    (tmp_path / "short").mkdir()
    (tmp_path / "short").rmdir()
    (tmp_path / "a").touch()
    *found, _ = await beacon.look(around())
    assert [change for _, _, change in told(found)] == ["IN_CREATE|IN_ISDIR", "IN_CREATE"]
    await beacon.close()


async def test_with_coalesce_the_same_is_told_once_at_one_look(tmp_path: Path) -> None:
    # The kernel itself folds what is the same twice running.
    files = {str(tmp_path): {"mask": ["close_write"]}}
    for coalesce, count in ((False, 3), (True, 2)):
        async with watching("inotify", [{"files": files}, {"coalesce": coalesce}]) as look:
            for name in "aba":
                (tmp_path / name).write_text(name)
            assert len(await look()) == count


async def test_what_was_missed_and_what_is_beyond_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        (tmp_path / str(number)).mkdir()
    monkeypatch.setattr(inotify, "WATCHES", 3)
    beacon = made("inotify", [{"files": {str(tmp_path): {"recurse": True}}}])
    for _ in range(2):
        [found] = await beacon.look(around())
        assert found.data["error"].startswith("there are more than 3 files and folders to watch")
    kernel = [[inotify_calls.Change(-1, inotify_calls.OVERFLOW, "")]]
    monkeypatch.setattr(inotify_calls, "changes", lambda _: kernel.pop() if kernel else [])
    missed, _ = await beacon.look(around())
    assert missed.data["error"].startswith("changes came faster than they could be told")
    await beacon.close()


# --- log ---------------------------------------------------------------------------------------------------------


def lines(found: list[Found]) -> list[tuple[str, str]]:
    assert all((each.data["match"], each.data["error"]) == ("yes", "") for each in found)
    return [(each.tag, each.data["raw"]) for each in found]


async def test_lines_that_are_written_from_now_on_are_told_by_tag(tmp_path: Path) -> None:
    file = tmp_path / "messages"
    file.write_text("good-bye of before\n")
    tags = {"goodbye/world": {"regex": ".*good-bye.*"}, "any": {"regex": "^[a-z]"}}
    async with watching("log", [{"file": str(file)}, {"tags": tags}]) as look:
        with file.open("ab") as log:
            log.write(b"a good-bye\r\n123\nhal")
            log.flush()
            assert lines(await look()) == [("goodbye/world", "a good-bye"), ("any", "a good-bye")]
            log.write(b"f \xff good-bye\n")
            log.flush()
            assert lines(await look()) == [("goodbye/world", "half � good-bye"), ("any", "half � good-bye")]
        assert await look() == []


async def test_a_log_that_is_rotated_or_cut_off_loses_no_line(tmp_path: Path) -> None:
    file = tmp_path / "messages"
    file.write_text("")
    async with watching("log", [{"file": str(file)}, {"tags": {"t": {"regex": ".*"}}}]) as look:
        with file.open("a") as old:
            file.rename(tmp_path / "messages.1")
            old.write("into the old one\n")
        assert lines(await look()) == [("t", "into the old one")]
        file.write_text("into the new one\n")
        assert lines(await look()) == [("t", "into the new one")]
        file.write_text("cut\n")
        assert lines(await look()) == [("t", "cut")]


async def test_long_lines_and_much_at_once_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "messages"
    file.write_text("")
    monkeypatch.setattr(log_beacon, "READ_BYTES", 100_000)
    async with watching("log", [{"file": str(file)}, {"tags": {"t": {"regex": ".*"}}}]) as look:
        file.write_text("x" * 250_000 + "\nlast\n")
        assert lines(await look()) == [("t", "x" * 4096)]
        assert await look() == []
        assert lines(await look()) == [("t", "last")]


async def test_after_it_was_closed_it_goes_on_at_the_end_and_a_file_that_is_not_there_is_an_error(
    tmp_path: Path,
) -> None:
    file = tmp_path / "messages"
    beacon = made("log", [{"file": str(file)}, {"tags": {"t": {"regex": ".*"}}}])
    with pytest.raises(FileNotFoundError):
        await beacon.look(around())
    file.write_text("one\n")
    assert await beacon.look(around()) == []
    await beacon.close()
    file.write_text("one\ntwo\n")
    assert await beacon.look(around()) == []
    await beacon.close()


@pytest.mark.parametrize(
    ("name", "data", "call"),
    [
        ("log", lambda file: [{"file": file}, {"tags": {"t": {"regex": ".*"}}}], (os, "read")),
        ("inotify", lambda file: [{"files": {file: {}}}], (inotify_calls, "changes")),
    ],
    ids=["log", "inotify"],
)
async def test_a_descriptor_is_not_closed_while_a_thread_reads_from_it(
    name: str,
    data: Callable[[str], Any],
    call: tuple[Any, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "messages"
    file.write_text("")
    beacon: Any = made(name, data(str(file)))
    assert await beacon.look(around()) == []
    descriptor, original = beacon._descriptor, getattr(*call)
    begun, goes_on = threading.Event(), threading.Event()

    def hangs(number: int, *rest: Any) -> Any:
        if number == descriptor:
            begun.set()
            goes_on.wait(SECONDS)
        return original(number, *rest)

    monkeypatch.setattr(*call, hangs)
    async with asyncio.TaskGroup() as group:
        looking = group.create_task(beacon.look(around()))
        await until(begun.is_set, SECONDS, "the thread reads")
        looking.cancel()
        await beacon.close()
        os.fstat(descriptor)
        goes_on.set()
        await until(lambda: not beacon._aside._busy, SECONDS, "the thread let go")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert len(beacon._watches) == 0 if name == "inotify" else beacon._first
