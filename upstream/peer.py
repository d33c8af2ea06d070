"""One connection of a site, as the master's end of the rope keeps it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from device_agent.protocol import limits
from upstream import frames

QUEUED_FRAMES = limits.BATCHES_IN_FLIGHT * 4
"""Frames of one site that wait for a commit."""


@dataclass
class Peer:
    """One connection of a site, from its hello on."""

    identity: bytes
    site: str
    key: str
    address: str
    epoch: str
    release: str
    request: bytes
    certificate: bytes
    accepted: bool
    heard: float
    work: asyncio.Queue[frames.Batch | frames.DeviceRecords | frames.SiteTells | None] = field(
        default_factory=lambda: asyncio.Queue(maxsize=QUEUED_FRAMES)
    )
    welcome: bool = False
    active: bool = False
    """Whether it says that this master gets its spool."""
    fed: bool = False
    """A batch has come over this connection, so what follows must chain to it."""
    told: frames.SiteTrust = field(default_factory=frames.SiteTrust)
    """What it was told of whom to believe, since it is welcome."""
