"""What the API says of the mine, as types."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class MineValue(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One value of one device. ``kept`` is when it was told, ``age`` how many seconds ago."""

    site: str
    device: str
    name: str
    value: Any
    kept: float
    age: float
    allow_tgt: str = ""
    allow_tgt_type: str = "glob"


class MinePage(Struct, frozen=True):
    """Values."""

    values: list[MineValue]
