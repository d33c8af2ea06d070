"""What a check looks at, as a test says it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass
class Told:
    """The facts of a station, in memory."""

    folder: str = "/"
    station: dict[str, Any] = field(
        default_factory=lambda: {
            "name": "lisbon",
            "fingerprint": "aaaa-bbbb-cccc-dddd",
            "broker": None,
            "uplink": None,
            "devices": 0,
            "spool_pending": 0,
        }
    )
    refused: list[tuple[str, str, str, int]] = field(default_factory=list)
    keys: list[dict[str, Any]] = field(default_factory=list)
    sites: list[dict[str, Any]] = field(default_factory=list)
    fleet: dict[str, Any] = field(default_factory=dict)
    devices: list[tuple[str, str]] = field(default_factory=list)
    time: float = 0.0
    copies: list[dict[str, Any]] = field(default_factory=list)
    full: bool = False
    damaged: dict[str, Any] | None = None
    lost: list[str] = field(default_factory=list)
    no_room: str = ""
    failing: list[tuple[str, str]] = field(default_factory=list)
    schedule: list[tuple[str, str]] = field(default_factory=list)
    unreturned: list[tuple[str, str]] = field(default_factory=list)

    async def station_view(self) -> dict[str, Any]:
        return self.station

    def refusals(self) -> list[tuple[str, str, str, int]]:
        return self.refused

    def state_dir(self) -> str:
        return self.folder

    def key_views(self) -> list[dict[str, Any]]:
        return self.keys

    def site_views(self) -> list[dict[str, Any]]:
        return self.sites

    def undecided(self) -> list[tuple[str, str]]:
        return self.devices

    def fleet_view(self) -> dict[str, Any]:
        return self.fleet

    def disk_is_full(self) -> bool:
        return self.full

    def cache_full(self) -> str:
        return self.no_room

    def twins(self) -> list[dict[str, Any]]:
        return self.copies

    def damage(self) -> dict[str, Any] | None:
        return self.damaged

    async def schedule_failing(self) -> list[tuple[str, str]]:
        return self.schedule

    def returners_failing(self) -> list[tuple[str, str]]:
        return self.unreturned

    def engines_failing(self) -> list[tuple[str, str]]:
        return self.failing

    def ssh_secrets_lost(self) -> list[str]:
        return self.lost

    def now(self) -> float:
        return self.time


@pytest.fixture
def facts() -> Told:
    return Told()
