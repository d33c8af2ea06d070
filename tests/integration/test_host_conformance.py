"""Files, connections and facts of a Host: the same answers and the same errors whatever the way to the machine."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from device_agent.host import Host, Stat
from tests.peers.host_places import CAMERA, KINDS, Beds, Place, os_refusal, place, tiny_disk

ODD_NAMES = (
    "-rf",
    "--",
    "-",
    "two words",
    " lead and trail ",
    "quote'and\"double",
    "new\nline",
    "end\n",
    "$HOME `id` $(id)",
    "*",
    "[a]?",
    "back\\slash",
    "~",
    "#",
    "ümläut €",
    "\udcff\udc81\udc82",
    "\x01\x7f\t\r",
    ".hidden",
    "...",
    "!",
    "a" * 255,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def seen(host: Host, path: str, *, follow: bool = True) -> Stat:
    found = await host.stat(path, follow=follow)
    assert found is not None
    return found


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 1_048_576])
async def test_what_is_written_is_read(there: Place, size: int) -> None:
    data = os.urandom(size)
    await there.host.write(there.at("a"), data)
    assert await there.host.read(there.at("a")) == data
    assert (there.outside / "a").read_bytes() == data
    assert await there.host.list(there.folder) == ["a"]


async def test_every_byte_is_itself(there: Place) -> None:
    data = bytes(range(256)) * 3
    await there.host.write(there.at("a"), data)
    assert await there.host.read(there.at("a")) == data


async def test_a_part_of_a_file_is_read_from_anywhere(there: Place) -> None:
    data = os.urandom(200_000)
    (there.outside / "a").write_bytes(data)
    for offset, limit in (
        (0, 0),
        (0, 7),
        (7, 7),
        (65_536, 10),
        (65_537, 65_536),
        (199_999, 50),
        (200_000, 5),
        (10**9, 5),
    ):
        assert await there.host.read(there.at("a"), offset=offset, limit=limit) == data[offset : offset + limit]


async def test_a_file_of_the_kernel_is_read_whatever_its_size_says(there: Place) -> None:
    whole = await there.host.read("/proc/meminfo")
    assert whole.startswith(b"MemTotal:")
    assert whole.count(b"\n") > 20
    assert (await there.host.read("/proc/meminfo", offset=3, limit=6)) == b"Total:"
    assert await there.host.read("/dev/zero", limit=3) == b"\0\0\0"


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
async def test_any_name_is_a_name(there: Place, name: str) -> None:
    await there.host.write(there.at(name), b"first")
    await there.host.write(there.at(name), b"second")
    assert await there.host.read(there.at(name)) == b"second"
    assert await there.host.list(there.folder) == [name]
    assert (await seen(there.host, there.at(name))).size == 6
    (there.outside / "link").symlink_to(name)
    assert (await seen(there.host, there.at("link"), follow=False)).target == name
    await there.host.write(there.at("link"), b"third")
    assert (there.outside / name).read_bytes() == b"third"
    await there.host.remove(there.at("link"))
    await there.host.remove(there.at(name))
    assert await there.host.list(there.folder) == []


async def test_many_names_are_listed_in_one_order(there: Place) -> None:
    names = {*ODD_NAMES, *(f"file {number}" for number in range(500))}
    for name in names:
        (there.outside / name).touch()
    (there.outside / "dangling").symlink_to("nowhere")
    assert await there.host.list(there.folder) == sorted({*names, "dangling"})


async def test_each_kind_of_entry_is_told(there: Place) -> None:
    (there.outside / "file").write_bytes(b"12345")
    (there.outside / "folder").mkdir()
    (there.outside / "folder").chmod(0o1777)
    (there.outside / "link").symlink_to("file")
    os.mkfifo(there.outside / "fifo")
    (there.outside / "fifo").chmod(0o600)
    os.chown(there.outside / "file", CAMERA, 54321)
    (there.outside / "file").chmod(0o6751)
    os.utime(there.outside / "file", (1_700_000_000, 1_700_000_000))
    file = await seen(there.host, there.at("file"))
    real = (there.outside / "file").stat()
    assert (file.kind, file.mode, file.size, file.uid, file.gid) == ("file", 0o6751, 5, CAMERA, 54321)
    assert (file.group, int(file.mtime), file.inode) == ("54321", 1_700_000_000, real.st_ino)
    folder = await seen(there.host, there.at("folder"))
    assert (folder.kind, folder.mode, folder.user) == ("directory", 0o1777, "root")
    link = await seen(there.host, there.at("link"), follow=False)
    assert (link.kind, link.target) == ("link", "file")
    followed = await seen(there.host, there.at("link"))
    assert (followed.kind, followed.inode, followed.target) == ("file", real.st_ino, "")
    assert (await seen(there.host, there.at("fifo"))).kind == "fifo"
    assert (await seen(there.host, "/dev/null")).kind == "character"


async def test_what_is_not_there_has_no_stat(there: Place) -> None:
    (there.outside / "file").touch()
    (there.outside / "dangling").symlink_to("nowhere")
    for name in ("absent", "absent/deeper", "file/under", "dangling"):
        assert await there.host.stat(there.at(name)) is None
    assert (await seen(there.host, there.at("dangling"), follow=False)).target == "nowhere"
    assert await there.host.stat("") is None


async def test_what_cannot_be_has_one_error_everywhere(there: Place) -> None:
    host, at = there.host, there.at
    (there.outside / "file").write_bytes(b"x")
    (there.outside / "folder/inner").mkdir(parents=True)
    (there.outside / "loop").symlink_to("loop")
    os.mkfifo(there.outside / "fifo")
    expected: dict[int, list[Coroutine[Any, Any, object]]] = {
        errno.ENOENT: [host.read(at("no")), host.list(at("no")), host.remove(at("no")), host.write(at("no/a"), b"")],
        errno.EISDIR: [host.read(at("folder")), host.write(at("folder"), b"")],
        errno.ENOTDIR: [host.read(at("file/a")), host.list(at("file")), host.write(at("file/a"), b"")],
        errno.ENOTEMPTY: [host.remove(at("folder"))],
        errno.ELOOP: [host.read(at("loop")), host.list(at("loop")), host.stat(at("loop")), host.write(at("loop"), b"")],
        errno.ENXIO: [host.read(at("fifo"))],
        errno.EINVAL: [host.write(at("fifo"), b"")],
        errno.ENAMETOOLONG: [host.read(at("n" * 256)), host.write(at("n" * 256), b"x"), host.stat(at("n" * 256))],
        errno.EBUSY: [host.remove("/", recursive=True)],
    }
    for number, calls in expected.items():
        for call in calls:
            assert (await os_refusal(call))[0] == number, (errno.errorcode[number], call)
    assert names(there.outside) == ["fifo", "file", "folder", "loop"]


async def test_an_error_names_the_path_that_was_given(there: Place) -> None:
    path = there.at("permission denied")
    (there.outside / "link").symlink_to("no/where")
    assert await os_refusal(there.host.read(path)) == (errno.ENOENT, path)
    assert await os_refusal(there.host.write(there.at("link"), b"")) == (errno.ENOENT, there.at("link"))
    for call in (there.host.read("a\0b"), there.host.write("a\0b", b""), there.host.list("\0"), there.host.stat("\0")):
        with pytest.raises(ValueError, match="null"):
            await call


@pytest.mark.parametrize("kind", KINDS)
async def test_what_the_account_may_not_do_is_denied(kind: str, host_beds: Beds) -> None:
    if os.getuid() != 0:
        pytest.skip("nobody else to be")
    # Not in pytest's folders, which are closed to others.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        await deny(kind, host_beds, Path(folder))


async def deny(kind: str, host_beds: Beds, folder: Path) -> None:
    async with place(kind, host_beds, folder, user="camera") as there:
        os.seteuid(0)
        (there.outside / "secret").write_bytes(b"x")
        (there.outside / "secret").chmod(0o600)
        (there.outside / "closed").mkdir()
        (there.outside / "closed").chmod(0o700)
        (there.outside / "shown").mkdir()
        (there.outside / "shown/a").write_bytes(b"old")
        if kind == "local":
            os.seteuid(CAMERA)
        at, host = there.at, there.host
        denied = [
            host.read(at("secret")),
            host.list(at("closed")),
            host.read(at("closed/a")),
            host.stat(at("closed/a")),
        ]
        denied += [host.write(at("shown/a"), b"new"), host.write(at("shown/b"), b""), host.write(at("closed/a"), b"")]
        denied += [host.remove(at("shown/a")), host.remove(at("shown"), recursive=True)]
        for call in [*denied, host.run([at("closed/a")])]:
            assert (await os_refusal(call))[0] == errno.EACCES, call
        assert (await os_refusal(host.write(at("mine"), b"", owner=(0, 0))))[0] == errno.EPERM
        assert (there.outside / "shown/a").read_bytes() == b"old"
        assert names(there.outside) == ["closed", "secret", "shown"]


async def test_mode_and_owner_are_kept_or_what_was_given(there: Place) -> None:
    file = there.outside / "a"
    await there.host.write(there.at("a"), b"1")
    assert file.stat().st_mode & 0o7777 == 0o644
    os.chown(file, CAMERA, 54321)
    file.chmod(0o4751)
    await there.host.write(there.at("a"), b"2")
    assert (file.stat().st_mode & 0o7777, file.stat().st_uid, file.stat().st_gid) == (0o4751, CAMERA, 54321)
    await there.host.write(there.at("a"), b"3", mode=0o2600, owner=(-1, 7))
    assert (file.stat().st_mode & 0o7777, file.stat().st_uid, file.stat().st_gid) == (0o2600, CAMERA, 7)
    await there.host.write(there.at("b"), b"", mode=0o606, owner=(5, -1))
    other = (there.outside / "b").stat()
    assert (other.st_mode & 0o7777, other.st_uid, other.st_gid) == (0o606, 5, 0)


async def test_a_link_is_followed_to_where_a_file_is_or_shall_be(there: Place) -> None:
    (there.outside / "folder").mkdir()
    (there.outside / "first").symlink_to("folder/second")
    (there.outside / "folder/second").symlink_to("../made")
    (there.outside / "aside").symlink_to(there.at("folder"))
    await there.host.write(there.at("first"), b"new")
    assert (there.outside / "made").read_bytes() == b"new"
    await there.host.write(there.at("aside/second"), b"newer")
    assert (there.outside / "made").read_bytes() == b"newer"
    assert (there.outside / "first").is_symlink()
    assert names(there.outside / "folder") == ["second"]


async def test_a_tree_is_removed_without_what_its_links_point_to(there: Place) -> None:
    (there.outside / "tree/deep").mkdir(parents=True)
    (there.outside / "kept").mkdir()
    (there.outside / "kept/file").touch()
    (there.outside / "tree/link").symlink_to("../kept")
    (there.outside / "link").symlink_to("kept")
    (there.outside / "empty").mkdir()
    await there.host.remove(there.at("tree"), recursive=True)
    await there.host.remove(there.at("link"), recursive=True)
    await there.host.remove(there.at("empty"))
    assert names(there.outside) == ["kept"]
    assert names(there.outside / "kept") == ["file"]


async def test_a_full_disk_keeps_the_old_file_and_gets_no_other(there: Place) -> None:
    async with tiny_disk(there) as (folder, disk):
        (disk.folder / "a").write_bytes(b"old")
        disk.fill()
        assert await os_refusal(there.host.write(f"{folder}/a", b"x" * 100_000)) == (errno.ENOSPC, f"{folder}/a")
        assert (disk.folder / "a").read_bytes() == b"old"
        assert await there.host.list(folder) == ["a", "filler"]
        disk.make_room()
        await there.host.write(f"{folder}/a", b"x" * 100_000)
        assert (disk.folder / "a").stat().st_size == 100_000


async def test_a_port_is_reached_as_the_machine_reaches_it(there: Place) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read()).upper())
        writer.write_eof()
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, asyncio.timeout(60):
        reader, writer = await there.host.connect(port)
        for _ in range(20):
            writer.write(b"said\n" * 10_000)
            await writer.drain()
        writer.write_eof()
        assert await reader.readline() == b"SAID\n"
        assert await reader.readexactly(4) == b"SAID"
        assert len(await reader.read(-1)) == 20 * 50_000 - 9
        assert reader.at_eof()
        writer.close()
        await writer.wait_closed()
    assert (await os_refusal(there.host.connect(port)))[0] == errno.ECONNREFUSED


async def test_the_facts_name_the_machine(there: Place) -> None:
    facts = await there.host.facts()
    assert facts["id"] == there.host.grains["id"]
    assert (facts["kernel"], facts["cpuarch"]) == (os.uname().sysname, os.uname().machine)
