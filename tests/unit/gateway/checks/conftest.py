"""What a check looks at, as a test says it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from gateway.checks.box import Box, box_of
from gateway.config import StationSettings
from gateway.store.health import Failing
from gateway.store.trust_state import SOUND, StoreTrust
from tests.peers.clock import STARTED_WALL, HandClock


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
            "sites": 0,
            "present": 0,
            "ssh": None,
            "started": 0.0,
        }
    )
    refused: list[tuple[str, str, str, int]] = field(default_factory=list)
    keys: list[dict[str, Any]] = field(default_factory=list)
    sites: list[dict[str, Any]] = field(default_factory=list)
    relayed: list[dict[str, Any]] = field(default_factory=list)
    fleet: dict[str, Any] = field(default_factory=dict)
    devices: list[tuple[str, str]] = field(default_factory=list)
    time: float = 0.0
    copies: list[dict[str, Any]] = field(default_factory=list)
    full: bool = False
    damaged: dict[str, Any] | None = None
    trust_of_store: StoreTrust = SOUND
    unwitnessed: str = ""
    lost: list[str] = field(default_factory=list)
    no_room: str = ""
    failing: list[tuple[str, str]] = field(default_factory=list)
    schedule: list[tuple[str, str]] = field(default_factory=list)
    unreturned: list[tuple[str, str]] = field(default_factory=list)
    unwritten_store: Failing | None = None
    unwritten_files: list[str] = field(default_factory=list)
    classes: list[dict[str, Any]] = field(default_factory=list)
    confirmed: float | None = None
    beacons: dict[str, float] = field(default_factory=dict)
    of_box: Box | None = None

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

    async def relayed_sites(self) -> list[dict[str, Any]]:
        return self.relayed

    def undecided(self) -> list[tuple[str, str]]:
        return self.devices

    def fleet_view(self) -> dict[str, Any]:
        return self.fleet

    def disk_is_full(self) -> bool:
        return self.full

    async def store_failing(self) -> Failing | None:
        return self.unwritten_store

    def unwritten(self) -> list[str]:
        return self.unwritten_files

    def cache_full(self) -> str:
        return self.no_room

    def twins(self) -> list[dict[str, Any]]:
        return self.copies

    def damage(self) -> dict[str, Any] | None:
        return self.damaged

    def witness_failing(self) -> str:
        return self.unwitnessed

    def store_trust(self) -> StoreTrust:
        return self.trust_of_store

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

    def beacons_heard(self) -> dict[str, float]:
        return self.beacons

    async def spool_classes(self) -> list[dict[str, Any]]:
        return self.classes

    async def returns_confirmed(self) -> float | None:
        return self.confirmed

    def box(self) -> Box:
        assert self.of_box is not None, "the test says what box it is"
        return self.of_box


@pytest.fixture
def facts() -> Told:
    return Told()


def a_box(folder: Path, role: Literal["master", "gateway"] = "gateway", **changed: Any) -> Box:
    """A station in this folder that does not run; ``wall`` is its clock, ``config`` its settings file."""
    clock = HandClock(wall=changed.pop("wall", STARTED_WALL))
    given = {"name": "lisbon", "state_dir": str(folder / "state"), "socket": str(folder / "api.sock")}
    config, running = changed.pop("config", None), changed.pop("running", False)
    settings = StationSettings(**(given | changed))
    return box_of(role, settings, config=config, running=running, clock=clock)
