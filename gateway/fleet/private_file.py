"""Files that only their owner reads, replaced whole: a crash in between leaves the old one or the new one."""

from __future__ import annotations

import os
from pathlib import Path

from device_agent.durable import open_regular, replace_private
from device_agent.errors import ConfigInvalid, StationFailed
from device_agent.start_errors import start_error


def write_private(path: Path, body: bytes) -> None:
    """Put a file of mode 0600 in a path's place. Raises ``StationFailed``."""
    try:
        folder = path.parent.stat()
        # An administrator makes it for a station of another user, whose folder it is.
        replace_private(path, body, (folder.st_uid, folder.st_gid) if os.geteuid() == 0 else None)
    except OSError as error:
        raise StationFailed(
            "a file could not be written",
            error_id="file.not_written",
            where=str(path),
            found=error.strerror or str(error),
            allowed="a folder that this user may write, with space left",
            hint=f"ls -ld {path.parent}; df -h {path.parent}",
        ) from None


def read_private(path: Path, most: int) -> bytes | None:
    """A file's bytes; None when there is none. Raises ``ConfigInvalid`` for one that cannot be read or is too large."""
    try:
        with open_regular(path) as file:
            body = file.read(most + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise start_error(
            error,
            "a file cannot be read",
            where=str(path),
            found=error.strerror or str(error),
            allowed="a file that this user may read",
            hint=f"ls -l {path}",
        ) from None
    if len(body) > most:
        raise ConfigInvalid("a file is too large to be what it should be", where=str(path), allowed=f"{most} bytes")
    return body
