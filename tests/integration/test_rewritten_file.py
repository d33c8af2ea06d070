"""What a file keeps when a host rewrites it: its access control list, labels, other attributes and flags."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from device_agent import file_attributes
from device_agent.host import Host
from tests.peers.host_places import CAMERA, Beds, Place, place

NOBODY = 65534
USER, NAMED, GROUP, MASK, OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
NO_ID = 0xFFFFFFFF
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"


def access_list(*entries: tuple[int, int, int]) -> bytes:
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def nobody_may(bits: int, group: int = 0, mask: int = 6) -> bytes:
    """The owner may read and write, the group what ``group`` says, and nobody what ``bits`` and the mask say."""
    return access_list(
        (USER, 6, NO_ID), (NAMED, bits, NOBODY), (GROUP, group, NO_ID), (MASK, mask, NO_ID), (OTHER, 0, NO_ID)
    )


def attributes(path: Path) -> dict[str, bytes]:
    return {name: os.getxattr(path, name) for name in os.listxattr(path)}


def give(path: Path, name: str, value: bytes) -> None:
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        pytest.skip(f"the file system of the tests has no {name}")


@pytest.fixture
async def far(request: pytest.FixtureRequest, host_beds: Beds, tmp_path: Path) -> AsyncIterator[Place]:
    async with place(request.param, host_beds, tmp_path) as found:
        yield found


able = pytest.mark.parametrize("far", ["local", "openssh"], indirect=True)


async def write(host: Host, path: str, data: bytes) -> None:
    await host.write(path, data)


async def collect(host: Host, path: str, data: bytes) -> None:
    await host.append(f"{path}.part", data, at=0)
    await host.replace(f"{path}.part", path)


Way = Callable[[Host, str, bytes], Awaitable[None]]
ways = pytest.mark.parametrize("way", [write, collect])


@able
@ways
async def test_a_rewritten_file_keeps_its_access_list_and_attributes(far: Place, way: Way) -> None:
    file = far.outside / "f"
    file.write_bytes(b"old")
    os.chown(file, 0, CAMERA)
    os.utime(file, (1, 1))
    give(file, "user.site", b"lisbon")
    give(file, ACCESS, nobody_may(6))
    before, mode = attributes(file), file.stat().st_mode
    await way(far.host, far.at("f"), b"new")
    assert file.read_bytes() == b"new"
    assert attributes(file) == before
    assert (file.stat().st_mode, file.stat().st_gid) == (mode, CAMERA)
    assert file.stat().st_mtime > 1000


@able
@ways
async def test_a_rewritten_file_takes_no_access_list_from_its_folder(far: Place, way: Way) -> None:
    file = far.outside / "f"
    file.write_bytes(b"old")
    file.chmod(0o640)
    give(far.outside, DEFAULT, nobody_may(6))
    await way(far.host, far.at("f"), b"new")
    assert ACCESS not in attributes(file)
    assert file.stat().st_mode & 0o777 == 0o640


@able
async def test_a_mode_that_is_given_closes_an_access_list_as_chmod_does(far: Place) -> None:
    file = far.outside / "f"
    file.write_bytes(b"old")
    give(file, ACCESS, nobody_may(6))
    await far.host.write(far.at("f"), b"new", mode=0o600)
    assert attributes(file)[ACCESS] == nobody_may(6, mask=0)
    assert file.stat().st_mode & 0o777 == 0o600


@able
async def test_a_label_is_kept_and_a_right_of_the_old_program_is_not(far: Place) -> None:
    file = far.outside / "f"
    file.write_bytes(b"old")
    give(file, "security.capability", struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0))
    give(file, "security.selinux", b"system_u:object_r:etc_t:s0\0")
    await far.host.write(far.at("f"), b"new")
    assert attributes(file) == {"security.selinux": b"system_u:object_r:etc_t:s0\0"}


@pytest.mark.parametrize("far", ["openssh"], indirect=True)
@ways
async def test_an_access_list_that_the_device_cannot_keep_refuses_the_write(far: Place, way: Way) -> None:
    assert far.bed is not None
    file = far.outside / "f"
    file.write_bytes(b"old")
    give(file, ACCESS, nobody_may(6))
    failing = "#!/bin/sh\nexit 1\n"
    with (
        far.bed.program("cp", failing),
        far.bed.program("setfacl", failing),
        far.bed.program("getfacl", failing),
        pytest.raises(OSError, match=r"access control list .* cannot be kept") as caught,
    ):
        await way(far.host, far.at("f"), b"new")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOTSUP, far.at("f" if way is write else "f.part"))
    assert (file.read_bytes(), attributes(file)) == (b"old", {ACCESS: nobody_may(6)})
    assert sorted(path.name for path in far.outside.iterdir()) == (["f"] if way is write else ["f", "f.part"])


@pytest.mark.skipif(not shutil.which("setfacl"), reason="the package acl is not installed")
@pytest.mark.parametrize("far", ["openssh"], indirect=True)
async def test_setfacl_keeps_an_access_list_where_cp_cannot(far: Place) -> None:
    assert far.bed is not None
    file = far.outside / "f"
    file.write_bytes(b"old")
    give(file, ACCESS, nobody_may(6))
    with far.bed.program("cp", "#!/bin/sh\nexit 1\n"):
        await far.host.write(far.at("f"), b"new")
    assert (file.read_bytes(), attributes(file)) == (b"new", {ACCESS: nobody_may(6)})


@pytest.mark.parametrize("far", ["local"], indirect=True)
@ways
async def test_a_rewritten_file_keeps_its_flags(far: Place, way: Way) -> None:
    file, nodump = far.outside / "f", 0x40
    file.write_bytes(b"old")
    with file.open("rb") as opened:
        try:
            found = struct.unpack("I4x", fcntl.ioctl(opened, file_attributes._GET_FLAGS, bytes(8)))[0]
            fcntl.ioctl(opened, file_attributes._SET_FLAGS, struct.pack("I4x", found | nodump))
        except OSError as error:
            pytest.skip(f"the file system of the tests has no flags: {error}")
    await way(far.host, far.at("f"), b"new")
    with file.open("rb") as opened:
        assert struct.unpack("I4x", fcntl.ioctl(opened, file_attributes._GET_FLAGS, bytes(8)))[0] == found | nodump
    assert file.read_bytes() == b"new"


@pytest.mark.parametrize("far", ["local"], indirect=True)
async def test_an_attribute_that_cannot_be_kept_refuses_the_write(far: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    file = far.outside / "f"
    file.write_bytes(b"old")
    give(file, "user.site", b"lisbon")

    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "")

    monkeypatch.setattr(os, "setxattr", refused)
    with pytest.raises(PermissionError, match=r"user\.site cannot be kept, so nothing was written"):
        await far.host.write(far.at("f"), b"new")
    assert (file.read_bytes(), list(far.outside.iterdir())) == (b"old", [file])


NOTING = """#!/bin/sh
note() {{ stat -c '{name} %i %a %u' {folder}/.f.outstation-* >>{folder}/noted 2>/dev/null; }}
note; {command} "$@"; s=$?; note; exit $s
"""
"""A program that notes inode, mode and owner of each file beside ``f``, before and after it does its work."""


@contextmanager
def noting(far: Place, **others: str) -> Iterator[None]:
    """These programs of the device note what they find; ``others`` do something else then."""
    assert far.bed is not None
    with ExitStack() as stack:
        for name in ("cp", "getfacl", "setfacl", "chmod", "chown", "wc"):
            command = others.get(name, f"PATH=/usr/bin:/bin {name}")
            stack.enter_context(far.bed.program(name, NOTING.format(name=name, folder=far.folder, command=command)))
        yield


def noted(far: Place, program: str = "") -> set[tuple[int, int]]:
    """The modes and owners that the file had which now is ``f``, as one or all of the programs found it."""
    lines = [line.split() for line in (far.outside / "noted").read_text().splitlines()]
    inode = str((far.outside / "f").stat().st_ino)
    return {(int(mode, 8), int(uid)) for name, found, mode, uid in lines if found == inode and program in {"", name}}


copying = pytest.mark.parametrize(
    "others",
    [
        pytest.param({}, id="cp"),
        pytest.param(
            {"cp": "false"},
            id="setfacl",
            marks=pytest.mark.skipif(not shutil.which("setfacl"), reason="the package acl is not installed"),
        ),
    ],
)


@copying
@pytest.mark.parametrize("far", ["openssh"], indirect=True)
async def test_the_old_mode_never_opens_the_content_of_a_stricter_one(far: Place, others: dict[str, str]) -> None:
    file = far.outside / "f"
    file.write_bytes(b"old")
    file.chmod(0o644)
    os.chown(file, NOBODY, NOBODY)
    give(file, ACCESS, nobody_may(6, group=4))
    with noting(far, **others):
        await far.host.write(far.at("f"), b"secret", mode=0o600, owner=(0, 0))
    assert file.read_bytes() == b"secret"
    assert attributes(file)[ACCESS] == nobody_may(6, group=4, mask=0)
    assert noted(far) == {(0o600, 0)}


@copying
@pytest.mark.parametrize("far", ["openssh"], indirect=True)
async def test_a_rewritten_file_is_closed_until_it_has_its_owner(far: Place, others: dict[str, str]) -> None:
    file = far.outside / "f"
    file.write_bytes(b"old")
    os.chown(file, NOBODY, NOBODY)
    file.chmod(0o644)
    with noting(far, **others):
        await far.host.write(far.at("f"), b"new")
    assert noted(far) == {(0o600, 0), (0o600, NOBODY), (0o644, NOBODY)}


@pytest.mark.parametrize("far", ["openssh"], indirect=True)
async def test_the_list_of_a_folder_does_not_open_the_content_of_a_new_file(far: Place) -> None:
    give(far.outside, DEFAULT, nobody_may(6))
    with noting(far):
        await far.host.write(far.at("f"), b"secret", mode=0o600)
    assert (far.outside / "f").read_bytes() == b"secret"
    assert noted(far, "wc") == {(0o600, 0)}
