"""Starts a program that sees another /etc/fstab than this machine has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def with_fstab(folder: Path, text: str) -> tuple[str, ...]:
    """The words that stand before a command. The file is another one in a mount namespace of that command alone."""
    if os.geteuid():
        pytest.skip("only root has a mount namespace of its own")
    table = folder / "fstab"
    table.write_text(text, encoding="utf-8")
    bound = f'mount --bind {table} /etc/fstab && exec "$@"'
    return ("unshare", "--mount", "--propagation", "private", "sh", "-c", bound, "sh")
