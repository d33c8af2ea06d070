"""Events whose reactions another gateway may have made: none of them is reacted to."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.reactor.book import ReactionBook
from gateway.reactor.seen import Seen


async def drop_doubted(book: ReactionBook, seen: Seen, waiting: Sequence[int], why: str) -> None:
    """Drop the events that wait, and look on from now. Raises ``StationFailed``."""
    for number in waiting:
        await book.dropped(number, why)
    seen.numbers.update(await seen.newest())
    await book.place(seen)
