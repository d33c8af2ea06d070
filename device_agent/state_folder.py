"""The folder in which a device keeps its identity and its journal: taken by one process at a time."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Final

from device_agent.errors import StartDeferred
from device_agent.outbox import JournalUnavailable
from device_agent.start_errors import check_mounted, start_error

LOCK: Final = "lock"
FULL: Final = (errno.ENOSPC, errno.EDQUOT)
"""No room, or no more places for files."""


class StateFolder:
    """A folder that belongs to this process between ``take`` and ``release``."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self._lock = -1

    def take(self) -> None:
        """Make it where it is missing.

        Raises ``ConfigInvalid`` when it cannot be used, or another process has it, and ``JournalUnavailable`` when the
        disk is full: that is no matter of settings, and the next start may find room.
        """
        check_mounted(self.path, "state_dir")
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # The other one may end.
            raise StartDeferred(
                "another agent runs with this state directory",
                where="state_dir",
                found=str(self.path),
                hint="stop the other agent, or give this one a directory of its own",
            ) from None
        except OSError as error:
            if error.errno in FULL:
                raise JournalUnavailable(
                    "the disk is full", where=str(self.path), found=error.strerror, hint=mended(error, self.path)
                ) from error
            raise start_error(
                error,
                f"the state directory cannot be used: {error.strerror or error}",
                where="state_dir",
                found=str(self.path),
                allowed="a directory this user may write",
                hint=mended(error, self.path),
            ) from error

    def release(self) -> None:
        """Let another process have it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def mended(error: OSError, folder: Path) -> str:
    """What to type about a file of the folder that cannot be used."""
    if error.errno in FULL:
        return f"make room: df -h {folder}; df -i {folder}"
    return f"ls -ld {folder.parent} {folder}; the agent must be able to write there, or set state_dir: in the settings"
