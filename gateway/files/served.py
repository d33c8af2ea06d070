"""Which files are served: what of a listing is left out, and the port that every kind of root has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final, Protocol

from device_agent.protocol.file_questions import FileEntry

LISTED_MOST: Final = 100_000
"""Most files under one root; more are not listed at all, so that nobody takes a part for the whole."""


class Patterns:
    """What of a root is served."""

    def __init__(self, include: Sequence[str] = (), glob: Sequence[str] = (), regex: Sequence[str] = ()) -> None:
        self._include, self._glob = tuple(include), tuple(glob)
        self._regex = [re.compile(pattern) for pattern in regex]

    def serve(self, path: str) -> bool:
        """Whether a file at this path is served: it is not left out, and no folder that it is in."""
        words = path.split("/")
        return self.takes(path) and not any(self.ignores("/".join(words[:count])) for count in range(1, len(words)))

    def takes(self, path: str) -> bool:
        """The same for a file in a folder that is not left out."""
        if self._include and not any(fnmatchcase(path, pattern) for pattern in self._include):
            return False
        return not self.ignores(path)

    def ignores(self, path: str) -> bool:
        """Whether it is left out, with all that is in it."""
        if any(fnmatchcase(path, pattern) for pattern in self._glob):
            return True
        return any(pattern.search(path) for pattern in self._regex)


class RootFiles(Protocol):
    """One root of one environment."""

    async def find(self, path: str) -> FileEntry | None:
        """What stands at a sound path; None when it has nothing there. Raises ``Refused``."""

    async def listed(self) -> list[str]:
        """All paths of files, and with a ``/`` behind them of folders without any. Raises ``Refused``.

        While nothing is looked at anew it is the same list, which nobody changes.
        """

    async def hashes(self, entry: FileEntry) -> bytes:
        """The marks of all chunks, one behind the other. Raises ``Refused`` (``changed``)."""

    async def piece(self, entry: FileEntry, offset: int, length: int) -> bytes:
        """Bytes of the file as the entry has it. Raises ``Refused`` (``changed``)."""

    async def commit(self) -> str:
        """The commit that is served; empty for a folder."""
