"""The state folder of a station: made, and held by one process at a time."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from device_agent.errors import OutstationError, StationFailed, UsageInvalid
from device_agent.start_errors import check_mounted, start_error


def made(folder: Path) -> Path:
    """The folder, made when it is not there. Raises as ``held`` does for a folder that cannot be used."""
    check_mounted(folder, "state_dir")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(folder, error) from None
    return folder


@contextmanager
def held(folder: Path, taken: OutstationError) -> Iterator[None]:
    """Make the folder, and hold it: two stations on one store would both believe to be the only writer.

    Raises:
        ConfigInvalid: the folder cannot be used; ``StartDeferred`` among these where that may pass by itself.
        StationFailed: the disk is full.
        taken: another process holds the folder.
    """
    try:
        # For reading as well: then a FIFO in its place does not block (fifo(7)).
        lock = os.fdopen(
            os.open(made(folder) / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b", buffering=0
        )
        if os.geteuid() == 0:
            # An administrator may come first to the folder of a station of another user, which has to open it too.
            owner = folder.stat()
            os.fchown(lock.fileno(), owner.st_uid, owner.st_gid)
    except OSError as error:
        raise _unusable(folder, error) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise taken from None
        yield


def at_rest(folder: Path, instead: str) -> AbstractContextManager[None]:
    """Hold the folder of a station that does not run. Raises ``UsageInvalid`` if it does; ``instead`` is what to do."""
    running = UsageInvalid(
        "a station is running with this state folder",
        error_id="station.running",
        where=str(folder),
        allowed="a station that does not run",
        hint=instead,
    )
    return held(folder, running)


def _unusable(folder: Path, error: OSError) -> OutstationError:
    if error.errno == errno.ENOSPC:
        return full(error, folder)
    return start_error(
        error,
        "the state folder cannot be used",
        where="state_dir",
        found=f"{folder}: {error.strerror}",
        allowed="a folder that this user may write",
        hint=f"chown -R outstation: {folder} for a unit; else run it with sudo, or set state_dir: in the settings",
    )


def full(error: OSError, folder: Path) -> StationFailed:
    """There is no room. Not a matter of settings: the next start may find some."""
    return StationFailed(
        "the disk is full",
        error_id="store.disk_full",
        where=str(error.filename or folder),
        found=error.strerror,
        hint=f"make room: du -xh {folder} | sort -h | tail",
    )
