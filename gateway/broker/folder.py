"""The folder of the broker's files: each is written beside and renamed, for the broker's user and nobody else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


class RulesFolder:
    """Writes what has changed. ``owner`` is user and group of the files, -1 for our own."""

    def __init__(self, path: Path, *, mode: int = 0o600, owner: tuple[int, int] = (-1, -1)) -> None:
        self.path = path
        self._mode = mode
        self._owner = owner
        self._written: dict[str, str] = {}

    def write(self, files: Mapping[str, str]) -> bool:
        """Write these files in their order; whether any of them was not so already. Raises ``OSError``."""
        changed = False
        for name, text in files.items():
            if self._written.get(name) != text:
                self._replace(name, text)
                self._written[name] = text
                changed = True
        return changed

    def _replace(self, name: str, text: str) -> None:
        fresh = self.path / f"{name}.new"
        fresh.unlink(missing_ok=True)
        # The folder may be the broker's own: whatever lies there already is not followed.
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchown(descriptor, *self._owner)
            os.fchmod(descriptor, self._mode)
        fresh.replace(self.path / name)
