"""Asks a station for no more than a benchmark has to know, so that the asking costs little."""

from __future__ import annotations

import msgspec

from gateway.cli.client import StationClient


class Link(msgspec.Struct, frozen=True):
    """How the downlink over SSH stands."""

    connected: int


class Standing(msgspec.Struct, frozen=True):
    """How a station stands."""

    present: int
    jobs_open: int
    spool_pending: int
    ssh: Link | None = None

    @property
    def connections(self) -> int:
        """To devices over SSH."""
        return 0 if self.ssh is None else self.ssh.connected


class Times(msgspec.Struct, frozen=True):
    """When a job was taken and closed, by the station's clock, and what became of it."""

    issued: float
    closed: float | None
    counts: dict[str, int]


class Witness(StationClient):
    """The station."""

    def standing(self) -> Standing:
        """How it stands."""
        return self._ask("GET", "/station", Standing)

    def times(self, jid: str) -> Times:
        """When a job was taken and closed."""
        return self._ask("GET", f"/jobs/{jid}", Times)
