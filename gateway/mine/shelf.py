"""What is known in memory of the values of one device: all but the values. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from device_agent.errors import Refused
from device_agent.protocol import mine

ENTRY_BYTES: Final = 64
"""What a value takes beside itself and its words."""


class Cell(Struct, frozen=True):
    """One value: when it was told, by which revision it is what it is, how large it is, and who may read it."""

    kept: float
    changed: int
    size: int
    digest: bytes
    allow_tgt: str
    allow_type: str

    def same(self, other: Cell) -> bool:
        """Whether the value and who may read it are the same."""
        return (self.digest, self.allow_tgt, self.allow_type) == (other.digest, other.allow_tgt, other.allow_type)


class Shelf(Struct, frozen=True):
    """All values of one device, by name."""

    site: str
    device: str
    link: str = ""
    revision: int = 0
    cells: Mapping[str, Cell] = {}

    @property
    def size(self) -> int:
        """What its values take."""
        return sum(cell.size for cell in self.cells.values())


def cell(name: str, value: bytes, allow_tgt: str, allow_type: str, kept: float, changed: int) -> Cell:
    """What to remember of a value."""
    size = len(value) + len(name.encode()) + len(allow_tgt.encode()) + ENTRY_BYTES
    return Cell(kept, changed, size, hashlib.blake2b(value, digest_size=16).digest(), allow_tgt, allow_type)


def fits(shelf: Shelf, before: Shelf | None, total: int, most: int) -> None:
    """Refuse what one device may not have, or what is too much with all others. Raises ``Refused``."""
    if len(shelf.cells) > mine.ENTRIES:
        raise Refused("mine_entries", f"{len(shelf.cells)} values, at most {mine.ENTRIES} of one device")
    if shelf.size > mine.DEVICE_BYTES:
        raise Refused("mine_too_large", f"{shelf.size} bytes, at most {mine.DEVICE_BYTES} of one device")
    growth = shelf.size - (before.size if before is not None else 0)
    if growth > 0 and total + growth > most:
        raise Refused("mine_full", f"the station keeps {total} bytes, at most {most}: see mine.megabytes")
