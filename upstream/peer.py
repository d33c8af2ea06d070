"""One connection of a site, as the master's end of the rope keeps it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from device_agent.protocol import limits
from device_agent.protocol.questions import Answer, Question
from upstream import frames
from upstream.curve import fingerprint
from upstream.ports import Inbox, KeyState
from upstream.story_frames import Story, StoryTaken, UnknownJob

QUEUED_FRAMES = limits.BATCHES_IN_FLIGHT * 4
"""Frames of one site that wait for a commit."""


Work = frames.Batch | frames.LedgerReport | frames.DeviceRecords | frames.SiteTells | Story | UnknownJob
"""What is put on disk, one after another."""


@dataclass
class Peer:
    """One connection of a site, from its hello on."""

    identity: bytes
    key: str
    address: str
    hello: frames.SiteHello
    accepted: bool
    heard: float
    descriptor: int
    """Of its connection, in this process."""
    work: asyncio.Queue[Work | None] = field(default_factory=lambda: asyncio.Queue(maxsize=QUEUED_FRAMES))
    positions: Counter[frames.Stream] = field(default_factory=Counter)
    """The last sequence of each stream that is on disk here."""
    chain: dict[frames.Stream, int] = field(default_factory=dict)
    """The last sequence of each stream that came on this connection."""
    welcome: bool = False
    renew: bool = False
    """Whether its welcome asks it to take a new epoch."""
    active: bool = False
    """Whether it says that this master gets its spool."""
    told: frames.SiteTrust = field(default_factory=frames.SiteTrust)
    """What it was told of whom to believe, since it is welcome."""

    @property
    def site(self) -> str:
        """The site it says it is."""
        return self.hello.site

    @property
    def epoch(self) -> str:
        """Names its store."""
        return self.hello.epoch

    async def greeting(
        self, station: str, positions: dict[frames.Stream, int], revision: int, inbox: Inbox
    ) -> frames.SiteWelcome:
        """Where its spool and registry go on, and whether it is to sign what it says."""
        unproven = inbox.passes_on and await inbox.rows_unproven(self.site)
        return frames.SiteWelcome(station, positions, revision, self.renew, inbox.passes_on, unproven)


async def nobody_seals(site: str, jid: str, reason: str) -> None:
    """Until somebody seals."""


class NobodyAnswers:
    """Where sites ask and no room answers."""

    def offer(self, asker: str, question: Question, reply: Callable[[Answer], Awaitable[None]]) -> None:
        """Leave it unanswered: the site gives up by itself."""


def who_gives_way(peers: Iterable[Peer]) -> Peer | None:
    """Of the connections that wait to be accepted the one heard least lately, when there are too many of them."""
    waiting = [peer for peer in peers if not peer.accepted]
    return min(waiting, key=lambda peer: peer.heard) if len(waiting) >= limits.PENDING_KEYS else None


async def keep_story(inbox: Inbox, site: str, frame: Story | UnknownJob) -> StoryTaken:
    """Put on disk what a site tells of a job; what it is then told. Raises what the inbox raises."""
    if isinstance(frame, Story):
        await inbox.commit_story(site, frame.items)
    else:
        await inbox.unknown_job(site, frame.jid)
    return StoryTaken(frame.jid)


def unsupported(hello: frames.SiteHello) -> frames.SiteRefused:
    """What a site is told that speaks another protocol."""
    return frames.SiteRefused(
        "unsupported", f"this master speaks protocol {frames.PROTOCOL}, the site {hello.protocol}"
    )


def refusal_words(state: KeyState, peer: Peer, station: str, *, revoked: bool) -> str:
    """What a site is told whose key is not accepted."""
    match state:
        case "pending":
            print_of = fingerprint(peer.key)
            return f"accept it on {station}: outstation keys accept {peer.site} (fingerprint {print_of})"
        case "rejected":
            return f"the key was {'revoked' if revoked else 'rejected'} on {station}"
        case _:
            return (
                f"{station} has accepted another key or another identity for site {peer.site},"
                " or reaches it through a relay"
            )
