"""What a check says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct

from gateway.checks.box import Box
from gateway.store.health import Failing
from gateway.store.trust_state import StoreTrust

Severity = Literal["ok", "info", "warning", "error"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info", "ok")
"""The worst first."""


class Finding(Struct, frozen=True, kw_only=True):
    """One finding. ``fix`` is a command or a setting; empty when nothing is wrong.

    ``about`` is whom or what it concerns, where a check may find several at once: a finding of the same check about the
    same thing is the same one, whatever numbers stand in its words.
    """

    check: str
    severity: Severity
    finding: str
    meaning: str = ""
    fix: str = ""
    about: str = ""


class Facts(Protocol):
    """What a check may look at."""

    async def station_view(self) -> dict[str, Any]:
        """The station, as the API shows it."""

    def refusals(self) -> list[tuple[str, str, str, int]]:
        """Refused input since the start: link, reason, peer, count; most frequent first."""

    def state_dir(self) -> str:
        """Where the station keeps its files."""

    def key_views(self) -> list[dict[str, Any]]:
        """The keys of sites, when this station has sites."""

    def undecided(self) -> list[tuple[str, str]]:
        """State and name of this station's own devices about which an operator must decide."""

    def site_views(self) -> list[dict[str, Any]]:
        """The sites below."""

    async def relayed_sites(self) -> list[dict[str, Any]]:
        """Sites behind relays, and how each proved what it says."""

    def fleet_view(self) -> dict[str, Any]:
        """What this station is in its fleet, as the API shows it."""

    def disk_is_full(self) -> bool:
        """Whether the room that was kept for a full disk is in use."""

    async def store_failing(self) -> Failing | None:
        """What keeps the store from being written; None while nothing does."""

    def unwritten(self) -> list[str]:
        """Which files of the station, beside the store, cannot be written, and why."""

    def cache_full(self) -> str:
        """Why the last file for which room was wanted in the cache had none; empty when it had."""

    def twins(self) -> list[dict[str, Any]]:
        """What masters say of another gateway with a copy of this store."""

    def damage(self) -> dict[str, Any] | None:
        """What became of a store that was damaged; None when it was not."""

    def store_trust(self) -> StoreTrust:
        """Whether the store has all that it acknowledged."""

    def witness_failing(self) -> str:
        """Why the witness of the store cannot be written; empty when it can."""

    def ssh_secrets_lost(self) -> list[str]:
        """SSH devices whose secrets cannot be opened with the keys of this station."""

    def engines_failing(self) -> list[tuple[str, str]]:
        """Engines that end again and again: name, and why."""

    async def schedule_failing(self) -> list[tuple[str, str]]:
        """Entries of the schedule whose last run failed: name, and why."""

    def returners_failing(self) -> list[tuple[str, str]]:
        """Returners whose last attempt was in vain: name, and why."""

    def now(self) -> float:
        """The time that counts, in seconds since 1970."""

    def box(self) -> Box:
        """The machine and the files of this station."""

    def beacons_heard(self) -> Mapping[str, float]:
        """When each link, by its address, last brought a new time beacon, in wall seconds."""

    async def spool_classes(self) -> list[dict[str, Any]]:
        """What waits for a master, by class, as the API shows it; empty where nothing is spooled."""

    async def returns_confirmed(self) -> float | None:
        """When a master last confirmed returns, in wall seconds; None when none ever did."""
