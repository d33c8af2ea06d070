"""The state folder as a place that is given up and taken: by one station at a time, and only as a whole."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final

from device_agent.durable import synced
from device_agent.errors import ConfigInvalid, StationFailed
from device_agent.next_start import FAILURES
from gateway.config import StationSettings
from gateway.fleet.state_folder import at_rest

DEFAULT: Final = Path("/var/lib/outstation/gateway")
LOCK: Final = "lock"
"""Held by a running station; its presence alone says nothing."""

SERVICE_USER: Final = "outstation"
"""Whom the unit runs the gateway as, where it is installed."""

WORKSHOP: Final = ".backup"
"""Where a backup is made ready."""


def state_folder(settings: StationSettings) -> Path:
    """Where a gateway with these settings keeps its state."""
    return Path(settings.state_dir).resolve() if settings.state_dir is not None else DEFAULT


@contextmanager
def workshop(state: Path) -> Iterator[Path]:
    """A folder in the state folder that only we use; what an earlier one left when it was killed goes first."""
    folder = state / WORKSHOP
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        # Root may do this in a folder that is the gateway's user's: it follows no link that lies there.
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigInvalid(
            "the state folder cannot be used",
            where="state_dir",
            found=f"{state}: {error.strerror}",
            allowed="the state folder of this gateway, which this user may write",
            hint="run it as root, or as the user of the gateway, with the gateway's settings: --config FILE",
        ) from None
    try:
        if not _locked(held):
            raise StationFailed(
                "another backup of this gateway is being taken",
                error_id="backup.busy",
                where=str(state),
                allowed="one at a time",
                hint="wait until it has ended",
            )
        for left in folder.iterdir():
            os.unlink(left.name, dir_fd=held)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(held)


def kept_still(state: Path) -> AbstractContextManager[None]:
    """No station runs here, and none starts meanwhile. Raises ``UsageInvalid`` when one does."""
    return at_rest(state, "systemctl stop outstation-gateway") if state.exists() else nullcontext()


def check_place(state: Path, *, force: bool) -> None:
    """Whether a restored folder may take this place. Raises ``ConfigInvalid``."""
    if os.path.ismount(state):
        raise ConfigInvalid(
            "a file system of its own cannot be replaced as a folder",
            error_id="backup.mount",
            where="state_dir",
            found=f"{state} is where one is mounted",
            allowed="a folder in it",
            hint=f"state_dir: {state / 'gateway'}   in the settings",
        )
    try:
        entries = {entry.name for entry in state.iterdir()} - {LOCK, WORKSHOP, FAILURES} if state.exists() else set()
    except OSError as error:
        raise _unusable(state, error) from None
    if entries and not force:
        raise ConfigInvalid(
            "there is something in the state folder",
            error_id="backup.not_empty",
            where="state_dir",
            found=f"{state}: {', '.join(sorted(entries)[:5])}{' …' if len(entries) > 5 else ''}",
            allowed="an empty folder, or none",
            hint="--force moves it aside; it is kept",
        )


@contextmanager
def staged(state: Path) -> Iterator[Path]:
    """A folder beside the state folder, to be filled and then put in its place; gone when it was not.

    It is locked as that of a running station, so that none starts on it the moment it has its name.
    """
    folder = state.with_name(f".{state.name}.restoring")
    try:
        state.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        held = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(state, error) from None
    try:
        if not _locked(held):
            raise StationFailed(
                "another backup is being restored here",
                error_id="backup.busy",
                where=str(folder),
                allowed="one at a time",
                hint="wait until it has ended",
            )
        try:
            for left in folder.iterdir():
                # Left by one that was killed.
                if left.name != LOCK:
                    shutil.rmtree(left) if left.is_dir() else left.unlink()
            yield folder
        finally:
            # After ``put_in_place`` there is nothing of this name.
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(held)


def put_in_place(folder: Path, state: Path, stamp: str) -> Path | None:
    """Make a staged folder the state folder; where the one before it is now. Raises ``StationFailed``."""
    aside = None
    try:
        _hand_over(folder, _owner_of(state))
        if state.exists():
            if {entry.name for entry in state.iterdir()} - {LOCK, WORKSHOP, FAILURES}:
                aside = _unused(state.with_name(f"{state.name}.before-restore-{stamp}"))
                state.rename(aside)
            else:
                shutil.rmtree(state)
        folder.rename(state)
        synced(state.parent)
    except OSError as error:
        if aside is not None and not state.exists():
            with suppress(OSError):
                aside.rename(state)
                aside = None
        raise StationFailed(
            "the restored state folder could not be put in its place",
            error_id="backup.not_placed",
            where=str(state),
            found=f"{error.strerror}{f'; what was there is now {aside}' if aside is not None else ''}",
            allowed="a folder in a folder that this user may write",
            hint=f"ls -ld {state.parent} {state}; run it as root",
        ) from None
    return aside


def _owner_of(state: Path) -> tuple[int, int]:
    """User and group of a state folder: of the one that is there, of the gateway's user, or of the folder around it."""
    if not state.exists():
        with suppress(KeyError):
            entry = pwd.getpwnam(SERVICE_USER)
            return entry.pw_uid, entry.pw_gid
    found = (state if state.exists() else state.parent).stat()
    return found.st_uid, found.st_gid


def _hand_over(folder: Path, owner: tuple[int, int]) -> None:
    """All of it on disk, and, made by root, for the user of the gateway."""
    for path in (*folder.rglob("*"), folder):
        if os.geteuid() == 0:
            os.chown(path, *owner)
        synced(path)


def _unused(path: Path) -> Path:
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unusable(state: Path, error: OSError) -> ConfigInvalid:
    return ConfigInvalid(
        "the state folder cannot be used",
        where="state_dir",
        found=f"{state}: {error.strerror}",
        allowed="a folder that this user may write",
        hint=f"run it as root; ls -ld {state.parent} {state}",
    )
