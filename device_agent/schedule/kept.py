"""What an agent keeps of its schedule on flash: changes made while it ran, what was done, and what is under way.

One file that is written whole: a schedule is small. A damaged one is set aside, and the schedule begins without it.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from device_agent.durable import open_regular, replace_private
from device_agent.framing import free_name
from device_agent.schedule.turns import State
from device_agent.start_errors import start_error

log = logging.getLogger(__name__)

FILE_BYTES: Final = 4 * 1024 * 1024
"""Largest file that is read."""


class Run(Struct, frozen=True, omit_defaults=True):
    """A run that is under way. With a ``boot_id`` it restarts the device."""

    name: str
    fun: str
    arg: list[Any]
    kwarg: dict[str, Any]
    due: float
    begun: float
    late: float = 0.0
    returns: bool = True
    metadata: dict[str, Any] = {}
    boot_id: str = ""
    within: float = 0.0


class Changes(Struct, omit_defaults=True):
    """What differs from the settings: entries that were added or changed, taken away, switched on or off."""

    entries: dict[str, dict[str, Any]] = {}
    removed: list[str] = []
    switched: dict[str, bool] = {}
    enabled: bool | None = None
    reach: dict[str, str] = {}
    """How far the function of an entry reached when it was added, where a site brought it."""


class Kept(Struct, omit_defaults=True):
    """The file. ``pillar`` is the schedule in the pillar as it last came, for a start without a station."""

    changes: Changes = msgspec.field(default_factory=Changes)
    pillar: dict[str, Any] = {}
    states: dict[str, State] = {}
    running: dict[str, Run] = {}
    jid: str = ""
    """The newest job id that was given here."""
    lost: bool = False
    """What was kept before was damaged: what ran is not known."""


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Kept)


class KeptFile:
    """Where it is kept."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = asyncio.Lock()

    async def load(self) -> Kept:
        """What was kept; nothing where there is no file yet. Raises ``ConfigInvalid`` for one that cannot be read."""
        return await asyncio.to_thread(self._load)

    async def save(self, kept: Kept) -> None:
        """It is on flash when this returns. Raises ``OSError``."""
        async with self._turn:
            # Encoded in here: of two that wait the later one has what both want to keep.
            await asyncio.to_thread(replace_private, self._path, _encoder.encode(kept))

    def _load(self) -> Kept:
        try:
            with open_regular(self._path) as file:
                body = file.read(FILE_BYTES + 1)
        except FileNotFoundError:
            return Kept()
        except OSError as error:
            what = f"the kept schedule cannot be read: {error.strerror}"
            raise start_error(error, what, where=str(self._path), hint=f"ls -l {self._path}") from None
        try:
            if len(body) > FILE_BYTES:
                raise ValueError(f"over {FILE_BYTES} bytes")
            return _decoder.decode(body)
        except (msgspec.DecodeError, ValueError) as error:
            aside = free_name(self._path)
            self._path.rename(aside)
            log.error("the kept schedule was damaged: set aside as %s error=%s", aside, error)
            return Kept(lost=True)
