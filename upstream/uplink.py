"""The gateway's end of the rope: a link to every master, of which ``failover`` says which one gets the spool.

It does not keep anything: what must survive is in the spool and the registry, and a master's confirmation is what lets
the spool forget. All masters may order, and all are told of the registry and of whom to believe.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from device_agent.clock import Clock
from device_agent.parts import Part
from device_agent.questions import PATIENCE_SECONDS, Unanswered
from upstream import failover, frames
from upstream.curve import CurveKeys
from upstream.cutting import Cut
from upstream.link import Link
from upstream.link_budget import LinkBudget
from upstream.link_terms import Ends
from upstream.links import Links
from upstream.master_link import MasterLink
from upstream.ports import FaultSource, JobIntake, Marks, Outgoing, Prover, Refusals, Roll, StoryTeller, TrustAbove
from upstream.rope import Ask

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MasterAddress:
    """One master: where it listens and its CURVE public key (Z85). One with several addresses comes several times."""

    address: str
    key: str


def masters_above(named: Sequence[MasterAddress], known: Sequence[MasterAddress]) -> list[MasterAddress]:
    """The masters that the settings name, and then those that the fleet knows.

    One that is named and the fleet does not know is a relay. From behind it the masters are reached by it alone: they
    would turn away a site that comes by two ways.
    """
    behind_relay = not {master.key for master in named} <= {master.key for master in known}
    return list(dict.fromkeys(named if behind_relay else [*named, *known]))


@dataclass(frozen=True)
class UplinkRules:
    """How the masters are used; the settings have these names."""

    master_type: failover.MasterType = "str"
    master_alive_interval: float | None = None
    master_failback: bool = False
    master_failback_interval: float = 0.0
    master_shuffle: bool = False
    random_reauth_delay: float = 0.0
    max_bytes_per_second: int = 0


class Uplink(Part):
    """Holds on to every master, sends the spool up to one, takes jobs in from all. Without any it waits to be told."""

    name: ClassVar[str] = "uplink"
    drain_seconds: ClassVar[float] = 5.0

    def __init__(
        self,
        *,
        site: str,
        keys: CurveKeys,
        masters: Sequence[MasterAddress],
        echo_seconds: float,
        outgoing: Outgoing,
        roll: Roll,
        intake: JobIntake,
        refusals: Refusals,
        clock: Clock,
        trust: TrustAbove | None = None,
        stories: StoryTeller | None = None,
        marks: Marks | None = None,
        prover: Prover | None = None,
        rules: UplinkRules = UplinkRules(),
        faults: FaultSource | None = None,
    ) -> None:
        limit = failover.silence_limit(echo_seconds, rules.master_alive_interval, rules.master_type)
        self._ends = Ends(
            site=site,
            keys=keys,
            outgoing=outgoing,
            roll=roll,
            intake=intake,
            refusals=refusals,
            clock=clock,
            trust=trust,
            stories=stories,
            marks=marks,
            prover=prover,
            budget=LinkBudget(rules.max_bytes_per_second, clock),
            cut=Cut(clock),
            echo_every=failover.echo_every(echo_seconds, limit),
            silence_limit=limit,
            random_reauth_delay=rules.random_reauth_delay,
            faults=faults,
        )
        self._clock = clock
        self._masters = tuple(masters)
        self._links = Links(
            failover.Rules(rules.master_type, rules.master_failback, rules.master_failback_interval),
            self._link_to,
            shuffle=rules.master_shuffle,
            cut=self._ends.cut,
            clock=clock,
            spawn=self.spawn,
        )
        self._epoch = outgoing.epoch

    async def open(self) -> None:
        """Start to connect to every master; a gateway is ready without any."""
        self._links.open(list(self._addresses()))
        self.spawn(self._spread(self._ends.roll.changed, Link.records_news), "records")
        if self._ends.trust is not None:
            self.spawn(self._spread(self._ends.trust.changed, Link.trust_news), "trust")
        if self._ends.faults is not None:
            self.spawn(self._spread(self._ends.faults.changed, Link.role_news), "faults")

    async def drain(self) -> None:
        """Give what is spooled a moment to be confirmed, then say goodbye."""
        self._links.stop()
        active = self._links.active()
        if active is not None:
            try:
                async with asyncio.timeout(self.drain_seconds * 0.8):
                    await active.emptied()
            except TimeoutError:
                log.warning("stopping with items that no master has confirmed; they stay on disk and go up later")
        for link in self._links.in_order():
            await link.say_bye()

    async def close(self) -> None:
        """Free the sockets."""
        self._links.close()

    def replace_masters(self, masters: Sequence[MasterAddress]) -> None:
        """Use another list from now on; the links to masters that are in it as well stay as they are."""
        fresh = tuple(masters)
        if fresh != self._masters:
            self._masters = fresh
            addresses = self._addresses()
            if self._links.use(list(addresses)):
                for link in self._links.in_order():
                    link.use_addresses(addresses[link.key])

    async def reseal(self, site: str, jid: str, reason: str, master: str = "") -> None:
        """Ask for new seals of a job, for this site or for one behind it; nobody is asked while there is no link.

        The one to ask is the master (its key) that gave the job, or else the active one.
        """
        given = self._links.get(master)
        link = given if given is not None and given.up else self._links.active()
        if link is not None:
            link.reseal(frames.Reseal(jid=jid, site=site, reason=reason))

    async def ask(self, about: str, body: bytes = b"", *, patience: float = PATIENCE_SECONDS) -> bytes:
        """The body of a master's answer: of the active one, or of any that is there.

        Raises ``Refused`` with the master's reason, and ``Unanswered`` when no master is there or none answers.
        """
        deadline = self._clock.monotonic() + patience
        while True:
            link = next((each for each in self._links.best_first() if each.up), None)
            if link is None:
                raise Unanswered("no master is there to be asked")
            try:
                left = max(0.0, deadline - self._clock.monotonic())
                return await link.asked.questions.ask(about, body, patience=left)
            except Unanswered:
                if link.up or self._clock.monotonic() >= deadline:
                    raise

    def askable(self) -> dict[str, Ask]:
        """The masters that are there, by key, each to be asked by itself."""
        return {link.key: link.asked.questions.ask for link in self._links.in_order() if link.up}

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
        return {**self._links.status(), "masters": [master.address for master in self._masters]}

    def _addresses(self) -> dict[str, tuple[str, ...]]:
        """Where each master is reached, by its key."""
        found: dict[str, tuple[str, ...]] = {}
        for master in self._masters:
            found[master.key] = (*found.get(master.key, ()), master.address)
        return found

    def _link_to(self, key: str) -> Link:
        return Link(key, self._addresses()[key], self._ends, self.spawn, self._link_changed)

    def _link_changed(self, link: MasterLink) -> None:
        if self._links.changed(link) and self._ends.outgoing.epoch != self._epoch:
            # One master knew more of this store than is in it. All others have heard of the store by its old name.
            self._epoch = self._ends.outgoing.epoch
            for other in self._links.in_order():
                if other is not link:
                    other.hang_up("the store goes on under a new epoch")

    async def _spread(self, source: asyncio.Event, tell: Callable[[Link], None]) -> None:
        """Tell every link of a change: an event that one of them clears would be lost to the others."""
        while True:
            await source.wait()
            source.clear()
            for link in self._links.in_order():
                tell(link)
