"""A file that is collected piece by piece on a Host, and then put in place: alike whatever the way to the machine."""

from __future__ import annotations

import errno
import os

import pytest

from tests.peers.host_places import CAMERA, Place, os_refusal, tiny_disk

ODD_NAMES = ("-rf", "two words", "new\nline", "$HOME `id`", "*", "\udcff\udc81", "ümläut €", "a" * 255)


async def test_pieces_are_put_behind_one_another_and_a_piece_again_cuts_what_was_behind(there: Place) -> None:
    first, second = os.urandom(70_000), os.urandom(131_072)
    await there.host.append(there.at("part"), b"an older one", at=0)
    await there.host.append(there.at("part"), first, at=0)
    assert (there.outside / "part").stat().st_mode & 0o7777 == 0o600
    await there.host.append(there.at("part"), b"cut short", at=70_000)
    await there.host.append(there.at("part"), second, at=70_000)
    await there.host.append(there.at("part"), b"", at=70_000 + 131_072)
    assert (there.outside / "part").read_bytes() == first + second
    await there.host.replace(there.at("part"), there.at("file"))
    assert await there.host.list(there.folder) == ["file"]
    assert (there.outside / "file").read_bytes() == first + second
    assert (there.outside / "file").stat().st_mode & 0o7777 == 0o644


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
async def test_any_name_is_a_name(there: Place, name: str) -> None:
    await there.host.append(there.at(name), b"one ", at=0)
    await there.host.append(there.at(name), b"two", at=4)
    await there.host.replace(there.at(name), there.at("other"))
    await there.host.append(there.at("part"), b"three", at=0)
    await there.host.replace(there.at("part"), there.at(name))
    assert sorted(await there.host.list(there.folder)) == sorted({"other", name})
    assert (await there.host.read(there.at("other")), await there.host.read(there.at(name))) == (b"one two", b"three")


async def test_what_is_replaced_leaves_its_mode_and_owner(there: Place) -> None:
    file = there.outside / "file"
    file.write_bytes(b"old")
    os.chown(file, CAMERA, 54321)
    file.chmod(0o4751)
    await there.host.append(there.at("part"), b"new", at=0)
    await there.host.replace(there.at("part"), there.at("file"))
    found = file.stat()
    assert (file.read_bytes(), found.st_mode & 0o7777, found.st_uid, found.st_gid) == (b"new", 0o4751, CAMERA, 54321)


async def test_a_link_in_the_place_is_replaced_and_what_it_points_to_stays(there: Place) -> None:
    (there.outside / "folder").mkdir()
    for name in ("folder", "nowhere"):
        (there.outside / "link").symlink_to(name)
        await there.host.append(there.at("part"), b"new", at=0)
        await there.host.replace(there.at("part"), there.at("link"))
        assert not (there.outside / "link").is_symlink()
        assert (there.outside / "link").read_bytes() == b"new"
        (there.outside / "link").unlink()
    assert await there.host.list(there.folder) == ["folder"]


async def test_what_cannot_be_has_one_error_everywhere(there: Place) -> None:
    host, at = there.host, there.at
    (there.outside / "folder").mkdir()
    (there.outside / "short").write_bytes(b"12345")
    (there.outside / "link").symlink_to("short")
    os.mkfifo(there.outside / "fifo")
    assert (await os_refusal(host.append(at("short"), b"x", at=6)))[0] == errno.EINVAL
    assert (await os_refusal(host.append(at("link"), b"x", at=2)))[0] == errno.EINVAL
    assert (await os_refusal(host.append(at("absent"), b"x", at=2)))[0] == errno.ENOENT
    assert (await os_refusal(host.append(at("no/where"), b"x", at=0)))[0] == errno.ENOENT
    assert (await os_refusal(host.append(at("folder"), b"x", at=0)))[0] == errno.EISDIR
    assert (await os_refusal(host.replace(at("absent"), at("file"))))[0] == errno.ENOENT
    assert (await os_refusal(host.replace(at("link"), at("file"))))[0] == errno.EINVAL
    assert (await os_refusal(host.replace(at("short"), at("folder"))))[0] == errno.EISDIR
    assert (await os_refusal(host.replace(at("short"), at("fifo"))))[0] == errno.EINVAL
    assert (there.outside / "short").read_bytes() == b"12345"
    assert await host.list(there.folder) == ["fifo", "folder", "link", "short"]


async def test_a_full_disk_keeps_the_old_file(there: Place) -> None:
    async with tiny_disk(there) as (folder, disk):
        (disk.folder / "a").write_bytes(b"old")
        disk.fill()
        assert (await os_refusal(there.host.append(f"{folder}/part", b"x" * 100_000, at=0)))[0] == errno.ENOSPC
        disk.make_room()
        await there.host.append(f"{folder}/part", b"x" * 100_000, at=0)
        await there.host.replace(f"{folder}/part", f"{folder}/a")
        assert (disk.folder / "a").stat().st_size == 100_000
