"""Does a process belong to this station? Asked from outside, of a station that does not answer."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from device_agent import system_text
from gateway.checks.box import Box

LOCK: Final = "lock"
"""The file in its state folder that a station holds while it runs (``gateway.fleet.state_folder``)."""

PARENTS: Final = 8


def _files(process: Path) -> list[Path]:
    """What a process has open; one may be closed meanwhile. Raises ``OSError`` where that may not be known."""
    found = []
    for entry in (process / "fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(entry.readlink())
    return found


def runs(box: Box) -> bool:
    """Whether a process holds the state folder."""
    try:
        descriptor = os.open(box.state_dir / LOCK, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def is_own(process: Path, box: Box) -> bool:
    """Whether a process, or one that started it, has a file of the state folder open. ``process`` is in /proc."""
    for _ in range(PARENTS):
        try:
            if any(path.is_relative_to(box.state_dir) for path in _files(process)):
                return True
            # A name of a program is bytes, and stands in brackets.
            process = process.with_name((process / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            return False
    return False


def open_files(box: Box) -> tuple[int, int, int] | None:
    """Of the process that holds the state folder: its number, how many files it has open, and how many it may."""
    lock = box.state_dir / LOCK
    for process in Path("/proc").glob("[0-9]*"):
        try:
            files = _files(process)
            if lock not in files:
                continue
            limits = (process / "limits").read_text(encoding="ascii")
        except OSError:
            continue
        line = next(line for line in system_text.lines(limits) if line.startswith("Max open files"))
        soft = line.split()[3]
        return int(process.name), len(files), int(soft) if soft.isdigit() else 0
    return None
