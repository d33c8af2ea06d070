"""Links: one to each master above, of which ``failover`` says which one is active. Whatever they speak."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import zmq.asyncio

from device_agent.clock import Clock
from upstream import failover
from upstream.cutting import Cut
from upstream.link_terms import Spawn
from upstream.master_link import MasterLink

log = logging.getLogger(__name__)

BEST_STATES: Final = ("connected", "pending", "connecting", "refused", "disconnected", "waiting", "cut")
"""Which link speaks for the uplink while none is active: the one that has come farthest."""

SHORTEST_LOOK_SECONDS: Final = 0.01

AnyLink = TypeVar("AnyLink", bound=MasterLink)


class Links(Generic[AnyLink]):
    """The links of an uplink. ``make`` makes the one to the master with a key; ``spawn`` runs what they need."""

    def __init__(
        self,
        rules: failover.Rules,
        make: Callable[[str], AnyLink],
        *,
        shuffle: bool,
        cut: Cut,
        clock: Clock,
        spawn: Spawn,
    ) -> None:
        self._make = make
        self._shuffle = shuffle
        self._cut = cut
        self._clock = clock
        self._spawn = spawn
        self._state = failover.State(rules=rules)
        self._links: dict[str, AnyLink] = {}
        self._lots: dict[str, float] = {}
        self._context: zmq.asyncio.Context | None = None
        self._without_since = clock.wall()
        self._look = asyncio.Event()
        self._stopping = False

    def open(self, keys: Sequence[str]) -> None:
        """Start to connect to the masters with these keys, in this order."""
        self._context = zmq.asyncio.Context()
        self.use(keys)
        self._spawn(self._tick(), "tick")

    def close(self) -> None:
        """Free the sockets."""
        if self._context is not None:
            self._context.destroy(linger=200)

    def stop(self) -> None:
        """Connect to nobody again: the gateway stops."""
        self._stopping = True
        for link in self.in_order():
            link.stop()

    def use(self, keys: Sequence[str]) -> bool:
        """Use another list; the links to masters that are in it as well stay as they are.

        Returns False, and does nothing, before it is open and while it stops.
        """
        if self._context is None or self._stopping:
            return False
        gone = [link for key, link in self._links.items() if key not in keys]
        fresh = [key for key in keys if key not in self._links]
        for key in fresh:
            self._links[key] = self._make(key)
        # Whose sender must not run any more is known before it is let go.
        self._step(failover.Listed(self._drawn(list(keys)), self._clock.monotonic()))
        for link in gone:
            del self._links[link.key]
            link.leave()
        for key in fresh:
            link = self._links[key]
            self._spawn(link.run(self._context), f"link/{link.address}")
        if not self._links:
            self._without_since = self._clock.wall()
        return True

    def get(self, key: str) -> AnyLink | None:
        """The link to the master with this key."""
        return self._links.get(key)

    def in_order(self) -> list[AnyLink]:
        """All of them, in the order of the list."""
        return [self._links[key] for key in self._state.masters]

    def active(self) -> AnyLink | None:
        """The one to the active master."""
        return self._links[self._state.active] if self._state.active is not None else None

    def best_first(self) -> list[AnyLink]:
        """Whom to ask first: the active one, and then all in their order."""
        active = self.active()
        return [*([active] if active is not None else []), *self.in_order()]

    def changed(self, link: MasterLink) -> bool:
        """A link is up or down (again). Returns whether it is one of them still."""
        if self._links.get(link.key) is not link:
            return False
        now = self._clock.monotonic()
        self._step(failover.Up(link.key, now) if link.up else failover.Down(link.key, now))
        return True

    @property
    def cut_until(self) -> float | None:
        """Until when they are cut on purpose, in wall seconds; None when they are not."""
        return self._cut.until

    def cut(self, seconds: float) -> None:
        """Lose every link without a word, as when a cable is cut, and connect to nobody for so long."""
        self._spawn(self._mend_after(self._cut.begin(seconds), seconds), "mend")
        for link in self.in_order():
            link.hang_up("the uplink is cut on purpose")

    def mend(self) -> None:
        """Connect again before its time."""
        self._cut.end()

    def status(self) -> dict[str, Any]:
        """Where the active link stands, or the best one, with the truth about the next attempt; and all links."""
        links = self.in_order()
        best = self.active() or min(links, key=lambda link: BEST_STATES.index(link.state), default=None)
        return {
            "state": best.state if best is not None else "no masters",
            "master": best.address if best is not None else "",
            "since": best.since if best is not None else self._without_since,
            "last_error": best.last_error if best is not None else "",
            "next_attempt": best.next_attempt if best is not None else None,
            "links": [link.status() for link in links],
        }

    async def _mend_after(self, turn: int, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._cut.end(turn)

    def _drawn(self, keys: list[str]) -> tuple[str, ...]:
        """The list as it is written; or shuffled, each master once for all while this program runs."""
        if self._shuffle:
            source = random.SystemRandom()
            keys.sort(key=lambda key: self._lots.setdefault(key, source.random()))
        return tuple(keys)

    def _step(self, event: failover.Event) -> None:
        before = self._state.active
        self._state, actions = failover.step(self._state, event)
        for action in actions:
            self._links[action.master].set_active(isinstance(action, failover.Activate))
        if self._state.active != before:
            active = self.active()
            log.info("active master=%s", active.address if active is not None else "none")
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
