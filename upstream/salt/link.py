"""The link to one Salt master that keeps itself alive, whether that master is fed or stands by.

It does not know of the other masters. What is published is heard and taken over every link; ``Feed`` knows from
``active`` what of the spool goes to which.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from typing import Any, Final

import zmq
import zmq.asyncio

from device_agent.backoff import Backoff
from device_agent.errors import Refused, StationFailed
from device_agent.questions import Unanswered
from upstream.dealer import LinkLost
from upstream.endpoints import Endpoints
from upstream.link_terms import FIRST_WAIT_SECONDS, Spawn
from upstream.master_link import MasterLink, Pause
from upstream.salt import feeding, publishes
from upstream.salt.above import Above
from upstream.salt.channel import ASIDE, STALE, Channel, Connections
from upstream.salt.ends import LINK, Ends
from upstream.salt.knock import Knock, NotLetIn
from upstream.salt.order import SaltOrder, read_order
from upstream.salt.probe import Probe
from upstream.salt.serials import Heard
from upstream.salt.sign_in import Session
from upstream.salt.sign_in_budget import SignInBudget
from upstream.salt.subscription import Subscription
from upstream.salt.terms import endpoint

log = logging.getLogger(__name__)

ROUND_CEILING_SECONDS: Final = 30.0
REFUSED_WAITS: Final = 6
"""A master that says no is asked again after this many times ``acceptance_wait_time``."""

RENEWALS: Final = 3
"""How often a sign-in in the middle of a session is tried before what waits for it is given up."""


class SignInsSpent(Unanswered):
    """So many sign-ins have helped nothing that the next one waits."""


class Link(MasterLink):
    """The link to the master with this address. ``changed`` is called when it is up or down (again)."""

    def __init__(self, address: str, ends: Ends, spawn: Spawn, changed: Callable[[MasterLink], object]) -> None:
        super().__init__(address, ends.cut, ends.clock, spawn, changed)
        self.above: Above | None = None
        """What it can be told and asked, while it is up."""
        self._ends = ends
        self._waits = Backoff(FIRST_WAIT_SECONDS, ROUND_CEILING_SECONDS)
        self._endpoints = Endpoints()
        self._ended, self._pending = "disconnected", 0
        """What became of the last session, and how often in turn it was that the key waits to be accepted."""
        self._knock = Knock(address, ends)
        self._budget, self._doubts = SignInBudget(ends.clock), SignInBudget(ends.clock)
        self._lost_publishes = 0
        self._signed_in: Session | None = None
        self._aside: Connections | None = None
        """For what must not wait until a chunk of answers is stored."""
        self._signing = asyncio.Lock()
        self._told = ("", "")

    @property
    def key(self) -> str:
        """The address: a Salt master may have another key tomorrow."""
        return self.address

    def set_active(self, active: bool) -> None:
        """Whether this is the one that gets what is for any master."""
        self.active = active
        self._ends.feed.active(self.address, active)

    def status(self) -> dict[str, Any]:
        """Where this link stands."""
        registering = self._ends.registering
        told = registering.status(self.address) if registering is not None else {}
        return {**told, **super().status(), "lost_publishes": self._lost_publishes}

    def _lost(self, *, at_once: bool) -> Pause | None:
        self._tell(self._ended)
        self._pending = self._pending + 1 if self._ended == "pending" else 0
        if at_once:
            return None
        state = self._ended if self._ended in {"pending", "refused"} else "waiting"
        return Pause(self._how_long(self._ended), state)

    def _tell(self, state: str) -> None:
        """Say it once, not at every knock."""
        if (state, self.last_error) != self._told:
            self._told = (state, self.last_error)
            log.warning("uplink %s master=%s reason=%s", state, self.address, self.last_error)

    def _how_long(self, ended: str) -> float:
        rules = self._ends.rules
        if ended == "pending":
            self._waits.reset()
            most = max(rules.acceptance_wait_time, rules.acceptance_wait_time_max)
            return min(most, rules.acceptance_wait_time * self._pending)
        if ended == "refused":
            return rules.acceptance_wait_time * REFUSED_WAITS
        return max(self._waits.next(), self._jitter())

    def _jitter(self) -> float:
        return random.SystemRandom().uniform(0.0, self._ends.rules.random_reauth_delay)

    async def _session(self, context: zmq.asyncio.Context) -> None:
        """One connection, until it is lost."""
        self._ended = "disconnected"
        try:
            async with contextlib.AsyncExitStack() as closing, asyncio.TaskGroup() as life:
                life.create_task(self._watch_hang_up(), name="uplink/hang-up")
                named, port = self._endpoint()
                self._set_state("connecting")
                host = await self._endpoints.find(named, port, self._late)
                connections = Connections(context, f"tcp://{host}:{port}")
                closing.callback(connections.close)
                self._aside = Connections(context, f"tcp://{host}:{port}", ASIDE)
                closing.callback(self._aside.close)
                self._signed_in = await self._first_sign_in(self._aside)
                try:
                    published = Subscription(context, f"tcp://{host}:{self._signed_in.publish_port}")
                except Unanswered as none:
                    raise LinkLost(str(none)) from none
                closing.callback(published.close)
                probe = Probe(published, self._refused, self._ends.clock)
                channel, aside = (self._channel(each, probe.heard) for each in (connections, self._aside))
                above = Above(self._ends.rules, channel, aside)
                life.create_task(published.watch(probe.look), name="uplink/monitor")
                life.create_task(published.take_in(self._refused), name="uplink/take-in")
                await published.heard()
                await self._begin(life, published, above, probe)
        except* LinkLost as lost:
            error = lost.exceptions[0]
            self.last_error = str(error)
            self._ended = error.state if isinstance(error, NotLetIn) else "disconnected"
        finally:
            self.up, self.above = False, None

    def _channel(self, connections: Connections, heard: Callable[[], None]) -> Channel:
        ends = self._ends
        return Channel(
            rules=ends.rules,
            key=ends.key,
            connections=connections,
            session=self._current,
            renew=self._renew_in_time,
            clock=ends.clock,
            heard=heard,
        )

    async def _begin(self, life: asyncio.TaskGroup, published: Subscription, above: Above, probe: Probe) -> None:
        self.above = above
        try:
            await above.started()
        except (Refused, SignInsSpent) as no:
            if isinstance(no, SignInsSpent) or no.reason in STALE:
                raise NotLetIn("refused", self._knock.not_taken_words(self._ends.clock.wall())) from None
            self._refused(no)
        except Unanswered as error:
            log.info("not answered master=%s: %s", self.address, error)
        life.create_task(self._hear(published), name="uplink/publishes")
        life.create_task(probe.run(above.there, self._ends.probe_every), name="uplink/probe")
        for feed in (self._ends.feed, self._ends.registering, self._ends.facts):
            if feed is not None:
                told = feeding.run(life, self._ends, feed, above, self.address, probe.look)
                life.create_task(told, name="uplink/feed")
        self.last_error, self._told = "", ("", "")
        self.up = True
        self._set_state("connected")
        log.info("uplink connected master=%s", self.address)
        self._changed(self)

    async def _watch_hang_up(self) -> None:
        await self._hung_up.wait()
        raise LinkLost(self._why)

    async def _first_sign_in(self, connections: Connections) -> Session:
        for _ in range(max(1, self._ends.rules.auth_tries)):
            try:
                return await self._knock.once(connections)
            except Unanswered as error:
                self.last_error = str(error)
                # Whoever waits for a better master knows by this that it is not there now.
                self._changed(self)
        self._endpoints.failed()
        raise LinkLost(f"{self.last_error}, {self._ends.rules.auth_tries} times")

    def _endpoint(self) -> tuple[str, int]:
        try:
            host, port = endpoint(self.address, self._ends.rules.master_port)
            return host.strip("[]"), port
        except ValueError as error:
            raise NotLetIn("refused", str(error)) from None

    def _current(self) -> Session:
        assert self._signed_in is not None
        return self._signed_in

    async def _renew_in_time(self, stale: Session) -> None:
        """As ``_renew``, after a random time: all minions of a master that started anew ask at once."""
        # Outside of the lock: an order that comes meanwhile does not wait for it.
        await asyncio.sleep(self._jitter())
        await self._renew(stale)

    async def _renew(self, stale: Session) -> None:
        """Sign in again, unless somebody has since. Raises ``Unanswered``; a master that says no ends the link."""
        await self._renew_within(self._budget, stale)

    async def _renew_within(self, budget: SignInBudget | None, stale: Session) -> None:
        async with self._signing:
            if self._signed_in is not stale:
                return
            if budget is not None and not budget.take():
                self._ends.refusals.refused(LINK, "sign_ins_capped", self.address)
                raise SignInsSpent("the master does not take what a new sign-in gave; the next one waits")
            try:
                self._signed_in = await self._knocked_again()
            except NotLetIn as no:
                self.hang_up(str(no))
                raise Unanswered(str(no)) from None
            log.info("signed in again master=%s", self.address)
            if self._ends.registering is not None:
                self._ends.registering.signed_in(self.address)

    async def _knocked_again(self) -> Session:
        """A master that has just started may be slow, and the order that waits for this is told only once."""
        assert self._aside is not None
        for _ in range(RENEWALS - 1):
            with contextlib.suppress(Unanswered):
                return await self._knock.once(self._aside)
        return await self._knock.once(self._aside)

    async def _hear(self, published: Subscription) -> None:
        while True:
            frames = await published.next()
            try:
                order, heard = await self._read(frames)
            except Refused as refusal:
                self._refused(refusal)
                continue
            except StationFailed as failed:
                self._ends.refusals.refused(LINK, "store_failed", self.address, failed.what)
                continue
            # A task of its own: a line that is lost meanwhile ends no order in the middle.
            await asyncio.wait({self._spawn(self._take(order, heard), f"order/{self.address}")})

    async def _take(self, order: SaltOrder, heard: Heard) -> None:
        if not await self._ends.orders.take(order, self.address):
            return
        try:
            await self._ends.serials.keep(heard)
        except StationFailed as failed:
            self._ends.refusals.refused(LINK, "serial_not_kept", self.address, failed.what)

    async def _read(self, frames: list[bytes]) -> tuple[SaltOrder, Heard]:
        session = self._current()
        try:
            sealed = publishes.signed_box(frames, session.master)
        except Refused as refusal:
            if refusal.reason != "bad_signature" or not await self._has_another_key(session):
                raise
            session = self._current()
            sealed = publishes.signed_box(frames, session.master)
        try:
            load = publishes.opened(sealed, session.aes)
        except Refused as refusal:
            if refusal.reason != "bad_mac":
                raise
            # The master has made a new key and tells nobody: the first message under it is how it is known.
            # At once: whoever gave the order waits a few seconds for word of it, and the budget caps the sign-ins.
            try:
                await self._renew(session)
            except Unanswered as error:
                raise Refused("bad_mac", str(error)) from None
            session = self._current()
            load = publishes.opened(sealed, session.aes)
        heard = await self._ends.serials.hear(load, session.aes, self.address)
        if heard.lost:
            self._lost_publishes += heard.lost
            log.warning("publishes were lost master=%s count=%d", self.address, heard.lost)
        try:
            return read_order(load), heard
        except Refused:
            await self._ends.serials.keep(heard)
            raise

    async def _has_another_key(self, session: Session) -> bool:
        """Whether the master is known by another RSA key since: one that the signing key vouches for.

        Anybody can send what is signed by nobody we know, so this has a budget of its own.
        """
        if self._signed_in is session and not self._doubts.take():
            return False
        with contextlib.suppress(Unanswered):
            await self._renew_within(None, session)
        return self._current().master.pem != session.master.pem

    def _refused(self, refusal: Refused) -> None:
        self._ends.refusals.refused(LINK, refusal.reason, self.address, refusal.detail)
