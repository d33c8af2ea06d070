"""A small file system of its own for one folder, which can be filled to the last byte and freed again."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from pathlib import Path
from typing import Self

MOUNT_SECONDS = 20.0
FILLER = "filler"
PIECE = 1024 * 1024


class Disk:
    """A tmpfs on a folder, for as long as the context lasts."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self._folder = folder
        self._megabytes = megabytes

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        options = f"size={self._megabytes}m,mode=0711"
        command = ["mount", "-t", "tmpfs", "-o", options, "chaos", str(self._folder)]
        subprocess.run(command, timeout=MOUNT_SECONDS, check=True)
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "--lazy", str(self._folder)], timeout=MOUNT_SECONDS, check=True)

    def fill(self) -> None:
        """Take every byte that is left."""
        with (self._folder / FILLER).open("ab") as file:
            piece = PIECE
            while piece >= 1:
                try:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), piece)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    piece //= 2

    def free(self) -> None:
        """Give them back."""
        with contextlib.suppress(FileNotFoundError):
            (self._folder / FILLER).unlink()

    def used(self) -> int:
        """Bytes in use, without the filler."""
        found = os.statvfs(self._folder)
        filler = self._folder / FILLER
        return (found.f_blocks - found.f_bfree) * found.f_frsize - (filler.stat().st_size if filler.exists() else 0)
