"""What a device hears once its guard has opened it, and what a device needs of its guard.

Everything here was proven: a job by its signature, the words of a session by the session, the rest by the site's key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol

from device_agent.protocol.messages import Confirm, Job, TargetType, Welcome
from device_agent.protocol.questions import Answer


class Delivery(ABC):
    """A job that somebody who may order jobs signed for this site and this device, still sealed.

    ``kid`` and ``seq`` are its signer and the signer's number for it.
    """

    __slots__ = ("jid", "kid", "seq", "tgt", "tgt_type")

    def __init__(self, jid: str, tgt: str, tgt_type: TargetType, kid: bytes, seq: int) -> None:
        self.jid = jid
        self.tgt = tgt
        self.tgt_type = tgt_type
        self.kid = kid
        self.seq = seq

    @abstractmethod
    def open(self) -> tuple[Job, float]:
        """The job, and the seconds it has left to start. Raises ``Refused`` when it must not run."""


class Cancelled(NamedTuple):
    """Do not start this job. Not ``named``: it was said to everybody, and may be no news to this device."""

    jid: str
    named: bool


class SessionOpened(NamedTuple):
    """The station has a session with this device; it does not know the device's facts yet."""


class SessionLost(NamedTuple):
    """The station does not know the session any more; another one follows by itself."""


class Renamed(NamedTuple):
    """The device has another name now."""


Heard = Delivery | Cancelled | Confirm | Welcome | Answer | SessionOpened | SessionLost | Renamed


class DeviceGuard(Protocol):
    """What stands between a device and its bytes."""

    @property
    def name(self) -> str:
        """The name that targets match."""

    @property
    def session(self) -> str:
        """The open session, empty without one."""

    def subscriptions(self) -> list[str]:
        """Where this device listens."""

    def begin(self) -> tuple[str, bytes]:
        """A connection is about to be made: the topic and payload the broker publishes when it is lost."""

    def connected(self) -> None:
        """It is made, and subscribed."""

    def lost(self) -> None:
        """It has ended."""

    def tick(self, now: float) -> None:
        """About once a second: what is due by time."""

    def receive(self, topic: str, payload: bytes) -> Heard | None:
        """Open one message; None when it was for the guard alone. Raises ``Refused``."""

    def send(self, body: bytes) -> None:
        """Seal an encoded message for the station and hand it over; without a session it is dropped and counted."""
