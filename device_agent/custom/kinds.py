"""What a site may bring beside the release: the folders by kind, the names in them, and how large they may be. Pure."""

from __future__ import annotations

import re
from typing import Final

from device_agent.errors import Refused

KINDS: Final = ("modules", "grains", "beacons", "engines", "runners", "states")
"""What ``saltutil.sync_KIND`` brings."""

CODE_FOLDERS: Final = tuple(f"_{kind}" for kind in KINDS)
FIRST_ENVIRONMENT: Final = "base"
"""The environment where none is named."""

LIST: Final = "_release"
"""The release list, beside these folders."""

MODULE_BYTES: Final = 256 * 1024
LIST_BYTES: Final = 256 * 1024
MODULES_MAX: Final = 512
"""Files of one kind."""

NAME_PATTERN: Final = r"[a-z][a-z0-9_]{0,63}"

_name = re.compile(NAME_PATTERN)


def passed_over(path: str) -> bool:
    """Whether a file is none of ours: what begins with a dot or ``_``, such as ``__pycache__``, is not brought."""
    return any(part.startswith((".", "_")) for part in path.split("/")[1:])


def name_of(path: str) -> str:
    """The name of the module at ``_kind/NAME.py``. Raises ``Refused`` (``bad_name``)."""
    folder, _, file = path.partition("/")
    if folder not in CODE_FOLDERS or not file.endswith(".py") or not _name.fullmatch(file.removesuffix(".py")):
        raise Refused("bad_name", f"{path[:200]}: a module is one file NAME.py in its folder, NAME in small letters")
    return file.removesuffix(".py")


def path_of(kind: str, name: str) -> str:
    """The path of a module in a file root and in the release list."""
    return f"_{kind}/{name}.py"
