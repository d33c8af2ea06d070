"""The file to join with on a USB stick: found without udev, and read as what a stranger plugged in.

A stick is mounted read-only, without devices, programs and set-user-id files, as one of the two file systems that
sticks come with, for as long as the one file takes to be read; then it is let go. Only what the kernel itself calls
removable is looked at, and at most so many of them.
"""

from __future__ import annotations

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


def sticks(blocks: Path = BLOCKS) -> list[str]:
    """What removable media hold file systems: names of block devices, partitions before the medium as a whole."""
    found: list[str] = []
    disks = [disk for disk in sorted(blocks.glob("sd*")) if _removable(disk)] if blocks.is_dir() else []
    for disk in disks[:STICKS]:
        found += [part.name for part in sorted(disk.glob(f"{disk.name}[0-9]*"))[:PARTITIONS]]
        found.append(disk.name)
    return found


def wish_on_a_stick(blocks: Path = BLOCKS, devices: Path = DEVICES) -> JoinWish:
    """The file to join with, from the first stick that has one.

    Raises ``NotFound`` when none has, and ``ConfigInvalid`` for one that is not as it should be.
    """
    names = sticks(blocks)
    for name in names:
        with _mounted(devices / name) as folder:
            if folder is not None and (folder / FILE_NAME).exists():
                return read_wish(folder / FILE_NAME)
    raise NotFound(
        f"no USB stick here has a file {FILE_NAME}",
        error_id="join.no_stick",
        found=f"looked at {', '.join(names)}" if names else "no USB stick",
        allowed=f"a stick with FAT or exFAT, and the file {FILE_NAME} in its root",
        hint="plug it in, wait a few seconds, and give the command again; lsblk shows what the machine sees",
    )


def _removable(disk: Path) -> bool:
    try:
        return (disk / "removable").read_text(encoding="ascii").strip() == "1"
    except (OSError, UnicodeDecodeError):
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
