"""What this station asks its sites about jobs, since the spool may have brought it less than all of them.

It remembers, for each connection of a site, which jobs it could make nothing of and has asked for.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from device_agent.protocol import limits

REMEMBERED = 2 * limits.OPEN_JOBS

Value = TypeVar("Value")


class Ask(Protocol):
    """Asks a site that is connected."""

    async def __call__(self, jid: str, site: str, *, anew: bool) -> None:
        """What became of this job, ``anew`` from its beginning."""


class Asking:
    """Which jobs were asked for, and what came of it."""

    def __init__(self) -> None:
        self._ask: Ask | None = None
        self._wanted: dict[tuple[str, str], bool] = {}
        """By site and jid: whether the answer is still to come."""
        self._others: dict[tuple[str, str], None] = {}

    def through(self, ask: Ask) -> None:
        """Ask by this way."""
        self._ask = ask

    def site_up(self, site: str) -> None:
        """A new connection: what was asked on the one before may never have arrived."""
        for key in [key for key in self._wanted if key[0] == site]:
            del self._wanted[key]

    def may_ask(self, site: str, jid: str) -> bool:
        """Whether a story may still tell what is missing of a job: there is a way to ask, and the site can answer."""
        return self._ask is not None and self._wanted.get((site, jid), True)

    async def ask(self, site: str, jid: str, *, anew: bool) -> None:
        """Ask a site what became of a job."""
        if self._ask is not None:
            await self._ask(jid, site, anew=anew)

    async def ask_once(self, site: str, jid: str) -> None:
        """Ask for a whole job, unless its story is under way."""
        if (site, jid) not in self._wanted:
            _remember(self._wanted, (site, jid), True)
            await self.ask(site, jid, anew=True)

    def told(self, site: str, jid: str) -> None:
        """A story came: should something be missing again, it is asked for again."""
        self._wanted.pop((site, jid), None)

    def not_known(self, site: str, jid: str) -> bool:
        """The site does not know the job; whether it had been asked for as one of which nothing is known here."""
        asked = (site, jid) in self._wanted
        if asked:
            self._wanted[site, jid] = False
        return asked

    def is_other(self, site: str, jid: str) -> bool:
        """Whether the site is known to have another job under this jid."""
        return (site, jid) in self._others

    def other(self, site: str, jid: str) -> None:
        """The site has another job under this jid: nothing that it says of it is about ours."""
        _remember(self._others, (site, jid), None)


def _remember(kept: dict[tuple[str, str], Value], key: tuple[str, str], value: Value) -> None:
    kept[key] = value
    if len(kept) > REMEMBERED:
        del kept[next(iter(kept))]
