"""The file to join with on a USB stick or an SD card: found without udev, and read as what a stranger plugged in.

A stick is mounted read-only, without devices, programs and set-user-id files, as one of the two file systems that
sticks come with, for as long as the one file takes to be read; then it is let go. Only what the kernel itself calls
removable, or an SD card, is looked at, and at most so many of them; never one in use, as the machine's own is, also
where the machine has started from a stick or a card.
"""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from device_agent.errors import NotFound, StationFailed
from gateway.fleet.join_file import FILE_NAME, JoinWish, read_wish

BLOCKS = Path("/sys/block")
DEVICES = Path("/dev")
STICKS = 8
PARTITIONS = 16
KINDS = "vfat,exfat"
OPTIONS = "ro,nosuid,nodev,noexec"
MOUNT_SECONDS = 30.0


def sticks(blocks: Path = BLOCKS, devices: Path = DEVICES) -> tuple[list[str], list[str]]:
    """What removable media hold file systems, partitions before the medium as a whole, and which media are in use:
    names of block devices.
    """
    found: list[str] = []
    busy: list[str] = []
    disks = [disk for disk in sorted(blocks.iterdir()) if _removable(disk)] if blocks.is_dir() else []
    for disk in disks[:STICKS]:
        if _in_use(devices / disk.name):
            busy.append(disk.name)
            continue
        # sdb1; and mmcblk0p1, whose disk ends with a digit.
        between = "p" if disk.name[-1].isdigit() else ""
        found += [part.name for part in sorted(disk.glob(f"{disk.name}{between}[0-9]*"))[:PARTITIONS]]
        found.append(disk.name)
    return found, busy


def wish_on_a_stick(blocks: Path = BLOCKS, devices: Path = DEVICES) -> JoinWish:
    """The file to join with, from the first stick that has one.

    Raises ``NotFound`` when none has, and ``ConfigInvalid`` for one that is not as it should be.
    """
    names, busy = sticks(blocks, devices)
    for name in names:
        with _mounted(devices / name) as folder:
            if folder is not None and (folder / FILE_NAME).exists():
                return read_wish(folder / FILE_NAME)
    looked = f"looked at {', '.join(names)}" if names else "no USB stick and no SD card"
    raise NotFound(
        f"no USB stick and no SD card here has a file {FILE_NAME}",
        error_id="join.no_stick",
        found=f"{looked}; not at {', '.join(busy)}, in use (mounted)" if busy else looked,
        allowed=f"one with FAT or exFAT that is not mounted, and the file {FILE_NAME} in its root",
        hint="plug it in, wait a few seconds, and give the command again; lsblk shows what the machine sees",
    )


def _removable(disk: Path) -> bool:
    """A card in a slot of its own is not called removable, and what is soldered in is no SD card."""
    if disk.name.startswith("mmcblk"):
        return _reads(disk / "device" / "type", "SD")
    return disk.name.startswith("sd") and _reads(disk / "removable", "1")


def _reads(path: Path, word: str) -> bool:
    try:
        return path.read_text(encoding="ascii").strip() == word
    except (OSError, UnicodeDecodeError):
        return False


def _in_use(device: Path) -> bool:
    """Whether the kernel has it, or a partition of it, for a mount, for swap or below another device (open(2), O_EXCL).

    One that cannot be opened otherwise is tried, and cannot be mounted.
    """
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return error.errno == errno.EBUSY
    return False


@contextmanager
def _mounted(device: Path) -> Iterator[Path | None]:
    """The device's files; None where it holds no file system of these kinds."""
    with tempfile.TemporaryDirectory(prefix="outstation-stick-") as folder:
        place = Path(folder) / "files"
        place.mkdir()
        if not _ran(["mount", "-t", KINDS, "-o", OPTIONS, str(device), str(place)]):
            yield None
            return
        try:
            yield place
        finally:
            _ran(["umount", "--lazy", str(place)])


def _ran(command: Sequence[str]) -> bool:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=MOUNT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StationFailed(
            "a USB stick cannot be read",
            error_id="join.stick",
            found=str(error),
            allowed="a stick that answers within half a minute, and root",
            hint=f"copy the file from it, and then: outstation gateway join --from {FILE_NAME}",
        ) from None
    return done.returncode == 0
