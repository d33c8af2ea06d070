"""Canaries: random bytes that are put where nobody else may read, and looked for in every form in which they could be.

A canary in an argument, a grain or a return is a text there; its bytes, its text and both as base64 would all be it.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

CANARY_BYTES = 16


@dataclass(frozen=True)
class Canary:
    """A secret by its name."""

    name: str
    octets: bytes = field(default_factory=lambda: os.urandom(CANARY_BYTES))

    @property
    def text(self) -> str:
        """As an argument or a grain has it."""
        return self.octets.hex()

    def forms(self) -> set[bytes]:
        """Every way in which it could stand somewhere."""
        found: set[bytes] = set()
        for content in (self.octets, self.text.encode()):
            found |= {content, content.hex().encode(), content.hex().upper().encode(), *_in_base64(content)}
        return found


def found_in(canaries: Iterable[Canary], content: bytes) -> list[str]:
    """The names of those that stand in this, in any form."""
    return [canary.name for canary in canaries if any(form in content for form in canary.forms())]


def _in_base64(content: bytes) -> Iterator[bytes]:
    """What base64 makes of it at each of the three places where it can begin, without what its neighbours decide."""
    for before in range(3):
        padded = b"\0" * before + content
        start, end = -(-before * 8 // 6), len(padded) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(padded)[start:end]
