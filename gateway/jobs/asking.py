"""What this station asks its sites about jobs, since the spool may have brought it less than all of them.

It remembers, for each connection of a site, which jobs it could make nothing of and has asked for. What is still to be
told is on disk as well, in the commit that leaves it to a story: that may be lost with the connection, or with this
program.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from device_agent.protocol import limits
from gateway.store.reader import Reader
from gateway.store.writer import Statement

REMEMBERED = 2 * limits.OPEN_JOBS
AT_ONCE = 64
"""Jobs still to be told that a site which is back is asked for; for one more whenever it has told one."""

UNTOLD = 4096
"""Of one site; what is beyond that is asked for by itself as long as the job is open here."""

_UNTOLD = (
    "INSERT OR IGNORE INTO untold (site, jid) SELECT ?1, ?2 WHERE (SELECT count(*) FROM untold WHERE site = ?1) < ?3"
)

Value = TypeVar("Value")


class Ask(Protocol):
    """Asks a site that is connected."""

    async def __call__(self, jid: str, site: str, *, anew: bool) -> None:
        """What became of this job, ``anew`` from its beginning."""


def untold(site: str, jids: Iterable[str]) -> Statement:
    """Of these jobs the site must still tell."""
    return (_UNTOLD, [(site, jid, UNTOLD) for jid in jids])


def whole(site: str, jids: Iterable[str]) -> Statement:
    """Of these it has told all there is."""
    return ("DELETE FROM untold WHERE site = ? AND jid = ?", [(site, jid) for jid in jids])


class Asking:
    """Which jobs were asked for, and what came of it."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._ask: Ask | None = None
        self._last: dict[str, int] = {}
        """By site, the row of the last job still to be told that it was asked for on this connection."""
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
        self._last.pop(site, None)

    async def ask_untold(self, site: str, most: int = AT_ONCE) -> None:
        """Ask for the next jobs of which a site must still tell."""
        for number, jid in await self._reader.rows(
            "SELECT number, jid FROM untold WHERE site = ? AND number > ? ORDER BY number LIMIT ?",
            (site, self._last.get(site, 0), most),
        ):
            self._last[site] = number
            await self.ask(site, jid, anew=True)

    async def is_untold(self, site: str, jid: str) -> bool:
        """Whether the site must still tell of this job."""
        return bool(await self._reader.rows("SELECT 1 FROM untold WHERE site = ? AND jid = ?", (site, jid)))

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
