"""The lock files that other programs of this machine respect: they take a record lock of fcntl(2) on the whole file."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from device_agent.disk_threads import DiskThreads, released_after_operations

WAIT_SECONDS: Final = 15.0
"""As long as lckpwdf(3) waits for /etc/.pwd.lock."""

LOOK_SECONDS: Final = 0.1
NOT_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EROFS, errno.EACCES})
"""Where no such file can be made, no other program has made one that it holds."""


@asynccontextmanager
async def held(path: str, threads: DiskThreads) -> AsyncIterator[None]:
    """Hold a lock file of this machine. Raises ``TimeoutError`` when another program holds it too long.

    A record lock belongs to the process: only one task at a time may hold the same file.
    """
    handle = await threads.call_and_own(path, lambda: _opened(path), _closed)
    if handle is None:
        yield
        return
    with released_after_operations(lambda: _closed(handle)):
        await _locked(handle, path)
        yield


async def _locked(handle: int, path: str) -> None:
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while not _taken(handle):  # noqa: ASYNC110 - the kernel announces no lock that becomes free
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        why = f"another program has held it for {WAIT_SECONDS:g} seconds, so nothing was changed; fuser {path} names it"
        raise TimeoutError(errno.ETIMEDOUT, why, path) from None


def _taken(handle: int) -> bool:
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _closed(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)


def _opened(path: str) -> int | None:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno in NOT_THERE:
            return None
        raise
