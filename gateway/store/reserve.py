"""Room that is kept for a full disk: a file that is given back when nothing else is free.

With it confirmations and returns can still be committed; events and telemetry give way from then on, and are counted
(``gateway.bus``). It is made again when there is room.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar, Final

from device_agent.parts import Part

log = logging.getLogger(__name__)

RESERVE_BYTES: Final = 8 * 2**20
MARGIN_BYTES: Final = 2 * 2**20
"""Free beside the reserve before it is made again, so that it does not come and go."""

START_BYTES: Final = 2**20
"""What a store needs to open."""

LOOK_SECONDS: Final = 1.0
NAME: Final = "reserve"


async def _nothing() -> None:
    """Until somebody has something to catch up with."""


class Reserve(Part):
    """Holds the file. ``scarce`` says that it is not there: the disk is full, or nearly."""

    name: ClassVar[str] = "reserve"
    drain_seconds: ClassVar[float] = 1.0

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self.scarce = False
        self.catch_up: Callable[[], Awaitable[None]] = _nothing
        """Called now and then: what could not be written may be tried again."""

    async def open(self) -> None:
        """Make the file, if there is room."""
        self._look()
        self.spawn(self._run(), "look")

    async def drain(self) -> None:
        """Write what is still to be written."""
        await self.catch_up()

    def is_scarce(self) -> bool:
        """Whether there is no room but what was kept for what must not be lost."""
        return self.scarce

    def make_room(self) -> None:
        """Before a store is opened: on a full disk not even its log could be."""
        if self._path.exists() and _free(self._path.parent) < START_BYTES:
            self.release()

    def release(self) -> None:
        """The disk is full: give the room back."""
        if not self.scarce:
            log.critical("the disk is full: events and telemetry give way, returns go on folder=%s", self._path.parent)
        self.scarce = True
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            log.error("the reserve cannot be given back error=%s", error)

    def _look(self) -> None:
        if self._path.exists() and self._path.stat().st_size == RESERVE_BYTES:
            return
        if _free(self._path.parent) < RESERVE_BYTES + MARGIN_BYTES:
            self.release()
            return
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
            finally:
                os.close(descriptor)
        except OSError as error:
            # A file system that cannot promise room: then a full disk is met without a reserve.
            log.warning("no room can be reserved folder=%s error=%s", self._path.parent, error)
            self._path.unlink(missing_ok=True)
        if self.scarce:
            log.warning("there is room again on the disk folder=%s", self._path.parent)
        self.scarce = False

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._look()
            await self.catch_up()


def reserve_of(folder: Path) -> Reserve:
    """The reserve of a station, which is about to open its store."""
    reserve = Reserve(folder)
    reserve.make_room()
    return reserve


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
