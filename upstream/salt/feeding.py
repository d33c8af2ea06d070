"""Whoever has something to tell a Salt master is run, and run again when the master did not answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from device_agent.backoff import Backoff
from device_agent.errors import Refused
from device_agent.questions import Unanswered
from upstream.link_terms import FIRST_WAIT_SECONDS
from upstream.salt.above import Above
from upstream.salt.ends import LINK, Ends
from upstream.salt.ports import MasterFeed

log = logging.getLogger(__name__)

CEILING_SECONDS: Final = 30.0


async def run(
    life: asyncio.TaskGroup,
    ends: Ends,
    feed: MasterFeed,
    above: Above,
    address: str,
    doubt: Callable[[], None],
) -> None:
    """Run this feed until cancelled. An answer that did not come ends no link: who is told of the doubt decides.

    ``life`` is the group of the link's tasks.
    """
    waits = Backoff(FIRST_WAIT_SECONDS, CEILING_SECONDS, floor=FIRST_WAIT_SECONDS)
    while True:
        began = ends.clock.monotonic()
        # In a task of its own: a task group that is cancelled while something in it fails raises the failure alone,
        # and who caught it here would go on telling a master that the link has left.
        await asyncio.wait({life.create_task(_once(ends, feed, above, address, doubt), name="uplink/told")})
        if ends.clock.monotonic() - began > CEILING_SECONDS:
            waits.reset()
        await asyncio.sleep(waits.next())


async def _once(ends: Ends, feed: MasterFeed, above: Above, address: str, doubt: Callable[[], None]) -> None:
    try:
        await feed.run(above, address)
    except Refused as refusal:
        ends.refusals.refused(LINK, refusal.reason, address, refusal.detail)
    except Unanswered as error:
        log.info("not answered master=%s: %s", address, error)
        doubt()
