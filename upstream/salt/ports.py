"""What the links to Salt masters ask of whoever holds them, and what a connected one offers.

A master is named by its address as it is configured: ``host`` or ``host:port``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from device_agent.questions import Unanswered
from upstream.salt.order import SaltOrder
from upstream.salt.wire import Packed


class NotConfirmed(Unanswered):
    """The master has answered, and does not say that it has what it was told."""


@dataclass(frozen=True)
class DeviceAnswer:
    """What one device returned."""

    value: Any
    retcode: int = 0
    success: bool = True
    fun_args: Sequence[Any] = ()
    retcodes: Mapping[str, int] = field(default_factory=dict)
    """Of the functions of a job that has several, as far as they are known."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """What else the master's event of it has."""


@dataclass(frozen=True)
class ReturnsOfJob:
    """Answers of some devices to one job, as ``_syndic_return`` takes them. At most 200 devices; 100 is a good chunk.

    ``load``: what defines the job, for a master that did not make it; empty for the master that did.
    """

    jid: str
    fun: str | Sequence[str]
    answers: Mapping[str, DeviceAnswer]
    load: Mapping[str, Any] = field(default_factory=dict)
    master_id: str = ""
    out: str = ""
    """The name of an outputter, if the function has one of its own."""


class SaltAbove(Protocol):
    """What the link to one master offers while it is connected.

    Each call returns when the master has answered. Each raises ``Unanswered`` when it does not answer in time or the
    link is lost (the master may have taken it all the same: send it again), ``NotConfirmed`` among these when it has
    answered with something else, and ``Refused`` when it says no.
    """

    async def announce(self, jid: str, ids: Sequence[str]) -> None:
        """Say whose answers the master is to wait for. At once when a job is taken: ``salt`` waits for it."""

    async def returns(self, entries: Sequence[ReturnsOfJob]) -> None:
        """Hand over answers; when this returns, the master has each in its job cache and on its bus."""

    async def events(self, events: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Post events on the master's bus, each a tag and its data. The master lets some tags drop without a word."""

    async def register(self, resources: Mapping[str, Sequence[str]], grains: Mapping[str, Packed]) -> bool:
        """Say which devices are behind this gateway, in place of all that was said before; ``{}`` for none.

        ``resources``: ids by type. ``grains``: those of each, by ``type:id``. False when the master has no resources:
        it is older than 3008.
        """

    async def request(self, cmd: str, fields: Mapping[str, Any], *, patience: float) -> Any:
        """Ask anything; the answer as it was unpacked. A command that the master does not know answers ``{}``."""

    async def pillar(self, grains: Mapping[str, Any], *, patience: float, **fields: Any) -> dict[str, Any]:
        """The pillar of this gateway's own id, checked to come from the master."""


class Orders(Protocol):
    """Where what Salt masters order is taken in."""

    async def take(self, order: SaltOrder, master: str) -> bool:
        """A verified publish of a master. Returns when it is on disk, or was refused and counted; raises nothing.

        Returns False where the store failed, so that it may come again after a restart.

        The same jid may come again: from the same master, and from others. Called one after another for each master,
        so it must not wait for devices nor for a master.
        """


class Feed(Protocol):
    """What is to be told to Salt masters."""

    async def run(self, above: SaltAbove, master: str) -> None:
        """Tell this master, until cancelled. Run by its link from each connect to the loss of it, for every master.

        ``Unanswered`` and ``Refused`` may leave it: the link then waits a moment and runs it again.
        """

    def active(self, master: str, active: bool) -> None:
        """This master is the active one from now on, or is no more."""

    async def emptied(self, master: str) -> None:
        """Return when this master has confirmed all that is for it. The caller bounds it."""


class MasterFeed(Protocol):
    """Sends each master something while its link is up."""

    async def run(self, above: SaltAbove, master: str) -> None:
        """Send to this master until cancelled, as ``Feed.run``."""


class Registering(Protocol):
    """Who says to each master which devices are here."""

    async def run(self, above: SaltAbove, master: str) -> None:
        """Say it to this master, until cancelled, as ``Feed.run``."""

    def signed_in(self, master: str) -> None:
        """This master let us in anew on a link that went on: it may have forgotten what it was told."""

    def status(self, master: str) -> Mapping[str, Any]:
        """What the status of the link says of it."""


Asked = Callable[[SaltAbove, str, bytes, float], Awaitable[bytes]]
"""Answers a question of the station (files, pillar: what it is about, its body, patience in seconds) with the help of
a master. Raises ``Refused`` and ``Unanswered``."""
