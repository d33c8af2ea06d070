"""A small file system of its own, which a test can fill without harm to anybody."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class SmallDisk:
    """A mounted file system in memory; ``fill`` and ``make_room`` write and remove one large file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Leave not one block."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (2**20, 2**12, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    continue

    def make_room(self) -> None:
        """As before it was full."""
        self._filler.unlink()

    def free(self) -> int:
        """Bytes."""
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize


@contextmanager
def small_disk(folder: Path, megabytes: int = 40, inodes: int = 0) -> Iterator[SmallDisk]:
    """A file system of this size, mounted there; ``inodes`` is how many files it may hold, 0 for no limit of its own.

    Skips the test where nobody may mount.
    """
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={megabytes}m,mode=0711" + (f",nr_inodes={inodes}" if inodes else "")
    mount = ["mount", "-t", "tmpfs", "-o", options, "outstation-test", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
