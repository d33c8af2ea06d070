"""A file that is itself a mount point, as in containers: nothing can be renamed over it, so it is written in place."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from device_agent import host_name, loader
from device_agent.host import Completed, Host
from tests.peers.host_places import CAMERA, Beds, Place, os_refusal, place, tiny_disk
from tests.peers.small_machine import SmallMachine, allowed, small_machine

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")


@pytest.fixture
async def far(request: pytest.FixtureRequest, host_beds: Beds, tmp_path: Path) -> AsyncIterator[Place]:
    async with place(request.param, host_beds, tmp_path) as found:
        yield found


everywhere = pytest.mark.parametrize("far", ["local", "openssh", "busybox", "sparse"], indirect=True)


@contextmanager
def mounted(far: Place, source: str, target: str, options: str = "bind") -> Iterator[None]:
    """``source`` mounted at ``target`` on that machine."""

    def run(*words: str) -> None:
        if far.bed is None:
            subprocess.run(words, check=True)
        else:
            done = far.bed.sh(" ".join(f"'{word}'" for word in words))
            assert done.returncode == 0, done.stderr

    run("mount", "--bind", source, target)
    try:
        if options != "bind":
            run("mount", "-o", f"remount,{options},bind", target)
        yield
    finally:
        run("umount", target)


async def write(host: Host, path: str, data: bytes) -> None:
    await host.write(path, data)


async def collect(host: Host, path: str, data: bytes) -> None:
    await host.append(f"{path}.part", data, at=0)
    await host.replace(f"{path}.part", path)


ways = pytest.mark.parametrize("way", [write, collect])
Way = Callable[[Host, str, bytes], Awaitable[None]]


@everywhere
@ways
async def test_a_mounted_file_is_written_in_place(far: Place, way: Way) -> None:
    source, target = far.outside / "source", far.outside / "f"
    source.write_bytes(b"old")
    source.chmod(0o640)
    os.chown(source, CAMERA, CAMERA)
    target.touch()
    with mounted(far, far.at("source"), far.at("f")):
        inode = source.stat().st_ino
        for content in (b"something longer", b"", b"x" * 200_000, b"short"):
            await way(far.host, far.at("f"), content)
            assert (source.read_bytes(), target.read_bytes()) == (content, content)
        found = source.stat()
        assert (found.st_ino, found.st_mode & 0o7777, found.st_uid) == (inode, 0o640, CAMERA)
        assert sorted(path.name for path in far.outside.iterdir()) == ["f", "source"]


@everywhere
async def test_mode_and_owner_that_are_given_are_those_of_the_mounted_file(far: Place) -> None:
    source = far.outside / "source"
    source.write_bytes(b"old")
    source.chmod(0o644)
    (far.outside / "f").touch()
    with mounted(far, far.at("source"), far.at("f")):
        await far.host.write(far.at("f"), b"new", mode=0o600, owner=(CAMERA, CAMERA))
    found = source.stat()
    assert (source.read_bytes(), found.st_mode & 0o7777, found.st_uid) == (b"new", 0o600, CAMERA)


@everywhere
async def test_a_mounted_file_in_a_read_only_folder_is_written(far: Place) -> None:
    (far.outside / "source").write_bytes(b"old")
    (far.outside / "folder").mkdir()
    (far.outside / "folder/f").touch()
    with (
        mounted(far, far.at("folder"), far.at("folder"), "ro"),
        mounted(far, far.at("source"), far.at("folder/f")),
    ):
        await far.host.write(far.at("folder/f"), b"new content")
        assert await far.host.read(far.at("folder/f")) == b"new content"
    assert (far.outside / "source").read_bytes() == b"new content"


@everywhere
async def test_a_mounted_file_that_is_read_only_is_refused_and_whole(far: Place) -> None:
    (far.outside / "source").write_bytes(b"old")
    (far.outside / "f").touch()
    with mounted(far, far.at("source"), far.at("f"), "ro"):
        number, _ = await os_refusal(far.host.write(far.at("f"), b"new"))
    assert number == errno.EROFS
    assert (far.outside / "source").read_bytes() == b"old"
    assert sorted(path.name for path in far.outside.iterdir()) == ["f", "source"]


@everywhere
async def test_a_full_disk_below_a_mounted_file_leaves_its_old_content(far: Place) -> None:
    (far.outside / "f").touch()
    async with tiny_disk(far) as (folder, disk):
        source = disk.folder / "source"
        source.write_bytes(b"old" * 1000)
        disk.fill()
        with mounted(far, f"{folder}/source", far.at("f")):
            number, _ = await os_refusal(far.host.write(far.at("f"), b"n" * 100_000))
            assert number == errno.ENOSPC
            assert source.read_bytes() == b"old" * 1000
        disk.make_room()


@pytest.mark.skipif(not allowed(), reason="only root can make namespaces")
async def test_a_rename_that_fails_in_the_middle_leaves_the_old_name_everywhere(tmp_path: Path) -> None:
    with small_machine(tmp_path / "root") as machine:
        hosts, hostname = machine.root / "etc/hosts", machine.root / "etc/hostname"
        hosts.write_text("127.0.1.1 cam-7\n")
        hostname.write_text("cam-7\n")
        refusing = cast("Host", Refusing(machine, "/etc/hostname"))
        ended = await loader.call("network.mod_hostname", refusing, ["dock-9"], {})
        assert (ended.outcome, "/etc/hostname" in ended.why) == ("failed", True)
        assert hosts.read_text() == "127.0.1.1 cam-7\n"
        assert hostname.read_text() == "cam-7\n"
        assert (await machine.run(["uname", "-n"])).stdout == b"cam-7\n"
        assert (await loader.call("network.mod_hostname", machine, ["dock-9"], {})).outcome == "ok"
        assert (hosts.read_text(), hostname.read_text()) == ("127.0.1.1 dock-9\n", "dock-9\n")
        assert (await machine.run(["uname", "-n"])).stdout == b"dock-9\n"
        hostname.unlink()
        refusing = cast("Host", Refusing(machine, ""))
        ended = await loader.call("system.set_computer_name", refusing, ["cam-8"], {})
        assert (ended.outcome, ended.why) == ("failed", "the kernel refuses")
        assert (hosts.read_text(), hostname.exists()) == ("127.0.1.1 dock-9\n", False)


@pytest.mark.skipif(not allowed(), reason="only root can make namespaces")
async def test_a_rename_whose_command_hangs_leaves_the_old_name_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_name, "SET_SECONDS", 1.0)
    with small_machine(tmp_path / "root") as machine:
        hosts, hostname = machine.root / "etc/hosts", machine.root / "etc/hostname"
        hosts.write_text("127.0.1.1 cam-7\n")
        hostname.write_text("cam-7\n")
        (machine.root / "run/systemd/system").mkdir(parents=True)
        hanging = machine.root / "bin/hostnamectl"
        hanging.write_text("#!/bin/sh\nexec sleep 1000\n")
        hanging.chmod(0o755)
        async with asyncio.timeout(60):
            ended = await loader.call("network.mod_hostname", machine, ["dock-9"], {})
        assert (ended.outcome, ended.why) == ("failed", "the device did not set the name 'dock-9' within 1 seconds")
        assert (hosts.read_text(), hostname.read_text()) == ("127.0.1.1 cam-7\n", "cam-7\n")
        # It changes the name of the kernel and then hangs: the old name cannot be set either, and the job says so.
        hanging.write_text('#!/bin/sh\nhostname "$2"; exec sleep 1000\n')
        async with asyncio.timeout(60):
            ended = await loader.call("network.mod_hostname", machine, ["dock-9"], {})
        assert ended.outcome == "failed"
        assert "cannot be put back in the name: the device did not set the name 'cam-7'" in ended.why
        assert (hosts.read_text(), hostname.read_text()) == ("127.0.1.1 cam-7\n", "cam-7\n")


class Refusing:
    """A machine with one file that cannot be written, and whose kernel takes no other name."""

    def __init__(self, machine: SmallMachine, path: str) -> None:
        self._machine, self._path = machine, path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)

    async def run(self, argv: Sequence[str], **options: Any) -> Completed:
        if any("set-hostname" in word for word in argv):
            return Completed(1, b"", b"the kernel refuses")
        return await self._machine.run(argv, **options)

    async def write(self, path: str, data: bytes, **options: Any) -> None:
        if path == self._path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        await self._machine.write(path, data, **options)
