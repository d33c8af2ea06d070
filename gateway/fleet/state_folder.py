"""The state folder of a station that does not run, for a command that changes its files."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from device_agent.errors import ConfigInvalid, UsageInvalid


def made(folder: Path) -> Path:
    """The folder, made when it is not there. Raises ``ConfigInvalid``."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigInvalid(
            "the state folder cannot be made",
            where="state_dir",
            found=f"{folder}: {error.strerror}",
            allowed="a folder that this user may write",
            hint="run it with sudo, or set state_dir: in the settings",
        ) from None
    return folder


@contextmanager
def held(folder: Path, instead: str) -> Iterator[None]:
    """Hold the folder as a running station does. Raises ``UsageInvalid`` when one runs; ``instead`` is what to do."""
    try:
        lock = (made(folder) / "lock").open("w")
    except OSError as error:
        raise ConfigInvalid(
            "the state folder cannot be used",
            where="state_dir",
            found=f"{folder}: {error.strerror}",
            allowed="a folder that this user may write",
            hint="run it with sudo, or set state_dir: in the settings",
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageInvalid(
                "a station is running with this state folder",
                error_id="station.running",
                where=str(folder),
                allowed="a station that does not run",
                hint=instead,
            ) from None
        yield
