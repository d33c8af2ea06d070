"""The gateway's end of the rope when the masters are Salt's: a link to each; ``failover`` says which one is fed.

It keeps nothing but keys. Every master may order; what goes up, and where, is its ``Feed``'s affair.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import zmq.asyncio

from device_agent.clock import Clock
from device_agent.errors import Refused
from device_agent.parts import Part
from device_agent.questions import PATIENCE_SECONDS, Unanswered
from upstream import failover
from upstream.cutting import Cut
from upstream.ports import Refusals
from upstream.rope import Ask
from upstream.salt.above import Above
from upstream.salt.ends import LINK, Ends
from upstream.salt.link import Link
from upstream.salt.pins import Pins
from upstream.salt.ports import Asked, Feed, Orders, Registering
from upstream.salt.rsa_keys import load_or_make
from upstream.salt.serials import KeptSerials, SerialGuard
from upstream.salt.terms import SaltRules

log = logging.getLogger(__name__)

KEY_FILE: Final = "gateway.pem"
PINS_FOLDER: Final = "masters"
BEST_STATES: Final = ("connected", "pending", "connecting", "refused", "disconnected", "waiting", "cut")
SHORTEST_LOOK_SECONDS: Final = 0.01
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
            refusals=refusals,
            clock=clock,
            cut=Cut(clock),
            probe_every=rules.master_alive_interval or failover.DEFAULT_ALIVE_SECONDS,
        )
        self._asked = asked
        self._clock = clock
        self._masters = tuple(dict.fromkeys(masters))
        self._lots: dict[str, float] = {}
        self._state = failover.State(
            rules=failover.Rules(rules.master_type, rules.master_failback, rules.master_failback_interval)
        )
        self._links: dict[str, Link] = {}
        self._context: zmq.asyncio.Context | None = None
        self._without_since = clock.wall()
        self._look = asyncio.Event()
        self._stopping = False

    @property
    def fingerprint(self) -> str:
        """Of our public key, as Salt 3008 shows it."""
        return self._ends.key.whole_fingerprint

    async def open(self) -> None:
        """Start to connect to every master; a gateway is ready without any."""
        self._context = zmq.asyncio.Context()
        self._use_list()
        self.spawn(self._tick(), "tick")

    async def drain(self) -> None:
        """Give what is for the active master a moment to be confirmed."""
        self._stopping = True
        for link in self._live():
            link.stop()
        active = self._active()
        if active is not None and active.up:
            try:
                async with asyncio.timeout(self.drain_seconds * 0.8):
                    await self._ends.feed.emptied(active.address)
            except TimeoutError:
                log.warning("stopping with items that no master has confirmed; they stay on disk and go up later")

    async def close(self) -> None:
        """Free the sockets."""
        if self._context is not None:
            self._context.destroy(linger=200)

    def replace_masters(self, masters: Sequence[str]) -> None:
        """Use another list from now on; the links to masters that are in it as well stay as they are."""
        fresh = tuple(dict.fromkeys(masters))
        if fresh != self._masters:
            self._masters = fresh
            if self._context is not None and not self._stopping:
                self._use_list()

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
        return self._ends.cut.until

    def cut(self, seconds: float) -> None:
        """Lose every link without a word, as when a cable is cut, and connect to nobody for so long."""
        self.spawn(self._mend_after(self._ends.cut.begin(seconds), seconds), "mend")
        for link in self._live():
            link.hang_up("the uplink is cut on purpose")

    def mend(self) -> None:
        """Connect again before its time."""
        self._ends.cut.end()

    def status(self) -> dict[str, Any]:
        """Where the active link stands, or the best one, with the truth about the next attempt; and all links."""
        links = self._live()
        best = self._active() or min(links, key=lambda link: BEST_STATES.index(link.state), default=None)
        return {
            "state": best.state if best is not None else "no masters",
            "master": best.address if best is not None else "",
            "since": best.since if best is not None else self._without_since,
            "last_error": best.last_error if best is not None else "",
            "next_attempt": best.next_attempt if best is not None else None,
            "masters": list(self._masters),
            "links": [link.status() for link in links],
        }

    async def _mend_after(self, turn: int, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._ends.cut.end(turn)

    def _next_above(self, tried: set[Above]) -> tuple[str, Above] | None:
        active = self._active()
        links = [*([active] if active is not None else []), *self._live()]
        there = [(link.address, link.above) for link in links if link.above is not None]
        return next((each for each in there if each[1] not in tried), None)

    def _live(self) -> list[Link]:
        """The links in the order of the list."""
        return [self._links[address] for address in self._state.masters]

    def _active(self) -> Link | None:
        return self._links[self._state.active] if self._state.active is not None else None

    def _use_list(self) -> None:
        assert self._context is not None
        gone = [link for address, link in self._links.items() if address not in self._masters]
        fresh = [address for address in self._masters if address not in self._links]
        for address in fresh:
            self._links[address] = Link(address, self._ends, self.spawn, self._link_changed)
        self._step(failover.Listed(self._in_order(list(self._masters)), self._clock.monotonic()))
        for link in gone:
            del self._links[link.address]
            link.leave()
        for address in fresh:
            self.spawn(self._links[address].run(self._context), f"link/{address}")
        if not self._links:
            self._without_since = self._clock.wall()

    def _in_order(self, masters: list[str]) -> tuple[str, ...]:
        """The list as it is written; or shuffled, each master once for all while this program runs."""
        if self._ends.rules.master_shuffle:
            source = random.SystemRandom()
            masters.sort(key=lambda master: self._lots.setdefault(master, source.random()))
        return tuple(masters)

    def _link_changed(self, link: Link) -> None:
        if self._links.get(link.address) is link:
            now = self._clock.monotonic()
            self._step(failover.Up(link.address, now) if link.up else failover.Down(link.address, now))

    def _step(self, event: failover.Event) -> None:
        before = self._state.active
        self._state, actions = failover.step(self._state, event)
        for action in actions:
            self._links[action.master].set_active(isinstance(action, failover.Activate))
        if self._state.active != before:
            log.info("active master=%s", self._state.active or "none")
        self._look.set()

    async def _tick(self) -> None:
        """Step when time alone changes something."""
        while True:
            self._look.clear()
            due = failover.next_look(self._state)
            wait = None if due is None else max(SHORTEST_LOOK_SECONDS, due - self._clock.monotonic())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._look.wait()
                continue
            self._step(failover.Tick(self._clock.monotonic()))
