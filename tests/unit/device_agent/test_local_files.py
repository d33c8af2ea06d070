"""device_agent/local_files.py through LocalHost: what this side alone can cause."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from pathlib import Path

import pytest

from device_agent import local_files
from device_agent.host import HostLost
from device_agent.local_host import LocalHost
from tests.peers.small_disk import small_disk

HOST = LocalHost({"id": "cam-1"})


async def test_a_file_is_written_whole_read_in_parts_and_described(tmp_path: Path) -> None:
    path = str(tmp_path / "settings")
    await HOST.write(path, b"0123456789", mode=0o640)
    assert await HOST.read(path) == b"0123456789"
    assert await HOST.read(path, offset=4, limit=3) == b"456"
    assert await HOST.read(path, offset=99) == b""
    found = await HOST.stat(path)
    assert found is not None
    assert (found.kind, found.mode, found.size, found.uid) == ("file", 0o640, 10, os.getuid())
    assert await HOST.list(str(tmp_path)) == ["settings"]
    await HOST.remove(path)
    assert await HOST.stat(path) is None


async def test_a_new_file_has_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        await HOST.write(str(tmp_path / "new"), b"")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


async def test_a_rewritten_file_keeps_its_mode_and_its_owner_and_its_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"old")
    target.chmod(0o4711)
    if os.getuid() == 0:
        os.chown(target, 1234, 4321)
    before = target.stat()
    (tmp_path / "link").symlink_to("target")
    await HOST.write(str(tmp_path / "link"), b"new")
    after = target.stat()
    assert (tmp_path / "link").is_symlink()
    assert target.read_bytes() == b"new"
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


async def test_what_a_dead_write_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".a.outstation-0123abcd").write_bytes(b"half")
    kept = [".a.outstation-notours!", ".ab.outstation-0123abcd", "a.outstation-0123abcd"]
    for name in kept:
        (tmp_path / name).touch()
    await HOST.write(str(tmp_path / "a"), b"whole")
    assert await HOST.list(str(tmp_path)) == sorted([*kept, "a"])


async def test_a_full_disk_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", megabytes=1) as disk:
        path = disk.folder / "a"
        path.write_bytes(b"old")
        disk.fill()
        with pytest.raises(OSError) as caught:
            await HOST.write(str(path), b"x" * 100_000)
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
        assert path.read_bytes() == b"old"
        assert await HOST.list(str(disk.folder)) == ["a", "filler"]


async def test_many_writers_of_one_file_leave_one_whole_content(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    contents = [bytes([number]) * 50_000 for number in range(20)]
    async with asyncio.TaskGroup() as group:
        for content in contents:
            group.create_task(HOST.write(path, content))
    assert await HOST.read(path) in contents
    assert await HOST.list(str(tmp_path)) == ["a"]


async def test_what_is_no_file_is_neither_replaced_nor_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError) as read:
        await HOST.read(str(tmp_path / "pipe"))
    with pytest.raises(OSError) as written:
        await HOST.write(str(tmp_path / "pipe"), b"")
    with pytest.raises(IsADirectoryError):
        await HOST.write(str(tmp_path), b"")
    assert (read.value.errno, written.value.errno) == (errno.ENXIO, errno.EINVAL)
    assert (await HOST.stat(str(tmp_path / "pipe"))) is not None


async def test_the_root_is_never_removed() -> None:
    with pytest.raises(OSError) as caught:
        await HOST.remove("/../", recursive=True)
    assert caught.value.errno == errno.EBUSY


async def test_the_facts_are_collected_anew_under_the_same_id() -> None:
    facts = await HOST.facts()
    assert facts["id"] == "cam-1"
    assert facts["kernel"] == os.uname().sysname


def test_a_lost_machine_says_whether_the_command_may_have_run() -> None:
    assert HostLost("the connection broke").started
    assert not HostLost("no connection", started=False).started
    assert HostLost("no connection").error_id == "host.lost"


def test_the_loop_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError) as caught:
        local_files.write(str(tmp_path / "a"), b"", None, None)
    assert caught.value.errno == errno.ELOOP
