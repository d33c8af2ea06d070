"""What the rope asks of whoever holds it, at either end."""

from __future__ import annotations

import asyncio
from typing import Literal, Protocol

from upstream.frames import DeviceRecord

KeyState = Literal["pending", "accepted", "rejected", "denied"]


class Refusals(Protocol):
    """Where refused input is counted, by link and reason, with the peer named."""

    def refused(self, link: str, reason: str, peer: str, detail: str = "") -> None:
        """Count one refusal."""


class Outgoing(Protocol):
    """A gateway's spool: what must still go up, in order."""

    @property
    def epoch(self) -> str:
        """Names the store that numbered the items."""

    @property
    def changed(self) -> asyncio.Event:
        """Set after items were added."""

    async def read(self, after: int) -> list[tuple[int, bytes]]:
        """The next items after a sequence, one batch at most; empty when there are none."""

    async def confirm(self, sequence: int) -> None:
        """A master has everything up to this sequence on disk."""

    async def reaches(self, sequence: int) -> bool:
        """Whether this store ever gave out a sequence that high."""

    async def renew_epoch(self) -> None:
        """Number from now on under another name."""


class Roll(Protocol):
    """A station's registry, as seen by the uplink."""

    @property
    def revision(self) -> int:
        """The newest revision given out."""

    @property
    def changed(self) -> asyncio.Event:
        """Set after rows changed."""

    async def records_after(self, revision: int) -> list[DeviceRecord]:
        """Rows changed after a revision, in revision order, one page at most."""


class JobIntake(Protocol):
    """Where jobs from above are taken in."""

    async def accept_from_above(self, job: bytes, remaining: float, master: str) -> None:
        """Take a job; returns when it is on disk or was refused and counted."""

    async def cancel_from_above(self, jid: str) -> None:
        """A master cancelled a job."""


class Inbox(Protocol):
    """Where a master keeps what its sites send."""

    async def position(self, site: str, epoch: str) -> tuple[int, int]:
        """The last sequence and the last registry revision on disk here for this site's epoch; 0 for none."""

    async def commit(self, site: str, epoch: str, items: list[tuple[int, bytes]]) -> int:
        """Put items on disk, each at most once whatever is repeated; returns the last sequence on disk."""

    async def commit_records(self, site: str, epoch: str, records: list[DeviceRecord]) -> int:
        """Put registry rows on disk; returns the last revision on disk."""


class Admission(Protocol):
    """Which keys may speak for which sites."""

    def known(self, key: str) -> bool:
        """Whether this CURVE key is accepted for some site (a fast answer from memory, for ZAP)."""

    async def judge(self, site: str, key: str, address: str) -> KeyState:
        """The standing of a key that claims a site; an unknown one becomes pending, a second one is denied."""


class SiteWatch(Protocol):
    """Who wants to know that sites come and go."""

    async def site_up(self, site: str, release: str, address: str) -> None:
        """A site is welcome and connected."""

    def site_heard(self, site: str) -> None:
        """A site said anything."""

    def site_down(self, site: str, why: str) -> None:
        """A site's link is gone."""
