"""What the links to Salt masters have in common: who the gateway is there, and whoever holds its end."""

from __future__ import annotations

from dataclasses import dataclass

from device_agent.clock import Clock
from upstream.cutting import Cut
from upstream.ports import Refusals
from upstream.salt.pins import Pins
from upstream.salt.ports import Feed, MasterFeed, Orders, Registering
from upstream.salt.rsa_keys import GatewayKey
from upstream.salt.serials import SerialGuard
from upstream.salt.terms import SaltRules


@dataclass(frozen=True)
class Ends:
    """The same for every link."""

    rules: SaltRules
    key: GatewayKey
    pins: Pins
    serials: SerialGuard
    orders: Orders
    feed: Feed
    registering: Registering | None
    facts: MasterFeed | None
    """What tells a master the grains of the gateway's own id."""
    refusals: Refusals
    clock: Clock
    cut: Cut
    probe_every: float
    """Seconds without a word from a master after which it is asked for one."""


LINK = "salt"
"""The link under which refusals are counted."""
