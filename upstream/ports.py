"""What the rope asks of whoever holds it, at either end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from device_agent.protocol.links import Parcel
from device_agent.protocol.questions import Answer, Question
from upstream.fault_frames import SiteFault
from upstream.frames import DeviceRecord, LedgerRow, SiteHello, SiteTrust, Stream, Told
from upstream.story_frames import Story, UnknownJob

KeyState = Literal["pending", "accepted", "rejected", "denied"]

AskSeal = Callable[[str, str, str], Awaitable[None]]
"""Asks whoever issued a job to seal it anew: the site, the jid and the reason."""

SendStory = Callable[[Story | UnknownJob], Awaitable[None]]
"""Sends one frame of a story to a master."""


class Refusals(Protocol):
    """Where refused input is counted, by link and reason, with the peer named."""

    def refused(self, link: str, reason: str, peer: str, detail: str = "") -> None:
        """Count one refusal."""


class DoorRefusals(Refusals, Protocol):
    """The same at a port on which a station listens."""

    def accept_failed(self, door: str, code: int) -> None:
        """Count a connection that could not be accepted. ``code`` is the error's number (errno(3))."""


class Outgoing(Protocol):
    """A gateway's spool: what must still go up, stream by stream, each in order."""

    @property
    def epoch(self) -> str:
        """Names the store that numbered the items."""

    @property
    def changed(self) -> asyncio.Event:
        """Set after items were added."""

    async def next_stream(self, sent: Mapping[Stream, int]) -> Stream | None:
        """The first stream, in the order in which they go up, that has items after those sent; None for none."""

    async def read(self, stream: Stream, after: int, most_bytes: int = ...) -> list[tuple[int, bytes]]:
        """The next items after a sequence, one batch at most; empty when there are none."""

    async def confirm(self, stream: Stream, sequence: int, master: str) -> None:
        """A master, known by its key, has everything of a stream up to this sequence on disk."""

    async def reaches(self, positions: Mapping[Stream, int]) -> bool:
        """Whether this store ever gave out sequences that high."""

    async def report(self, master: str) -> list[LedgerRow]:
        """The ledger, as a master is told it."""

    async def renew_epoch(self) -> None:
        """Number from now on under another name."""

    async def went_back(self, why: str) -> None:
        """A master knows more of this store than is in it: say so here, and number from now on under another name."""


class Prover(Protocol):
    """Signs what this site says, for a station above that passes it on. What has a proof already is left as it is."""

    def items(self, epoch: str, stream: Stream, items: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Items of the spool."""

    def told(self, epoch: str, items: list[bytes]) -> list[bytes]:
        """Items of a job's story, which have no place in the spool."""

    def records(self, epoch: str, records: list[DeviceRecord]) -> list[DeviceRecord]:
        """Registry rows."""


class Marks(Protocol):
    """A gateway's marks, by which a master tells it from a copy of its store (``twins``)."""

    async def next(self, master: str) -> tuple[list[bytes], bool]:
        """The marks for a hello to the master with this key, all on disk; and whether none was welcome yet."""

    async def welcomed(self, master: str, name: str) -> None:
        """The master with this key and name has let the newest of them in."""

    async def fenced(self, master: str, mark: bytes, reason: str) -> None:
        """The master says that another was welcome with this mark."""

    async def twin(self, master: str, address: str) -> None:
        """The master says that another gateway came with a copy of this store."""


class FaultSource(Protocol):
    """What a gateway says of itself while it can take no job."""

    @property
    def changed(self) -> asyncio.Event:
        """Set after something in ``faults`` changed."""

    def faults(self) -> Sequence[SiteFault]:
        """What keeps it from taking jobs now."""


class Fence(Protocol):
    """What a master keeps of the marks of its sites."""

    async def judge(self, site: str, hello: SiteHello, address: str) -> Entry:
        """Whether this is the gateway that was welcome last; what is decided is on disk."""


@dataclass(frozen=True)
class Entry:
    """Whether a gateway is let in, and whether it has to take a new epoch; else what to tell it.

    ``late``: the hello is an old one of the gateway that was let in, and came after the one that was said later.
    """

    refused: str = ""
    mark: bytes = b""
    renew: bool = False
    late: bool = False


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

    async def accept_from_above(self, parcel: Parcel, remaining: float, master: str) -> None:
        """Take a job from the master with this CURVE key; returns when it is on disk or was refused and counted."""

    async def cancel_from_above(self, jid: str) -> None:
        """A master cancelled a job."""


class StoryTeller(Protocol):
    """Tells masters of jobs what the spool does not bring them."""

    async def tell(self, master: str, active: Callable[[], bool], send: SendStory) -> None:
        """Tell this master over one connection, until cancelled. ``active``: whether it is sent the spool now."""

    def ask(self, master: str, jid: str, *, anew: bool) -> None:
        """The master asks for a job; ``anew`` from its beginning."""

    def taken(self, master: str) -> None:
        """The master has dealt with one frame of a story."""

    def role_changed(self, master: str) -> None:
        """The spool goes to this master from now on, or does no more."""


class Inbox(Protocol):
    """Where a master keeps what its sites send."""

    @property
    def passes_on(self) -> bool:
        """Whether what sites say goes on to a station above: the sites then sign it."""

    async def rows_unproven(self, site: str) -> bool:
        """Whether there are registry rows of this site here that it did not sign."""

    async def position(self, site: str, epoch: str) -> tuple[dict[Stream, int], int]:
        """The last sequence of each stream and the last registry revision on disk here for this site's epoch."""

    async def commit(self, site: str, epoch: str, stream: Stream, items: list[tuple[int, bytes]]) -> int:
        """Put items on disk, each at most once whatever is repeated; returns the last sequence on disk."""

    async def keep_ledger(self, site: str, rows: Sequence[LedgerRow]) -> None:
        """Keep what a site says of its ledger."""

    async def commit_records(self, site: str, epoch: str, records: list[DeviceRecord]) -> int:
        """Put registry rows on disk; returns the last revision on disk."""

    async def commit_story(self, site: str, items: list[bytes]) -> None:
        """Put on disk what is new in a story; the site's position in its spool stays where it is."""

    async def unknown_job(self, site: str, jid: str) -> None:
        """A site says that it does not know a job it was asked for."""


class Admission(Protocol):
    """Which keys may speak for which sites."""

    def known(self, key: str) -> bool:
        """Whether this CURVE key is accepted for some site (a fast answer from memory, for ZAP)."""

    def revoked(self, key: str) -> bool:
        """Whether whoever has this CURVE key was revoked: no operator's word lets it in again."""

    async def judge(
        self, site: str, key: str, address: str, request: bytes = b"", certificate: bytes = b""
    ) -> KeyState:
        """The standing of a key that claims a site; an unknown one becomes pending, a second one is denied.

        ``request`` and ``certificate`` are what the site brought with its hello, not yet looked at.
        """


class SiteWatch(Protocol):
    """Who wants to know that sites come and go."""

    async def site_up(self, site: str, release: str, address: str) -> None:
        """A site is welcome and connected."""

    def site_role(self, site: str, active: bool, faults: Sequence[SiteFault] = ()) -> None:
        """A site says whether this master gets its spool, or stands by, and what keeps it from taking jobs."""

    def site_heard(self, site: str) -> None:
        """A site said anything."""

    def site_down(self, site: str, why: str) -> None:
        """A site's link is gone."""


class Answering(Protocol):
    """Who answers what sites ask."""

    def offer(self, asker: str, question: Question, reply: Callable[[Answer], Awaitable[None]]) -> None:
        """A site asks. The answer goes out by ``reply``, now or later."""


class TrustAbove(Protocol):
    """What a gateway tells its masters of who it is, and does with what they say of whom to believe."""

    @property
    def changed(self) -> asyncio.Event:
        """Set after something in ``tells`` changed."""

    def hello(self) -> tuple[bytes, bytes]:
        """The request for a site certificate, and the newest certificate; empty for none."""

    def tells(self) -> list[Told]:
        """All that a master must know of this site and of those behind it."""

    async def told(self, trust: SiteTrust, master: str) -> None:
        """A master said whom to believe. What is wrong with it is refused and counted here."""


class TrustBelow(Protocol):
    """What a station tells its sites of whom to believe, and keeps of what they tell."""

    def on_change(self, call: Callable[[], Awaitable[None]]) -> None:
        """Call whenever ``tells`` has news for somebody."""

    async def site_welcome(self, site: str) -> None:
        """A site is welcome: renew what it needs renewed."""

    def tells(self, site: str) -> SiteTrust:
        """All that a connected site must know, of itself and of those behind it; empty without a fleet."""

    async def told(self, site: str, told: Told) -> None:
        """A site told its group key or its revocations, or asks for one behind it. Raises ``Refused``."""

    def speaks_for(self, link: str, site: str) -> bool:
        """Whether this site is the one at the end of the link, or known to be behind it."""
