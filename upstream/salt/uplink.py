"""The gateway's end of the rope when the masters are Salt's: a link to each; ``failover`` says which one is fed.

It keeps nothing but keys. Every master may order; what goes up, and where, is its ``Feed``'s affair.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from device_agent.clock import Clock
from device_agent.errors import Refused
from device_agent.parts import Part
from device_agent.questions import PATIENCE_SECONDS, Unanswered
from upstream import failover
from upstream.cutting import Cut
from upstream.links import Links
from upstream.ports import Refusals
from upstream.rope import Ask
from upstream.salt.above import Above
from upstream.salt.ends import LINK, Ends
from upstream.salt.link import Link
from upstream.salt.pins import Pins
from upstream.salt.ports import Asked, Feed, MasterFeed, Orders, Registering
from upstream.salt.rsa_keys import load_or_make
from upstream.salt.serials import KeptSerials, SerialGuard
from upstream.salt.terms import SaltRules

log = logging.getLogger(__name__)

KEY_FILE: Final = "gateway.pem"
PINS_FOLDER: Final = "masters"
ANSWERS: Final = frozenset({"not_found", "busy"})
"""Refusals that say nothing against a master."""


class SaltUplink(Part):
    """Holds on to every Salt master, takes orders from all. Without any it waits to be told."""

    name: ClassVar[str] = "uplink"
    drain_seconds: ClassVar[float] = 5.0

    def __init__(
        self,
        *,
        rules: SaltRules,
        masters: Sequence[str],
        keys_dir: Path,
        serials: KeptSerials,
        orders: Orders,
        feed: Feed,
        refusals: Refusals,
        clock: Clock,
        asked: Asked | None = None,
        registering: Registering | None = None,
        facts: MasterFeed | None = None,
    ) -> None:
        """``keys_dir`` keeps our pair and the masters' keys. Raises ``ConfigInvalid`` when the pair cannot be used."""
        self._ends = Ends(
            rules=rules,
            key=load_or_make(keys_dir / KEY_FILE, rules.keysize),
            pins=Pins(keys_dir / PINS_FOLDER, rules.master_port),
            serials=SerialGuard(serials),
            orders=orders,
            feed=feed,
            registering=registering,
            facts=facts,
            refusals=refusals,
            clock=clock,
            cut=Cut(clock),
            probe_every=rules.master_alive_interval or failover.DEFAULT_ALIVE_SECONDS,
        )
        self._asked = asked
        self._clock = clock
        self._masters = tuple(dict.fromkeys(masters))
        self._links = Links(
            failover.Rules(rules.master_type, rules.master_failback, rules.master_failback_interval),
            self._link_to,
            shuffle=rules.master_shuffle,
            cut=self._ends.cut,
            clock=clock,
            spawn=self.spawn,
        )

    @property
    def fingerprint(self) -> str:
        """Of our public key, as Salt 3008 shows it."""
        return self._ends.key.whole_fingerprint

    async def open(self) -> None:
        """Start to connect to every master; a gateway is ready without any."""
        self._links.open(self._masters)

    async def drain(self) -> None:
        """Give what is for the active master a moment to be confirmed."""
        self._links.stop()
        active = self._links.active()
        if active is not None and active.up:
            try:
                async with asyncio.timeout(self.drain_seconds * 0.8):
                    await self._ends.feed.emptied(active.address)
            except TimeoutError:
                log.warning("stopping with items that no master has confirmed; they stay on disk and go up later")

    async def close(self) -> None:
        """Free the sockets."""
        self._links.close()

    def replace_masters(self, masters: Sequence[str]) -> None:
        """Use another list from now on; the links to masters that are in it as well stay as they are."""
        fresh = tuple(dict.fromkeys(masters))
        if fresh != self._masters:
            self._masters = fresh
            self._links.use(fresh)

    async def reseal(self, site: str, jid: str, reason: str, master: str = "") -> None:
        """Salt masters seal nothing: what the site cannot seal anew itself stays as it is."""

    async def ask(self, about: str, body: bytes = b"", *, patience: float = PATIENCE_SECONDS) -> bytes:
        """An answer with the help of the active master, or of any that is there.

        Raises ``Refused``, and ``Unanswered`` when no master is there, none answers, or none knows such a thing.
        """
        if self._asked is None:
            raise Unanswered(f"a Salt master cannot be asked {about}")
        deadline = self._clock.monotonic() + patience
        tried: set[Above] = set()
        failure = Unanswered("no master is there to be asked")
        while (found := self._next_above(tried)) is not None:
            address, above = found
            tried.add(above)
            try:
                return await self._asked(above, about, body, max(0.0, deadline - self._clock.monotonic()))
            except Refused as refusal:
                if refusal.reason not in ANSWERS:
                    self._ends.refusals.refused(LINK, refusal.reason, address, f"{about}: {refusal.detail}")
                raise
            except Unanswered as error:
                failure = error
                if self._clock.monotonic() >= deadline:
                    break
        raise failure

    def askable(self) -> dict[str, Ask]:
        """Nobody: what stations ask each other one by one, Salt masters do not know."""
        return {}

    @property
    def cut_until(self) -> float | None:
        """Until when it is cut on purpose, in wall seconds; None when it is not."""
        return self._links.cut_until

    def cut(self, seconds: float) -> None:
        """Lose every link without a word, as when a cable is cut, and connect to nobody for so long."""
        self._links.cut(seconds)

    def mend(self) -> None:
        """Connect again before its time."""
        self._links.mend()

    def status(self) -> dict[str, Any]:
        """Where the active link stands, or the best one, with the truth about the next attempt; and all links."""
        return {**self._links.status(), "masters": list(self._masters)}

    def _link_to(self, address: str) -> Link:
        return Link(address, self._ends, self.spawn, self._links.changed)

    def _next_above(self, tried: set[Above]) -> tuple[str, Above] | None:
        there = [(link.address, link.above) for link in self._links.best_first() if link.above is not None]
        return next((each for each in there if each[1] not in tried), None)
