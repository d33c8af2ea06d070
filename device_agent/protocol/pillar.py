"""Pillar on the wire: what a device asks its station, and a site its master, and what it is told. Pure.

A pillar travels as msgpack within msgpack: whoever passes it on does not look into it.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from device_agent.errors import Refused
from device_agent.protocol.messages import SiteId

ITEMS: Final = "pillar.items"
OF: Final = "pillar.of"
"""What a site asks its master."""

Environment = Annotated[str, Meta(min_length=1, max_length=64)]


class PillarWanted(Struct, frozen=True, omit_defaults=True):
    """A device's own pillar: of one environment only, and with this laid over it."""

    env: Environment | None = None
    given: dict[str, Any] = {}

    def __repr__(self) -> str:
        """Nothing of what is laid over it."""
        return f"PillarWanted({self.env})"


class PillarOfWanted(Struct, frozen=True, omit_defaults=True):
    """The pillar of a device of the asking site, with the grains that it has there."""

    site: SiteId
    device: Annotated[str, Meta(min_length=1, max_length=256)]
    grains: dict[str, Any]
    env: Environment | None = None
    given: dict[str, Any] = {}

    def __repr__(self) -> str:
        """Whose it is."""
        return f"PillarOfWanted({self.site}/{self.device})"


class PillarTold(Struct, frozen=True, omit_defaults=True):
    """A pillar. ``age`` is how many seconds ago it was told, where it could not be asked for now."""

    pillar: bytes
    age: float = 0.0

    def __repr__(self) -> str:
        """Nothing of what is in it."""
        return f"PillarTold({len(self.pillar)} bytes, age {self.age:g})"

    def value(self) -> dict[Any, Any]:
        """The pillar itself. Raises ``Refused``."""
        try:
            found = msgspec.msgpack.decode(self.pillar, strict=False)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError):
            # What is wrong with it would quote it.
            raise Refused("malformed", "this is no pillar") from None
        if not isinstance(found, dict):
            raise Refused("malformed", f"a pillar is a mapping, this is a {type(found).__name__}")
        return found
