"""A stick or a card as the kernel has it: a file system behind a loop device, mounted, read and let go by mount(8)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
import zmq

from device_agent.errors import ConfigInvalid, NotFound
from device_agent.trust.token import SiteToken
from gateway.fleet import usb_stick
from gateway.fleet.join_file import FILE_NAME
from upstream.curve import key_bytes

TOKEN = SiteToken(bytes(range(16)), key_bytes(zmq.curve_keypair()[0].decode()), ("tcp://203.0.113.7:4510",)).text()
SECONDS = 60.0
BYTES = 4 * 2**20


def ran(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=True).stdout.strip()


@pytest.fixture
def stick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What is on it before it is plugged in, with ``plug``; the machine's own devices are out of sight."""
    if os.geteuid():
        pytest.skip("only root can mount")
    content = tmp_path / "content"
    content.mkdir()
    # A kernel without FAT, as in some containers, shows the same of another file system.
    monkeypatch.setattr(usb_stick, "KINDS", "ext4")
    yield content
    for loop in ran("losetup", "--noheadings", "--output=NAME", "--associated", str(tmp_path / "image")).split():
        ran("losetup", "--detach", loop)


def plug(content: Path, name: str = "sdb", part: str = "sdb1") -> tuple[Path, Path]:
    """The folders in which the kernel shows a stick with this on it, or a card in a slot of its own."""
    folder = content.parent
    image = folder / "image"
    with image.open("wb") as file:
        file.truncate(BYTES)
    ran("mkfs.ext4", "-q", "-O", "^has_journal", "-d", str(content), str(image))
    try:
        loop = ran("losetup", "--find", "--show", str(image))
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no loop device here: {error.stderr.strip()}")
    disk = folder / "block" / name
    (disk / part).mkdir(parents=True)
    (disk / "device").mkdir()
    # The kernel calls no card removable.
    (disk / "removable").write_text("1\n" if name.startswith("sd") else "0\n")
    (disk / "device" / "type").write_text("0\n" if name.startswith("sd") else "SD\n")
    (folder / "dev").mkdir()
    (folder / "dev" / part).symlink_to(loop)
    # The kernel's answer about a disk is about all its partitions; a loop device has none, so it is its own disk.
    (folder / "dev" / name).symlink_to(loop)
    return folder / "block", folder / "dev"


def mounted(places: tuple[Path, Path], part: str = "sdb1") -> bool:
    return str((places[1] / part).resolve()) in Path("/proc/self/mounts").read_text()


@pytest.mark.parametrize(("name", "part"), [("sdb", "sdb1"), ("mmcblk0", "mmcblk0p1")])
def test_the_file_is_read_from_it_and_it_is_let_go(name: str, part: str, stick: Path) -> None:
    (stick / FILE_NAME).write_text(yaml.safe_dump({"site": "lisbon", "token": TOKEN}))
    places = plug(stick, name, part)
    image = (stick.parent / "image").read_bytes()
    assert usb_stick.wish_on_a_stick(*places).site == "lisbon"
    assert not mounted(places, part)
    assert (stick.parent / "image").read_bytes() == image, "nothing was written to it"


def test_one_that_the_machine_uses_as_the_one_that_it_started_from_is_not_looked_at(stick: Path) -> None:
    (stick / FILE_NAME).write_text(yaml.safe_dump({"site": "lisbon", "token": TOKEN}))
    places = plug(stick, "mmcblk0", "mmcblk0p1")
    used = stick.parent / "used"
    used.mkdir()
    ran("mount", "-o", "ro", str((places[1] / "mmcblk0p1").resolve()), str(used))
    try:
        with pytest.raises(NotFound) as refused:
            usb_stick.wish_on_a_stick(*places)
    finally:
        ran("umount", str(used))
    assert "not at mmcblk0, in use" in str(refused.value.found)
    assert usb_stick.wish_on_a_stick(*places).site == "lisbon"


def test_what_is_soldered_in_or_screwed_in_is_no_stick(tmp_path: Path) -> None:
    for name, removable, kind in (("mmcblk0", "0", "MMC"), ("sda", "0", "0"), ("nvme0n1", "0", ""), ("sdb", "1", "0")):
        (tmp_path / name / "device").mkdir(parents=True)
        (tmp_path / name / "removable").write_text(removable)
        (tmp_path / name / "device" / "type").write_text(kind)
    assert usb_stick.sticks(tmp_path, tmp_path / "dev") == (["sdb"], [])


@pytest.mark.parametrize("kind", ["link", "pipe", "device", "folder"])
def test_what_is_no_plain_file_is_not_followed(kind: str, stick: Path) -> None:
    path = stick / FILE_NAME
    if kind == "link":
        path.symlink_to("/etc/hostname")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        os.mknod(path, 0o20666, os.makedev(1, 5))
    else:
        path.mkdir()
    places = plug(stick)
    with pytest.raises(ConfigInvalid, match="the file to join with"):
        usb_stick.wish_on_a_stick(*places)
    assert not mounted(places)


def test_one_without_the_file_is_let_go_too(stick: Path) -> None:
    places = plug(stick)
    with pytest.raises(NotFound, match=FILE_NAME):
        usb_stick.wish_on_a_stick(*places)
    assert not mounted(places)
