"""gateway/files/folder_root.py: nothing outside of a root is served, and no file that is not what it was."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from device_agent.clock import Clock
from device_agent.errors import NotFound, Refused
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
from gateway.files import folder_root, listings, served
from gateway.files.folder_root import FolderRoot
from gateway.files.served import Patterns
from tests.peers.file_server import server, settled, sha256


def root(folder: Path, patterns: Patterns | None = None) -> FolderRoot:
    return FolderRoot(str(folder), "base", patterns or Patterns(), Clock())


async def test_a_file_is_known_by_its_hash_and_read_in_pieces(tmp_path: Path) -> None:
    data = settled(tmp_path / "srv/camera/fw.bin", os.urandom(CHUNK_BYTES + 5))
    files = root(tmp_path / "srv")
    entry = await files.find("camera/fw.bin")
    assert entry == FileEntry("camera/fw.bin", "base", len(data), sha256(data))
    assert await files.piece(entry, 3, 10) == data[3:13]
    assert await files.piece(entry, CHUNK_BYTES, CHUNK_BYTES) == data[CHUNK_BYTES:]
    assert len(await files.hashes(entry)) == 32
    assert await files.find("camera") is None
    assert await files.find("camera/fw.bin/more") is None
    assert await files.find("other") is None


@pytest.mark.parametrize(
    "path", ["../secret", "a/../../secret", "/etc/passwd", "a//b", "./a", "a/.", "", "a\0b", "a\nb", "x" * 1025]
)
async def test_a_path_that_is_no_path_is_refused(tmp_path: Path, path: str) -> None:
    settled(tmp_path / "secret", b"secret")
    (tmp_path / "srv/a").mkdir(parents=True)
    async with server(tmp_path / "state", {"base": [tmp_path / "srv"]}) as made:
        with pytest.raises(Refused) as refused:
            await made.ask(FIND, encode(FindFile(path)))
        assert refused.value.reason in ("bad_path", "wrong_type")
        entry = FileEntry(path, "base", 6, sha256(b"secret"))
        with pytest.raises(Refused) as refused:
            await made.ask(CHUNK, encode(AskChunk(entry, 0)))
        assert refused.value.reason in ("bad_path", "wrong_type")


async def test_a_link_that_leaves_its_root_is_refused_and_not_listed(tmp_path: Path) -> None:
    settled(tmp_path / "secret/key", b"secret")
    settled(tmp_path / "srv/real/file", b"mine")
    (tmp_path / "srv/out").symlink_to("../secret/key")
    (tmp_path / "srv/away").symlink_to(tmp_path / "secret")
    (tmp_path / "srv/inside").symlink_to("real")
    (tmp_path / "srv/real/loop").symlink_to("..")
    (tmp_path / "srv/broken").symlink_to("nowhere")
    files = root(tmp_path / "srv")
    for path in ("out", "away/key"):
        with pytest.raises(Refused, match="outside_root"):
            await files.find(path)
    assert await files.find("broken") is None
    through = await files.find("inside/file")
    assert through is not None
    assert through.sha256 == sha256(b"mine")
    assert sorted(await files.listed()) == ["inside/file", "real/file"]


async def test_what_is_no_file_is_not_served(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    files = root(tmp_path)
    assert [await files.find(path) for path in ("folder", "fifo")] == [None, None]
    assert await files.listed() == ["folder/"]


async def test_a_file_that_changes_while_it_is_served_is_refused_and_known_anew(tmp_path: Path) -> None:
    settled(tmp_path / "srv/a", b"first")
    async with server(tmp_path / "state", {"base": [tmp_path / "srv"]}) as made:
        entry = decode(await made.ask(FIND, encode(FindFile("a"))), FileEntry)
        assert await made.ask(CHUNK, encode(AskChunk(entry, 0))) == b"first"
        settled(tmp_path / "srv/a", b"other")
        with pytest.raises(Refused, match="changed"):
            await made.ask(CHUNK, encode(AskChunk(entry, 0)))
        entry = decode(await made.ask(FIND, encode(FindFile("a"))), FileEntry)
        assert await made.ask(CHUNK, encode(AskChunk(entry, 0))) == b"other"
        (tmp_path / "srv/a").unlink()
        with pytest.raises(Refused, match="changed"):
            await made.ask(CHUNK, encode(AskChunk(entry, 0)))
        with pytest.raises(Refused, match="not_found"):
            await made.ask(FIND, encode(FindFile("a")))
        assert made.refused("changed") == 2


async def test_a_file_that_was_written_just_now_is_not_taken_for_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the same tick of the file system's clock its times say nothing."""
    monkeypatch.setattr(folder_root, "TRUSTED_SECONDS", 0.0)
    path = tmp_path / "a"
    path.write_bytes(b"first")
    times = path.stat()
    files = root(tmp_path)
    found = await files.find("a")
    assert found is not None
    with path.open("r+b") as file:
        file.write(b"other")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    again = await files.find("a")
    assert again is not None
    assert again.sha256 == sha256(b"other")


async def test_patterns_say_what_is_served(tmp_path: Path) -> None:
    for name in ("a.conf", "a.bak", "deep/b.conf", ".git/config", "deep/.git/config", "c.txt"):
        settled(tmp_path / name, b"x")
    patterns = Patterns(["*.conf", "*config"], ["*.bak"], [r"(^|/)\.git($|/)"])
    files = root(tmp_path, patterns)
    assert [path for path in sorted(await files.listed()) if path[-1] != "/"] == ["a.conf", "deep/b.conf"]
    assert await files.find("c.txt") is None
    assert await files.find(".git/config") is None
    assert await files.find("deep/b.conf") is not None


async def test_what_is_in_a_folder_that_is_left_out_is_not_served_either(tmp_path: Path) -> None:
    settled(tmp_path / "keys/deep/a", b"x")
    settled(tmp_path / "mine/a", b"x")
    files = root(tmp_path, Patterns(glob=["keys"], regex=["^mine$"]))
    assert await files.listed() == []
    assert [await files.find(path) for path in ("keys/deep/a", "mine/a")] == [None, None]


async def test_a_path_that_nobody_can_be_told_leaves_the_others_listed(tmp_path: Path) -> None:
    settled(tmp_path / "srv/a", b"x")
    settled(tmp_path / "srv" / "/".join(["x" * 200] * 6) / "b", b"x")
    async with server(tmp_path / "state", {"base": [tmp_path / "srv"]}) as made:
        told = decode(await made.ask(LIST, encode(ListFiles())), Listing)
    assert [path for path in told.paths if path[-1] != "/"] == ["a"]


async def test_one_walk_is_enough_for_all_who_want_a_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settled(tmp_path / "a", b"x")
    files, walks = root(tmp_path), list[int]()
    walk = files._walked

    def counted() -> list[str]:
        walks.append(1)
        return walk()

    monkeypatch.setattr(files, "_walked", counted)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(files.listed()) for _ in range(20)]
    assert [task.result() for task in tasks] == [["a"]] * 20
    assert len(walks) == 1


async def test_a_disk_that_fails_is_said_and_others_are_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settled(tmp_path / "srv/a", b"first")

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async with server(tmp_path / "state", {"base": [tmp_path / "srv"]}) as made:
        entry = decode(await made.ask(FIND, encode(FindFile("a"))), FileEntry)
        with monkeypatch.context() as patched:
            patched.setattr("gateway.files.folder_root.os.pread", broken)
            with pytest.raises(Refused, match=r"disk_failed.*Input/output error"):
                await made.ask(CHUNK, encode(AskChunk(entry, 0)))
        assert await made.ask(CHUNK, encode(AskChunk(entry, 0))) == b"first"


async def test_a_listing_is_told_in_pages_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2100):
        settled(tmp_path / f"srv/d/{number:04d}", b"")
    settled(tmp_path / "srv/e", b"")
    async with server(tmp_path / "state", {"base": [tmp_path / "srv"]}) as made:
        found: list[str] = []
        pages = 0
        more = True
        while more:
            wanted = ListFiles(under="d", after=found[-1] if found else "")
            page = decode(await made.ask(LIST, encode(wanted)), Listing)
            found += page.paths
            more, pages = page.more, pages + 1
        assert (len(found), pages) == (2100, 3)
        assert found == [f"d/{number:04d}" for number in range(2100)]
    monkeypatch.setattr(folder_root, "LISTED_MOST", 100)
    with pytest.raises(Refused, match="too_many_files"):
        await root(tmp_path / "srv").listed()
    assert served.LISTED_MOST > 2100


async def test_a_listing_is_put_together_once_for_all_its_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "d/b", "d/c"):
        settled(tmp_path / "srv" / name, b"")
    merged, times = listings._merged, list[str]()

    def counted(under: str, parts: Any) -> list[str]:
        times.append(under)
        return merged(under, parts)

    monkeypatch.setattr(listings, "_merged", counted)
    async with (
        server(tmp_path / "up", {"base": [tmp_path / "srv"]}) as top,
        server(tmp_path / "site", {"base": [tmp_path / "srv/d"]}, above=top.above()) as site,
    ):
        for _ in range(3):
            assert await site.files.paths("base") == ["a", "b", "c", "d/b", "d/c"]
        assert await site.files.paths("base", "d") == ["d/b", "d/c"]
        assert times == ["", "", "d", "d"]
        settled(tmp_path / "srv/d/new", b"")
        monkeypatch.setattr(folder_root, "LISTING_SECONDS", -1.0)
        assert await site.files.paths("base") == ["a", "b", "c", "d/b", "d/c", "d/new", "new"]


async def test_environments_are_apart_and_the_first_root_that_has_a_file_counts(tmp_path: Path) -> None:
    settled(tmp_path / "one/a", b"one")
    settled(tmp_path / "two/a", b"two")
    settled(tmp_path / "two/b", b"two")
    settled(tmp_path / "next/a", b"next")
    roots = {"base": [tmp_path / "one", tmp_path / "two", tmp_path / "absent"], "next": [tmp_path / "next"]}
    async with server(tmp_path / "state", roots) as made:
        files = made.files
        listed = await files.listed("base")
        assert [(entry.path, await files.read(entry, 100)) for entry in listed] == [("a", b"one"), ("b", b"two")]
        (other,) = await files.listed("next", "")
        assert await files.read(other, 100) == b"next"
        assert await files.find("b", "next") is None
        assert await files.find("a", "none") is None
        with pytest.raises(Refused, match="too_large"):
            await files.read(other, 3)
        with pytest.raises(NotFound):
            await files.piece(AskChunk(FileEntry("a", "none", 3, sha256(b"two")), 0))
