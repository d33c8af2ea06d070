"""Writes what came of a box with Salt: settings, inventory, names, report. Nothing that is there is replaced."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from device_agent.errors import StationFailed, UsageInvalid

INVENTORY: Final = "ssh-devices.yaml"
AGENTS: Final = "agents.txt"
REPORT: Final = "report.txt"
PIECE: Final = "40-salt.yaml"
SECRET_MODE: Final = 0o600
FILE_MODE: Final = 0o644
FOLDER_MODE: Final = 0o755
HEAD: Final = "# Written by `outstation gateway import-salt`; what is in pieces with a later name goes before it.\n"


@dataclass
class Writing:
    """Files that are to be written: their text and who may read them."""

    files: dict[Path, tuple[str, int]] = field(default_factory=dict, repr=False)

    def add(self, path: Path, text: str, *, secret: bool = False) -> None:
        """One more file."""
        self.files[path] = (text, SECRET_MODE if secret else FILE_MODE)

    def check(self) -> None:
        """Raises ``UsageInvalid`` when one of them is there already, or what is to be its folder is none."""
        for path in self.files:
            if path.exists() or path.is_symlink():
                raise UsageInvalid(
                    "this file is there already, and nothing is ever replaced",
                    error_id="import.there",
                    where=str(path),
                    found="a file",
                    allowed="a place where nothing is",
                    hint="outstation gateway import-salt --out FOLDER, with a new folder; or move that file away",
                )

    def write(self) -> None:
        """All of them, or none. Raises ``UsageInvalid`` and ``StationFailed``."""
        self.check()
        done: list[Path] = []
        try:
            for path, (text, mode) in self.files.items():
                for folder in reversed([each for each in path.parents if not each.exists()]):
                    folder.mkdir(mode=FOLDER_MODE)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                descriptor = os.open(path, flags, mode)
                done.append(path)
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    os.fchmod(descriptor, mode)
                    file.write(text)
                    file.flush()
                    os.fsync(descriptor)
        except OSError as error:
            for path in done:
                path.unlink(missing_ok=True)
            raise StationFailed(
                "the files cannot be written",
                error_id="import.unwritten",
                where=str(error.filename or next(iter(self.files))),
                found=error.strerror or str(error),
                allowed="a user who may write there, and a disk with room",
                hint="sudo outstation gateway import-salt --out FOLDER",
            ) from None


def inventory_text(rows: list[dict[str, Any]]) -> str:
    """An inventory as ``outstation devices import`` reads it."""
    head = "# For `outstation devices import`. It may hold passwords: remove it once they are in.\n"
    return head + yaml.safe_dump(rows, sort_keys=False, allow_unicode=True, width=110)
