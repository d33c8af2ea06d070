"""The fence: two gateways that run from copies of one store are told apart by marks, and only one is let in.

A gateway puts a fresh mark on disk before each hello, and says in it the marks it has used since the master last gave
its welcome, that one first. A master keeps the newest mark of whom it welcomed: who does not say it is a copy. This is
against accidents and not against thieves, who have the gateway's key.

``said`` and ``heard`` are the gateway's side, and need whoever keeps the marks there (``ports.Marks``); ``judged`` is
the master's (``ports.Fence``).
"""

from __future__ import annotations

from msgspec.structs import replace

from device_agent.errors import OutstationError
from upstream import frames
from upstream.dealer import LinkLost
from upstream.peer import Peer
from upstream.ports import Fence, Marks, Outgoing
from upstream.twin_frames import Twin


async def said(marks: Marks | None, master: str, hello: frames.SiteHello) -> frames.SiteHello:
    """The hello with its marks, which are on disk. Raises ``LinkLost``."""
    if marks is None:
        return hello
    try:
        own, fresh = await marks.next(master)
    except OutstationError as error:
        raise LinkLost(f"the store cannot be written: {error.what}") from None
    return replace(hello, marks=own, fresh=fresh)


async def heard(
    marks: Marks | None, master: str, outgoing: Outgoing, answer: frames.SiteWelcome | frames.SiteRefused
) -> None:
    """What a master says of the marks. Raises ``LinkLost`` when this gateway has to begin under another name."""
    if marks is None:
        return
    try:
        match answer:
            case frames.SiteWelcome():
                await marks.welcomed(master, answer.master)
                if answer.renew:
                    await outgoing.renew_epoch()
                    raise LinkLost("an operator let this copy in: going on under a new epoch")
            case frames.SiteRefused(state="fenced"):
                await marks.fenced(master, answer.mark, answer.reason)
            case frames.SiteRefused():
                pass
    except OutstationError as error:
        raise LinkLost(f"the store cannot be written: {error.what}") from None


async def overheard(marks: Marks | None, master: str, frame: frames.FromMaster) -> None:
    """What a master says beside its answer: that another gateway came, or nothing of concern here."""
    if marks is not None and isinstance(frame, Twin):
        await marks.twin(master, frame.address)


async def judged(fence: Fence | None, peer: Peer) -> frames.SiteRefused | frames.HelloAgain | None:
    """A master's side: what a copy is told, or whoever says an old hello; None for the gateway that is let in."""
    if fence is None:
        return None
    entry = await fence.judge(peer.site, peer.hello, peer.address)
    if entry.late:
        return frames.HelloAgain()
    peer.renew = entry.renew
    return frames.SiteRefused("fenced", entry.refused, mark=entry.mark) if entry.refused else None
