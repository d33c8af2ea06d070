"""A job told out of this station's own tables, a page at a time: memory does not grow with the number of outcomes.

What is told are the items that went into the spool when they happened, made again from the rows: definition, manifest,
outcomes in the order in which they came, and the close when there is one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from device_agent.protocol import limits
from device_agent.protocol.messages import (
    Close,
    JobDefinition,
    Manifest,
    decode_job,
    decode_stored,
    encode,
)
from device_agent.protocol.outcomes import PROVISIONAL
from gateway.jobs.expect import digest, pages
from gateway.jobs.open_jobs import OpenJobs
from gateway.jobs.record import COLUMNS, outcome_record
from gateway.jobs.seal import public
from gateway.store.reader import Reader

PAGE_BYTES = 64 * 1024
"""Of items in one frame: whatever the line is, an echo or an alarm does not wait long behind it."""

OUTCOME_BYTES = 512
"""Names and numbers around an outcome's value."""

_SIZES = (
    "SELECT id, coalesce(length(value), 0) + 4 * length(why) + coalesce(length(proven), 0) FROM outcomes"
    " WHERE jid = ? AND id > ? AND id <= ? ORDER BY id LIMIT ?"
)
_OUTCOMES = f"SELECT id, proven, {COLUMNS} FROM outcomes WHERE jid = ? AND id > ? AND id <= ? ORDER BY id"  # noqa: S608 - the names of this program


@dataclass(slots=True)
class Told:
    """How far one master has been told of one job."""

    defined: bool = False
    pages: set[tuple[str, int]] = field(default_factory=set)
    all_pages: bool = False
    outcome: int = 0
    """The row of the last outcome told."""
    provisional: int = 0
    """The row of the first outcome told that a site's own word may replace; 0 for none."""
    corrected: bool = False


@dataclass(slots=True)
class Page:
    """What to tell next. ``more``: there is more to tell now; ``final``: there will never be more."""

    items: list[bytes] = field(default_factory=list)
    size: int = 0
    more: bool = False
    final: bool = False

    def fits(self, size: int) -> bool:
        """Whether an item of this size may come in too; one alone always may."""
        if not self.items:
            return True
        return len(self.items) < limits.BATCH_ITEMS and self.size + size <= PAGE_BYTES

    def add(self, body: bytes) -> None:
        """One item more."""
        self.items.append(body)
        self.size += len(body)


class StoryPages:
    """Reads stories."""

    def __init__(self, *, site: str, open_jobs: OpenJobs, reader: Reader) -> None:
        self._site = site
        self._open_jobs = open_jobs
        self._reader = reader

    async def next(self, jid: str, told: Told) -> Page | None:
        """The next page, and ``told`` moved past it; None when the job is not known here."""
        rows = await self._reader.rows("SELECT body, closed IS NOT NULL, proven FROM jobs WHERE jid = ?", (jid,))
        if not rows:
            return None
        body, closed, proven = rows[0]
        # In this order: whose manifest page is not seen yet has no outcome below this row.
        last = (await self._reader.rows("SELECT max(id) FROM outcomes WHERE jid = ?", (jid,)))[0][0] or 0
        page = Page()
        if not told.defined:
            page.add(proven or encode(JobDefinition(encode(public(decode_job(body))), self._site)))
            told.defined = True
        if not told.all_pages:
            await self._tell_manifest(jid, told, page, closed=bool(closed))
        if not page.more:
            await self._tell_outcomes(jid, told, page, last)
        if closed and not page.more and told.provisional and not told.corrected:
            # Before its last word: what has been said of a dark site may have been replaced by the site's own.
            told.outcome, told.corrected = told.provisional - 1, True
            await self._tell_outcomes(jid, told, page, last)
        if closed and not page.more:
            await self._tell_close(jid, page)
        return page

    async def _tell_manifest(self, jid: str, told: Told, page: Page, *, closed: bool) -> None:
        opened = self._open_jobs.get(jid)
        complete = closed or (opened is not None and opened.manifest_final)
        keys = await self._reader.rows("SELECT link, page FROM manifests WHERE jid = ? ORDER BY link, page", (jid,))
        own_final = False
        for link, number in keys:
            if (link, number) in told.pages:
                continue
            ((site, ids, final, proven),) = await self._reader.rows(
                "SELECT site, ids, final, proven FROM manifests WHERE jid = ? AND link = ? AND page = ?",
                (jid, link, number),
            )
            if not page.fits(len(proven or ids)):
                page.more = True
                return
            names, last = decode_stored(ids), bool(final) and link == ""
            own_final = own_final or last
            page.add(
                proven
                or encode(
                    Manifest(
                        jid=jid,
                        site=site,
                        ids=names,
                        count=len(names),
                        digest=digest(names),
                        revision=0,
                        final=last,
                    )
                )
            )
            told.pages.add((link, number))
        if complete and not own_final:
            page.add(encode(pages(jid, self._site, [], 0, final=True)[0]))
        told.all_pages = complete or own_final

    async def _tell_outcomes(self, jid: str, told: Told, page: Page, last: int) -> None:
        upto = told.outcome
        room = limits.BATCH_ITEMS - len(page.items)
        # Sizes first: the values of a whole page of the largest would not fit in memory.
        sizes = await self._reader.rows(_SIZES, (jid, told.outcome, last, room + 1))
        planned = page.size
        for place, (row, size) in enumerate(sizes):
            planned += size + OUTCOME_BYTES
            if place >= room or (planned > PAGE_BYTES and (place or page.items)):
                page.more = True
                break
            upto = row
        for row, proven, *columns in (
            await self._reader.rows(_OUTCOMES, (jid, told.outcome, upto)) if upto > told.outcome else []
        ):
            record = outcome_record(columns)
            page.add(proven or encode(record))
            if record.outcome in PROVISIONAL and not told.provisional:
                told.provisional = row
        told.outcome = upto

    async def _tell_close(self, jid: str, page: Page) -> None:
        if len(page.items) >= limits.BATCH_ITEMS:
            page.more = True
            return
        rows = await self._reader.rows("SELECT outcome, count(*) FROM outcomes WHERE jid = ? GROUP BY outcome", (jid,))
        page.add(encode(Close(jid=jid, site=self._site, counts=dict(rows))))
        page.final = True
