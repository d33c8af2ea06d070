"""How another machine is named to a function."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

PeerName = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[0-9A-Za-z:_][0-9A-Za-z.:_%-]*$(?!\n)")]
"""A machine's name or address; never something that a command would take for an option."""
