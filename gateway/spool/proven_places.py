"""Which items of sites behind relays have come: an item that comes again, by whatever way, is recognised."""

from __future__ import annotations

from device_agent.errors import Refused
from device_agent.protocol.messages import decode_stored, encode_value
from gateway.spool.evidence import Evidence
from gateway.spool.ranges import Ranges
from gateway.store.reader import Reader
from gateway.store.writer import Statement

STORES = 8
"""Stores of one site that are remembered for each stream; a site gets a new one when its disk is replaced."""

Place = tuple[str, str]
"""A site and one of its streams."""

_PUT = "INSERT OR REPLACE INTO proven_places (site, stream, store, ranges, issued) VALUES (?, ?, ?, ?, ?)"
_FORGET = "DELETE FROM proven_places WHERE site = ? AND stream = ? AND store = ?"


class Arrivals:
    """The proven items of one batch from a relay. Nothing is on disk until ``statements`` are committed."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._places: dict[Place, dict[str, tuple[Ranges, int]]] = {}
        self._changed: dict[tuple[str, str, str], None] = {}

    async def need_fresh(self, evidence: Evidence) -> None:
        """Refuse an item that has come before, in this batch or in an earlier one. Raises ``Refused``."""
        stores = await self._stores((evidence.site, evidence.stream))
        known = stores.get(evidence.store)
        if known is not None:
            repeated = evidence.sequence in known[0]
        else:
            # An unknown store that is older than all that are remembered may be one that was forgotten.
            repeated = len(stores) >= STORES and evidence.issued <= min(issued for _, issued in stores.values())
        if repeated:
            raise Refused("repeated", f"{evidence.site} {evidence.stream} {evidence.sequence} of {evidence.store}")

    async def add(self, evidence: Evidence) -> None:
        """Remember that an item came."""
        stores = await self._stores((evidence.site, evidence.stream))
        ranges, issued = stores.get(evidence.store, (Ranges(), 0))
        ranges.add(evidence.sequence)
        stores[evidence.store] = (ranges, max(issued, evidence.issued))
        self._changed[evidence.site, evidence.stream, evidence.store] = None

    def statements(self) -> list[Statement]:
        """The statements that remember these items, and forget the oldest stores beyond ``STORES``."""
        rows, forgotten = [], []
        for site, stream, store in self._changed:
            stores = self._places[site, stream]
            ranges, issued = stores[store]
            rows.append((site, stream, store, encode_value(ranges.pairs()), issued))
            oldest = sorted(stores, key=lambda each: stores[each][1])
            forgotten += [(site, stream, each) for each in oldest[: max(0, len(stores) - STORES)]]
        return [(_PUT, rows), (_FORGET, forgotten)] if rows else []

    async def _stores(self, place: Place) -> dict[str, tuple[Ranges, int]]:
        if place not in self._places:
            rows = await self._reader.rows(
                "SELECT store, ranges, issued FROM proven_places WHERE site = ? AND stream = ?", place
            )
            self._places[place] = {
                store: (Ranges((first, last) for first, last in decode_stored(ranges)), issued)
                for store, ranges, issued in rows
            }
        return self._places[place]
