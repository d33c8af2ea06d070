"""gateway/files/git_root.py: the files of one commit, from the repository's objects, and the commit known."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from device_agent.errors import Refused
from device_agent.protocol.file_questions import (
    CHUNK,
    CHUNK_BYTES,
    FIND,
    MARK_BYTES,
    AskChunk,
    FileEntry,
    FindFile,
    decode,
    encode,
)
from gateway.files import git_root
from gateway.files.served import Patterns
from gateway.files.settings import GitRoot
from tests.peers.file_server import committed, git, server, sha256
from tests.peers.small_disk import small_disk


async def test_a_commit_is_served_and_not_what_lies_in_the_working_tree(tmp_path: Path) -> None:
    large = os.urandom(CHUNK_BYTES * 2 + 7)
    repository = tmp_path / "repo"
    commit = committed(repository, {"salt/a.conf": b"first", "salt/fw.bin": large, "other/x": b"no"})
    (repository / "salt/a.conf").write_bytes(b"not committed")
    (repository / "salt/new").write_bytes(b"not committed")
    roots = {"base": [GitRoot(git=str(repository), ref="main", root="salt")]}
    async with server(tmp_path / "state", roots) as made:
        files = made.files
        assert await files.paths("base") == ["a.conf", "fw.bin"]
        entries = {entry.path: entry for entry in await files.listed("base")}
        assert {entry.commit for entry in entries.values()} == {commit}
        assert await files.commits("base") == [commit]
        assert await files.read(entries["a.conf"], 100) == b"first"
        assert entries["fw.bin"].sha256 == sha256(large)
        assert await files.read(entries["fw.bin"], len(large)) == large
        assert await files.find("x", "base") is None


async def test_a_branch_that_moves_is_another_commit_and_a_tag_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_root, "LOOK_SECONDS", -1.0)
    repository = tmp_path / "repo"
    first = committed(repository, {"a": b"first"})
    git(repository, "tag", "v1")
    bare = tmp_path / "bare.git"
    git(repository, "clone", "--quiet", "--bare", str(repository), str(bare))
    roots = {
        "base": [GitRoot(git=str(repository), ref="main")],
        "v1": [GitRoot(git=str(repository), ref="v1")],
        "bare": [GitRoot(git=str(bare), ref=first)],
    }
    async with server(tmp_path / "state", roots) as made:
        before = await made.files.find("a", "base")
        assert before is not None
        second = committed(repository, {"a": b"second"})
        after = await made.files.find("a", "base")
        assert after is not None
        assert (before.commit, after.commit) == (first, second)
        # Whoever began with the first one may go on with it.
        assert await made.files.piece(AskChunk(before, 0)) == b"first"
        assert await made.files.read(after, 10) == b"second"
        for saltenv in ("v1", "bare"):
            pinned = await made.files.find("a", saltenv)
            assert pinned is not None
            assert (pinned.commit, await made.files.read(pinned, 10)) == (first, b"first")


async def test_links_odd_names_and_what_is_ignored_are_not_served(tmp_path: Path) -> None:
    repository = tmp_path / "repo"
    repository.mkdir()
    (repository / "link").symlink_to("/etc/passwd")
    committed_at = committed(repository, {"a b": b"1", "new\nline": b"2", "x.bak": b"3", "deep/.hid/y": b"4"})
    patterns = Patterns(glob=["*.bak"], regex=[r"(^|/)\.hid$"])
    async with server(tmp_path / "state", {"base": [GitRoot(git=str(repository))]}, patterns=patterns) as made:
        assert await made.files.paths("base") == ["a b"]
        assert await made.files.commits("base") == [committed_at]


async def test_what_is_wrong_with_a_repository_is_said(tmp_path: Path) -> None:
    committed(tmp_path / "repo", {"a": b"1"})
    roots = {
        "none": [GitRoot(git=str(tmp_path / "nowhere"))],
        "ref": [GitRoot(git=str(tmp_path / "repo"), ref="no-such")],
        "root": [GitRoot(git=str(tmp_path / "repo"), root="no/such")],
    }
    async with server(tmp_path / "state", roots) as made:
        for saltenv in roots:
            with pytest.raises(Refused, match="unreadable"):
                await made.files.find("a", saltenv)


async def test_what_rots_in_the_store_is_read_from_the_repository_anew(tmp_path: Path) -> None:
    data = os.urandom(CHUNK_BYTES + 1)
    committed(tmp_path / "repo", {"a": data})
    roots = {"base": [GitRoot(git=str(tmp_path / "repo"))]}
    async with server(tmp_path / "state", roots) as made:
        entry = await made.files.find("a", "base")
        assert entry is not None
    (kept,) = (path for path in (tmp_path / "state/files/whole").glob("*/*") if path.suffix != ".marks")
    kept.write_bytes(data[:5] + b"?" + data[6:])
    async with server(tmp_path / "state", roots) as made:
        assert await made.files.read(entry, len(data)) == data
        assert made.refused("damaged") == 1


async def test_a_device_that_asks_for_another_hash_removes_nothing_that_is_being_fetched(tmp_path: Path) -> None:
    committed(tmp_path / "repo", {"a": b"of the repository"})
    data = os.urandom(CHUNK_BYTES)
    async with server(tmp_path / "state", {"base": [GitRoot(git=str(tmp_path / "repo"))]}) as made:
        marks = bytes(2 * MARK_BYTES)
        await made.files.store.begin(sha256(data), CHUNK_BYTES + 1, marks)
        with pytest.raises(Refused, match="changed"):
            await made.ask(CHUNK, encode(AskChunk(FileEntry("a", "base", CHUNK_BYTES + 1, sha256(data)), 0)))
        await made.files.store.put(sha256(data), 0, data)
        assert made.files.store.size(sha256(data)) == CHUNK_BYTES + 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
async def test_a_disk_that_is_full_refuses_a_file_of_a_repository_and_others_are_served(tmp_path: Path) -> None:
    committed(tmp_path / "repo", {"a": b"1", "large": os.urandom(CHUNK_BYTES)})
    with small_disk(tmp_path / "disk") as disk:
        (tmp_path / "state").mkdir()
        (tmp_path / "state/files").symlink_to(disk.folder)
        async with server(tmp_path / "state", {"base": [GitRoot(git=str(tmp_path / "repo"))]}) as made:
            assert decode(await made.ask(FIND, encode(FindFile("a"))), FileEntry).sha256 == sha256(b"1")
            disk.fill()
            with pytest.raises(Refused, match="disk_full"):
                await made.ask(FIND, encode(FindFile("large")))
            assert decode(await made.ask(FIND, encode(FindFile("a"))), FileEntry).sha256 == sha256(b"1")
            disk.make_room()
            assert decode(await made.ask(FIND, encode(FindFile("large"))), FileEntry).size == CHUNK_BYTES
