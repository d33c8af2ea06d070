"""Who may read what of the mine: the devices that a target means, less what they told for others alone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from device_agent.errors import UsageInvalid
from device_agent.protocol.messages import TargetType
from device_agent.protocol.stations import can_mean_stations, is_station
from device_agent.protocol.target_terms import shown
from device_agent.protocol.targeting import Target, compile_target
from gateway.devices.registry import REVOKED, Registry
from gateway.jobs.nodegroups import Nodegroups
from gateway.mine.book import MineBook
from gateway.mine.shelf import Cell, Shelf

TURN: Final = 256
"""Devices that are looked at before everything else gets its turn."""


class Asker(Struct, frozen=True):
    """The device that asks."""

    id: str
    grains: Mapping[str, Any]


class Value(Struct, frozen=True):
    """One value of one device, and when it was told."""

    site: str
    device: str
    name: str
    value: bytes
    kept: float


class MineReading:
    """Reads the book with the station's targets."""

    def __init__(self, *, site: str, book: MineBook, registry: Registry, nodegroups: Nodegroups) -> None:
        self._site = site
        self._book = book
        self._registry = registry
        self._nodegroups = nodegroups

    def target(self, tgt: str, tgt_type: str) -> Target:
        """A target in any words that this station knows. Raises ``UsageInvalid``."""
        return compile_target(*self._nodegroups.signed(tgt, tgt_type))

    def signed(self, tgt: str, tgt_type: str, delimiter: str) -> tuple[str, TargetType]:
        """A typed target without the words of this station alone. Raises ``UsageInvalid``."""
        return self._nodegroups.signed(tgt, tgt_type, delimiter)

    def asker(self, site: str, device: str) -> Asker | None:
        """A device of this station or below, as others' targets see it."""
        known = self._registry.known(site, device)
        return Asker(device, known.grains) if known is not None and known.state != REVOKED else None

    async def read(
        self,
        tgt: str,
        tgt_type: str,
        names: Sequence[str],
        *,
        asker: Asker | None,
        sites: bool,
        most: int,
        without: str = "",
    ) -> list[Value]:
        """The values that an asker may read; without one, all. ``sites``: of devices of other sites as well.

        ``without`` is a site that is left out.

        Raises ``UsageInvalid`` for a target that cannot be, and ``NotFound`` for more than ``most`` bytes.
        """
        target = self.target(tgt, tgt_type)
        if target.needs_pillar and asker is not None:
            # Value by value it would find out what is in the pillar of the others.
            raise UsageInvalid(
                "a device finds no others by their pillar",
                where="tgt",
                found=shown(tgt),
                allowed="names, grains, addresses and nodegroups without I@ and J@",
            )
        await self._registry.know(target)
        wanted: list[tuple[Shelf, str]] = []
        for turn, shelf in enumerate(self._book.shelves()):
            if turn % TURN == TURN - 1:
                await asyncio.sleep(0)
            if shelf.site == without or (not sites and shelf.site != self._site):
                continue
            having = [name for name in names if name in shelf.cells]
            known = self._registry.known(shelf.site, shelf.device) if having else None
            if known is None or known.state == REVOKED or (is_station(known) and not can_mean_stations(target.tgt)):
                continue
            if not target.matches(known.id, known.grains):
                continue
            wanted += [(shelf, name) for name in having if asker is None or self._may_read(asker, shelf.cells[name])]
        found = await self._book.values(wanted, most)
        wanted.sort(key=lambda each: (each[0].device, each[0].site))
        return [
            Value(shelf.site, shelf.device, name, found[key], shelf.cells[name].kept)
            for shelf, name in wanted
            if (key := (shelf.site, shelf.device, name)) in found
        ]

    def _may_read(self, asker: Asker, cell: Cell) -> bool:
        if not cell.allow_tgt:
            return True
        try:
            target = _compiled(*self._nodegroups.signed(cell.allow_tgt, cell.allow_type))
        except UsageInvalid:
            # A nodegroup that is not there any more: then nobody is in it.
            return False
        return not target.needs_pillar and target.matches(asker.id, asker.grains)


@lru_cache(maxsize=1024)
def _compiled(tgt: str, tgt_type: Any) -> Target:
    return compile_target(tgt, tgt_type)
