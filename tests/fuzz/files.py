"""Where inputs are kept: real objects as seeds, and what once broke a reader."""

from __future__ import annotations

from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
SEEDS: Final = HERE / "corpus"
FINDS: Final = HERE / "finds"


def seeds(target: str) -> dict[str, bytes]:
    """Real objects by name, as ``tests.fuzz.corpus`` made them."""
    return _inputs(SEEDS / target)


def finds(target: str) -> dict[str, bytes]:
    """What broke this target once, by name; each stays, so that it never does again."""
    return _inputs(FINDS / target)


def _inputs(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*"))}
