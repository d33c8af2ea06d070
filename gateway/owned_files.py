"""Code that a station takes from its own disk is its administrator's: whose file it is, and who may write there."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from device_agent.errors import Refused

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def check_owned(place: Path) -> None:
    """Whether nobody but root and this user can write a file, or put another in its place.

    Raises ``Refused``: ``unsafe`` and ``unreadable``, each with what was found, what is allowed and how to mend it.
    """
    owners = {0, os.geteuid()}
    allowed = " or ".join(f"uid {each}" for each in sorted(owners))
    for part in (place, *(place.parent.resolve() / place.name).parents):
        try:
            found = part.lstat() if part == place else part.stat()
        except OSError as error:
            raise Refused("unreadable", f"{part}: {error.strerror or error}") from None
        if part == place and not stat.S_ISREG(found.st_mode):
            raise Refused("unsafe", f"{part} is no plain file: a link or a pipe is not allowed")
        if found.st_uid not in owners:
            raise Refused("unsafe", f"{part} belongs to uid {found.st_uid}, allowed is {allowed}: chown root {part}")
        # In a folder such as /tmp nobody can replace what is another's.
        sticky = part != place and found.st_mode & stat.S_ISVTX
        if found.st_mode & _OTHERS_WRITE and not sticky:
            mode = f"{stat.S_IMODE(found.st_mode):04o}"
            raise Refused(
                "unsafe", f"others may write {part} (mode {mode}), allowed is its owner alone: chmod go-w {part}"
            )
