"""An uplink to Salt masters by itself, held by ends in memory."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Protocol

from device_agent.clock import Clock
from tests.peers.salt_sockets import KeptOrders, PlayedMaster, QuietFeed, SaltRefusals, SerialsInMemory
from tests.peers.waiting import until
from upstream.salt.ports import Feed
from upstream.salt.terms import SaltRules
from upstream.salt.uplink import SaltUplink

RULES = SaltRules(id="gw-1", acceptance_wait_time=0.05, auth_timeout=10.0, auth_tries=2)


class Listening(Protocol):
    """A master, played or real."""

    @property
    def address(self) -> str:
        """Where it takes requests."""


class SaltBed:
    """An uplink and what it is held by."""

    def __init__(self, tmp_path: Path) -> None:
        self.orders, self.feed, self.refusals = KeptOrders(), QuietFeed(), SaltRefusals()
        self.keys_dir = tmp_path / "salt"
        self.clock = Clock()
        self.serials = SerialsInMemory()

    def uplink(
        self, *masters: Listening, rules: SaltRules = RULES, feed: Feed | None = None, **more: Any
    ) -> SaltUplink:
        self.up = SaltUplink(
            rules=rules,
            masters=[master.address for master in masters],
            keys_dir=self.keys_dir,
            serials=self.serials,
            orders=self.orders,
            feed=feed or self.feed,
            refusals=self.refusals,
            clock=self.clock,
            **more,
        )
        return self.up

    async def connected(self, *masters: PlayedMaster) -> None:
        for master in masters:
            await until(partial(self.feed.above.get, master.address), what="a connected link")
            await master.subscribed()

    async def state(self, state: str) -> dict[str, Any]:
        await until(lambda: self.up.status()["state"] == state, what=f"the state {state}")
        return self.up.status()
