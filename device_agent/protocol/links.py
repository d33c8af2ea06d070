"""Ports between a station and what carries its words: what a downlink does, and what it tells.

A lower floor states here what it needs; an upper floor satisfies it without inheriting; the composition root fits them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Protocol, runtime_checkable

from msgspec import Meta, Struct

from device_agent.protocol import limits
from device_agent.protocol.messages import Beat, Gone, Hello, Return, SiteId


class Sealed(Struct, frozen=True, array_like=True):
    """A job as its issuer signed and sealed it for one site: for all its devices (``device`` is "") or for one."""

    site: SiteId
    device: Annotated[str, Meta(max_length=128)]
    body: Annotated[bytes, Meta(max_length=limits.MESSAGE_BYTES)]


class Parcel(Struct, frozen=True):
    """What travels of a job: its definition for the stations on the way, and what the devices believe.

    The definition is the encoded ``Job``. A station holds it against the sealed part of its own site, where it can.
    """

    definition: bytes
    sealed: tuple[Sealed, ...]


Answered = Mapping[str, Sequence[str]]
"""Names whose returns are on disk, by the jid of their job."""


class Downlink(Protocol):
    """A way down to devices; for the ``sites`` downlink the devices are sites.

    Each call hands the message to the link and returns; none of them proves arrival. Proof is a word from the device.
    """

    name: ClassVar[str]

    async def deliver(self, parcel: Parcel, remaining: float, names: Sequence[str]) -> None:
        """Send a job to these names. ``remaining`` is seconds until its expiry."""

    async def cancel(self, jid: str, names: Sequence[str]) -> None:
        """Tell these names not to start a job."""

    async def confirm(self, answered: Answered) -> None:
        """Tell names that their returns for these jobs are on disk here."""


@runtime_checkable
class Listener(Downlink, Protocol):
    """A downlink on which answers wait to be taken."""

    def heard_since(self) -> float:
        """Since when what arrives is taken without delay, monotonic seconds: now while it is not.

        Silence before that proves nothing: an answer may wait unread.
        """


class Presence(Protocol):
    """What a downlink tells of who is there."""

    def hello(self, link: str, device: str, hello: Hello) -> int:
        """A device said hello; returns its index. Raises ``Refused`` when the registry will not have it."""

    def beat(self, device: str, beat: Beat) -> bool:
        """A device is alive. False when this session is not known here, and it should say hello again."""

    def gone(self, device: str, gone: Gone) -> None:
        """A device's connection ended."""

    def unheard(self, link: str) -> None:
        """The link itself was away: nobody on it is known to be there until heard again."""


class Returns(Protocol):
    """What a downlink tells of jobs."""

    def hello(self, device: str, hello: Hello) -> None:
        """A device connected, and says which outbox it has."""

    def running(self, device: str, jid: str, away: float = 0.0) -> None:
        """The device has the job, and may not be heard for ``away`` seconds while it restarts."""

    async def returned(self, device: str, message: Return, size: int) -> None:
        """The device answered, in so many bytes. Waits while the station has too much uncommitted."""

    async def settle(self) -> None:
        """Return when all that was told is on disk and its devices are told so: before a link closes."""
