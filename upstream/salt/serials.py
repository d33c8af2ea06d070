"""Each publish of a Salt master is taken once, also after a restart: how far each of its keys was heard is on disk.

It is put there when what was ordered is on disk, not before: a publish that a kill cut short may come again, and is
missed in the count when it does not.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from device_agent.errors import Refused
from upstream.salt.box import Box

LARGEST_GAP: Final = 1_000_000
"""A serial that jumps farther counts as this many lost."""

LARGEST_SERIAL: Final = 2**63 - 1
KEYS: Final = 64
"""How many are at hand; those before them are read from disk."""


class KeptSerials(Protocol):
    """Where it is kept. A key is named by a hash of it."""

    async def last(self, key: str) -> int | None:
        """The last serial that was taken under a key; None for a new one. Raises ``StationFailed``."""

    async def keep(self, key: str, serial: int, master: str) -> None:
        """Return when it is on disk. Raises ``StationFailed``."""


@dataclass(frozen=True)
class Heard:
    """One publish that was not heard before."""

    key: str
    """A hash of the key that it came under."""
    serial: int
    master: str
    lost: int
    """How many were lost just before it."""


def serial_of(load: Mapping[str, Any]) -> int:
    """The number of a publish. Raises ``Refused``: ``malformed``."""
    serial = load.get("serial")
    if not isinstance(serial, int) or isinstance(serial, bool) or not 0 <= serial <= LARGEST_SERIAL:
        raise Refused("malformed", "a publish without a serial")
    return serial


class SerialGuard:
    """One for all links: a master that is listed under two names is heard once."""

    def __init__(self, kept: KeptSerials) -> None:
        self._kept = kept
        self._last: OrderedDict[str, int | None] = OrderedDict()
        self._one_by_one = asyncio.Lock()

    async def hear(self, load: Mapping[str, Any], aes: Box, master: str) -> Heard:
        """A publish that was not there before; while this program runs it is refused from now on.

        Raises ``Refused``: ``malformed``, ``replayed``; ``StationFailed`` when the store cannot be read.
        """
        serial = serial_of(load)
        key = hashlib.sha256(aes.key.encode()).hexdigest()
        async with self._one_by_one:
            last = self._last[key] if key in self._last else await self._kept.last(key)
            if last is not None and serial <= last:
                raise Refused("replayed", f"serial {serial} after {last}")
            self._last[key] = serial
            self._last.move_to_end(key)
            if len(self._last) > KEYS:
                self._last.popitem(last=False)
        return Heard(key, serial, master, 0 if last is None else min(LARGEST_GAP, serial - last - 1))

    async def keep(self, heard: Heard) -> None:
        """From now on it is refused after a restart as well. Call it when what it orders is on disk.

        Raises ``StationFailed``: it is not known then after a restart, unless a later one is kept.
        """
        await self._kept.keep(heard.key, heard.serial, heard.master)
