"""Whom a device without an agent would believe: what this station itself believes, by the station's time.

What is sealed to such a device alone is sealed to the station's own key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from device_agent.errors import Refused
from device_agent.own import Custom, NoCustom
from device_agent.trust.chain import Issuer
from device_agent.trust.keys import KemKey
from device_agent.trust.reach import Reach
from device_agent.trust.replay import Replay
from gateway.devices.authority import Authority
from gateway.devices.epochs import Epochs


class StationTime:
    """The station knows what time it is, and is told by nobody's signature."""

    has_time: Final = True

    def master_signed(self, issued: int, monotonic: float | None = None) -> None:
        """Its own authority has seen to that already."""


class StationGroup:
    """The station's own group keys, as a device would hold them."""

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs

    def key(self, epoch: int, _now: float, /) -> bytes:
        """The key of an epoch that counts now. Raises ``Refused``."""
        return self._epochs.counting(epoch)


class Judge:
    """What all judgements of a station share."""

    def __init__(self, site: str, authority: Authority, epochs: Epochs) -> None:
        self.custom: Custom = NoCustom()
        """What was brought to this station for its devices without an agent."""
        self.site = site
        self.authority = authority
        self.floor = StationTime()
        self.groups = StationGroup(epochs)

    def now(self) -> float:
        """The time that counts at this station."""
        return self.authority.now()

    def issuer(self, kid: bytes, role: str) -> Issuer:
        """A master or this site itself, if it may sign this now. Raises ``Refused``."""
        return self.authority.anchor.issuer(kid, role, self.site, self.now())


class SteadJudgement:
    """Implements ``Judgement`` and ``Addressee`` for one device; ``marks`` is what its journal says of job numbers."""

    __slots__ = ("_judge", "did", "replay")

    def __init__(self, judge: Judge, marks: Mapping[bytes, int]) -> None:
        self._judge = judge
        self.did = ""
        self.replay = Replay()
        for kid, seq in marks.items():
            self.replay.raise_to(kid, seq)

    @property
    def identity(self) -> SteadJudgement:
        """Itself."""
        return self

    @property
    def site(self) -> str:
        """The site of the station."""
        return self._judge.site

    @property
    def kems(self) -> tuple[KemKey, ...]:
        """The station's own."""
        return (self._judge.authority.kem,)

    def sealed_to_another(self) -> None:
        """Masters hear of this station's key with its certificate."""

    @property
    def floor(self) -> StationTime:
        """The station's time."""
        return self._judge.floor

    @property
    def groups(self) -> StationGroup:
        """The station's group keys."""
        return self._judge.groups

    def now(self) -> float:
        """The time that counts at this station."""
        return self._judge.now()

    def issuer(self, kid: bytes, role: str) -> Issuer:
        """A master or this site itself, if it may sign this now. Raises ``Refused``."""
        return self._judge.issuer(kid, role)

    def custom_reach(self, fun: str) -> Reach | None:
        """The class of a function that the site brought."""
        return self._judge.custom.reach(fun)

    def belongs(self, did: str | None, name: str) -> None:
        """By which identity the device belongs here now. Raises ``Refused`` when it does not."""
        if did is None:
            raise Refused("not_accepted", name)
        self.did = did
