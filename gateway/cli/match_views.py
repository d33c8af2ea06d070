"""What the API says of a target, as types."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class NodegroupList(Struct, frozen=True):
    """The names for targets, each as the target it stands for."""

    nodegroups: dict[str, str]


class Because(Struct, frozen=True):
    """A term that was true of a device, and what of the device made it so."""

    term: str
    value: Any = None


class Matched(Struct, frozen=True):
    """A device that a target means."""

    id: str
    site: str | None = None
    link: str | None = None
    present: bool = False
    last_seen: float | None = None
    why: list[Because] = []


class MatchPage(Struct, frozen=True):
    """One page of them, and how many there are in all; the target is the one that would be signed."""

    devices: list[Matched]
    tgt: str = ""
    tgt_type: str = "glob"
    known: int = 0
    matched: int = 0
    present: int = 0
    next: str | None = None
