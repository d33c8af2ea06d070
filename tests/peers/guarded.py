"""A device with a real guard on a broker of paper: what it says lands in a list, the site answers by hand."""

from __future__ import annotations

import random
from collections.abc import Mapping

from device_agent.counters import Counters
from device_agent.guard import Guard
from device_agent.heard import Delivery, Heard, SessionOpened
from device_agent.identity import Identity, new_identity
from device_agent.joining import Joining, invited_by_token
from device_agent.protocol import topics
from device_agent.protocol.messages import Job, Upward
from tests.peers.clock import HandClock
from tests.peers.fleet import Fleet
from tests.peers.trusted_site import TrustedSite


def joined(site: TrustedSite, clock: HandClock, serial: str = "cam-7") -> Identity:
    """A device that has joined a site with a token."""
    identity = new_identity()
    joining = Joining(identity, invited_by_token(site.token()), serial, "dome-2", clock)
    answered = site.answered(joining.request()[1])
    assert answered is not None
    assert joining.judge(answered[1]) is None
    assert site.answered(joining.confirmation()[1]) is None
    return identity


class Guarded:
    """One device of a site and its guard."""

    def __init__(
        self, fleet: Fleet | None = None, marks: Mapping[bytes, int] | None = None, identity: Identity | None = None
    ) -> None:
        self.clock = HandClock()
        self.site = TrustedSite(fleet, self.clock)
        self.counters = Counters()
        self.said: list[tuple[str, bytes]] = []
        self.identity = identity or joined(self.site, self.clock)
        self.guard = self.another_guard(marks)

    @property
    def did(self) -> str:
        return self.identity.did

    def another_guard(self, marks: Mapping[bytes, int] | None = None) -> Guard:
        """As after a restart of the agent: time is only what the identity knows of it."""
        restarted = Identity.from_bytes(self.identity.to_bytes())
        self.identity = restarted
        self.guard = Guard(
            restarted,
            marks=marks or {},
            publish=lambda topic, payload: self.said.append((topic, payload)),
            clock=self.clock,
            counters=self.counters,
            randomness=random.Random(7),
        )
        return self.guard

    def connect(self) -> bytes:
        """Connect, be told whom to believe, and open a session; the opening."""
        self.guard.begin()
        self.guard.connected()
        self.tell(topics.trust(self.site.site), self.site.bundle())
        return self.opening()

    def opening(self) -> bytes:
        """The opening that was said last."""
        [(topic, body)] = self.taken()
        assert topic == topics.device_up(self.site.site, self.did, "ses")
        return body

    def live(self) -> None:
        """Connect and have a session."""
        self.accept(self.connect())

    def accept(self, opening: bytes) -> None:
        """The site takes an opening."""
        _, word = self.site.opened(opening)
        assert self.tell_session(word) == SessionOpened()

    def tell(self, topic: str, payload: bytes) -> Heard | None:
        return self.guard.receive(topic, payload)

    def tell_me(self, payload: bytes) -> Heard | None:
        """On the device's own topic of jobs and frames."""
        return self.tell(topics.device_job(self.site.site, self.did), payload)

    def tell_all(self, payload: bytes) -> Heard | None:
        return self.tell(topics.group_job(self.site.site), payload)

    def tell_session(self, payload: bytes) -> Heard | None:
        return self.tell(topics.device_sok(self.site.site, self.did), payload)

    def tell_trust(self, payload: bytes) -> Heard | None:
        return self.tell(topics.trust(self.site.site), payload)

    def tell_time(self, payload: bytes) -> Heard | None:
        return self.tell(topics.group_time(self.site.site), payload)

    def tell_epoch(self, payload: bytes) -> Heard | None:
        return self.tell(topics.device_ep(self.site.site, self.did), payload)

    def order(self, payload: bytes) -> Job:
        """A job that is delivered on the device's own topic and may run."""
        delivery = self.tell_me(payload)
        assert isinstance(delivery, Delivery)
        return delivery.open()[0]

    def taken(self) -> list[tuple[str, bytes]]:
        """What was said since the last look."""
        said, self.said[:] = self.said[:], []
        return said

    def heard(self) -> list[Upward]:
        """What the site understood of it."""
        return [self.site.heard(self.did, frame) for _, frame in self.taken()]

    def tick(self, seconds: float) -> None:
        """Let time pass, a second at a time."""
        for _ in range(int(seconds)):
            self.clock.move(1.0)
            self.guard.tick(self.clock.monotonic())
