"""device_agent/fstab.py and mount.set_fstab: lines of fstab(5) as libmount reads them."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from device_agent import fstab, late_mount
from device_agent.ended import FunctionFailed
from device_agent.fstab import Mount
from device_agent.functions import mount
from device_agent.local_host import LocalHost
from tests.unit.device_agent.test_system_text import OTHER_ENDS

NAMES = ("/mnt/usb stick", "/mnt/usb\u00a0stick", "/mnt/a\tb", "/mnt/#1", "/mnt/back\\slash", "/mnt/a\u2028b", "/mnt/ü")


@pytest.mark.skipif(shutil.which("findmnt") is None, reason="takes findmnt")
@pytest.mark.parametrize("name", NAMES)
async def test_a_written_line_is_read_by_libmount_under_the_same_name(name: str, tmp_path: Path) -> None:
    file = tmp_path / "fstab"
    file.write_text("", encoding="utf-8")
    assert await mount.set_fstab(LocalHost({}), name, "/dev/sdb1", "ext4", config=str(file)) == "new"
    asked = ["findmnt", "--fstab", "--tab-file", str(file), "--raw", "--noheadings", "--output", "TARGET"]
    done = await asyncio.to_thread(
        subprocess.run, asked, capture_output=True, check=True, timeout=20, env={**os.environ, "LC_ALL": "C.UTF-8"}
    )
    # Its raw output writes what a terminal could not show as bytes in hexadecimal.
    said = done.stdout.removesuffix(b"\n").decode("unicode_escape").encode("latin-1").decode()
    assert said == name
    assert list(await mount.fstab(LocalHost({}), config=str(file))) == [name]
    assert await mount.set_fstab(LocalHost({}), name, "/dev/sdb1", "ext4", config=str(file)) == "present"


@pytest.mark.parametrize("end", OTHER_ENDS)
async def test_a_change_makes_no_line_of_a_comment(end: str, tmp_path: Path) -> None:
    file, host = tmp_path / "fstab", LocalHost({})
    comment = f"# old:{end}/dev/sdx1 /etc ext4 defaults 0 0\n".encode()
    file.write_bytes(comment)
    assert await mount.set_fstab(host, "/data", "/dev/sdc1", "ext4", config=str(file)) == "new"
    assert file.read_bytes() == comment + b"/dev/sdc1\t/data\text4\tdefaults\t0\t0\n"
    assert await mount.rm_fstab(host, "/data", "/dev/sdc1", config=str(file))
    assert file.read_bytes() == comment


async def test_a_second_device_for_a_place_is_refused_by_its_line(tmp_path: Path) -> None:
    file, host = tmp_path / "fstab", LocalHost({})
    first = "# disks\nUUID=0a1b /data ext4 defaults 0 2\n"
    file.write_text(first)
    with pytest.raises(FunctionFailed, match=r"/data has a device already: line 2 says UUID=0a1b, .* match_on=name"):
        await mount.set_fstab(host, "/data", "/dev/sdb1", "ext4", "noatime", config=str(file))
    assert file.read_text() == first
    by_name = await mount.set_fstab(host, "/data", "/dev/sdb1", "ext4", "noatime", config=str(file), match_on="name")
    assert by_name == "change"
    assert file.read_text() == "# disks\n/dev/sdb1\t/data\text4\tnoatime\t0\t0\n"
    # Several areas of swap have the same word for a place.
    for device in ("/dev/sdc1", "/dev/sdd1"):
        assert await mount.set_fstab(host, "none", device, "swap", config=str(file)) == "new"


def test_an_unescaped_no_break_space_belongs_to_the_name() -> None:
    assert fstab.parse("/dev/sdb1 /mnt/usb\u00a0stick ext4 ro 0 2") == Mount(
        "/dev/sdb1", "/mnt/usb\u00a0stick", "ext4", "ro", 0, 2
    )


def test_a_file_with_windows_line_ends_is_read_as_libmount_does() -> None:
    assert fstab.parse("/dev/sdb1 /data ext4 ro\r") == Mount("/dev/sdb1", "/data", "ext4", "ro")


@pytest.mark.parametrize("name", [b"data\rcard", b"data\xff", "data\u2028card".encode()])
def test_a_mount_is_not_missed_whatever_its_name_is(
    name: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = os.fsencode(tmp_path) + b"/" + name
    table, now = tmp_path / "fstab", tmp_path / "mountinfo"
    table.write_bytes(b"/dev/sdb1 " + place + b" ext4 defaults 0 2\n")
    now.write_bytes(b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
    monkeypatch.setattr(late_mount, "FSTAB", table)
    monkeypatch.setattr(late_mount, "MOUNTINFO", now)
    below = Path(os.fsdecode(place), "state")
    assert late_mount.missing_mount(below) == os.fsdecode(place)
    now.write_bytes(now.read_bytes() + b"23 22 8:17 / " + place + b" rw - ext4 /dev/sdb1 rw\n")
    assert late_mount.missing_mount(below) == ""


def test_no_field_starts_another_line() -> None:
    line = Mount("/dev/a\n", "/b\n", "ext4\n/dev/x /etc ext4", "ro\n").line()
    assert "\n" not in line
    assert fstab.parse(line) == Mount("/dev/a\n", "/b\n", "ext4\n/dev/x /etc ext4", "ro\n")


def test_a_device_without_a_name_moves_no_field() -> None:
    assert fstab.mounts(" /mnt/a tmpfs rw 0 0\n") == {
        "/mnt/a": {"device": "", "alt_device": "", "fstype": "tmpfs", "opts": ["rw"]}
    }
