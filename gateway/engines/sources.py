"""Where the code of an engine is: a folder of this machine, what was synced and signed, the release.

The bytes that were looked at are the ones that run: they are handed to the process, which opens no file for them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from device_agent.custom.kinds import path_of
from device_agent.errors import Refused
from gateway.owned_files import check_owned

SOURCE_BYTES: Final = 1024 * 1024
BUILTIN: Final = Path(__file__).parent / "builtin"


class Synced(Protocol):
    """What was brought and signed (``device_agent.custom.modules``)."""

    def holds(self, path: str) -> bool: ...

    def verified(self, path: str) -> bytes: ...


class Source(Struct, frozen=True):
    """The code of an engine. A builtin one has no text: it is a module of the release."""

    path: str
    text: bytes = b""
    builtin: bool = False


class Sources:
    """Looks for the module of an engine, each time it is started: folders first, as in Salt."""

    def __init__(self, folders: Sequence[Path], synced: Synced) -> None:
        self._folders = folders
        self._synced = synced

    async def find(self, module: str) -> Source:
        """The module. Raises ``Refused``: ``not_there``, ``unsafe``, ``unreadable``, or what a synced one has."""
        if (found := await asyncio.to_thread(self._in_folders, module)) is not None:
            return found
        path = path_of("engines", module)
        if self._synced.holds(path):
            return Source(f"salt://{path}", self._synced.verified(path))
        if not module.startswith("_") and (BUILTIN / f"{module}.py").is_file():
            return Source(f"gateway.engines.builtin.{module}", builtin=True)
        looked = ", ".join([*map(str, self._folders), f"salt://{path} (saltutil.sync_engines)", "the release"])
        raise Refused("not_there", f"there is no engine {module}: looked in {looked}")

    def _in_folders(self, module: str) -> Source | None:
        for folder in self._folders:
            place = folder / f"{module}.py"
            if os.path.lexists(place):
                check_owned(place)
                return Source(str(place), _read(place))
        return None


def _read(place: Path) -> bytes:
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            text = file.read(SOURCE_BYTES + 1)
    except OSError as error:
        raise Refused("unreadable", f"{place}: {error.strerror or error}") from None
    if len(text) > SOURCE_BYTES:
        raise Refused("oversized", f"{place}: more than {SOURCE_BYTES} bytes")
    return text
