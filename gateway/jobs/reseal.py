"""New seals for a job: made here when it was issued here, else asked for from whoever issued it; not too often."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from device_agent.clock import Clock
from gateway.jobs.open_jobs import LOCAL, OpenJob

log = logging.getLogger(__name__)

RESEAL_SECONDS = 2.0
"""New seals of one job are made or asked for at most this often."""

RESEAL_CEILING_SECONDS = 60.0

AskSeal = Callable[[str, str, str, str], Awaitable[None]]
"""Asks for a site, a jid and a reason; the last is the key of the master that gave the job, empty when unknown."""


class Reseal:
    """Knows where new seals of a job come from."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ask_above: AskSeal = _nobody_above

    def ask_above(self, call: AskSeal) -> None:
        """Ask this for new seals of a job that came from above: the site, the jid, the reason and the master."""
        self._ask_above = call

    async def renew(self, opened: OpenJob, site: str, reason: str) -> bool:
        """Let go of the seals made here, so that new ones are made (True), or ask for others (False)."""
        now = self._clock.monotonic()
        again, tries = opened.sealing.get(site, (0.0, 0))
        if now < again:
            return False
        # Whoever issued it may be away for long: he is asked ever more rarely, and it is told once.
        wait = RESEAL_SECONDS * 2.0 ** min(tries, 8)
        opened.sealing[site] = now + min(RESEAL_CEILING_SECONDS, wait), tries + (opened.origin != LOCAL)
        log.log(
            logging.DEBUG if tries else logging.INFO,
            "job needs new seals jid=%s site=%s reason=%s",
            opened.job.jid,
            site,
            reason,
        )
        if opened.origin == LOCAL:
            for key in [key for key in opened.made if key[0] == site]:
                del opened.made[key]
            return True
        await self._ask_above(site, opened.job.jid, reason, opened.master)
        return False


async def _nobody_above(site: str, jid: str, reason: str, master: str) -> None:
    """A station without masters: nothing comes from above that could be sealed anew."""
