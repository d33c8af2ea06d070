"""How secrets are called in settings, ours and others'. Pure."""

from __future__ import annotations

import re
from typing import Final

_LONG: Final = "passw|secret|token|api[_-]?key|private|passphrase|community|webhook|credential|authorization"
_SHORT: Final = "pass|pwd|psk|auth|pin"
"""A word of its own, or none: there are authors and spins."""

_HINTED: Final = re.compile(f"{_LONG}|(^|[_-])({_SHORT})([_-]|$)", re.IGNORECASE)
_NAMED: Final = re.compile(f"((passw[a-z]*|private[_-]?key|{_LONG})s?|(^|[_-])({_SHORT}))$", re.IGNORECASE)


def hints(key: str) -> bool:
    """Whether a key has to do with a secret: it, where it is, how long it holds."""
    return bool(_HINTED.search(key))


def names(key: str) -> bool:
    """Whether a key is called as the secret itself is."""
    return bool(_NAMED.search(key))
