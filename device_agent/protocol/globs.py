"""Salt's globs (``fnmatch``, case and all), compiled once so that ten thousand ids are matched in milliseconds."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate

WILDCARDS = frozenset("*?[")


def compile_glob(pattern: str) -> Callable[[str], bool]:
    """A test for one glob; ``*`` crosses every character, as in ``fnmatch.fnmatchcase``."""
    if not WILDCARDS.intersection(pattern):
        return pattern.__eq__
    if not pattern.strip("*"):
        return _anything
    match = re.compile(translate(pattern)).match
    return lambda text: match(text) is not None


def _anything(_text: str) -> bool:
    return True
