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


PLAIN: Final = frozenset({"file_roots", "nodegroups", "pillar_roots", "reactor"})
"""Settings whose keys are tags, paths and names of the site, and whose values are no secrets."""

NAME_MAPS: Final = frozenset({"containers", "files", "interfaces", "mine_functions", "processes", "services"})
"""Keys below which each key is the name of a thing that is watched or called."""

_SETTING: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*")


def is_setting(key: str) -> bool:
    """Whether a key can be the name of a setting. Tags with a slash, globs and paths cannot."""
    return bool(_SETTING.fullmatch(key))
