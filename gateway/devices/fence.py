"""Which of two gateways with copies of one store is a site's: a master's side of the fence (``upstream.twins``)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from device_agent.clock import Clock
from device_agent.errors import NotFound
from device_agent.parts import Part
from device_agent.protocol import tags
from gateway.bus import Bus
from gateway.devices.sites import SiteBook
from gateway.store.reader import Reader
from gateway.store.writer import Writer
from upstream.frames import SiteHello
from upstream.ports import Entry
from upstream.twin_frames import STOPPED_SECONDS

log = logging.getLogger(__name__)

HEARD = 64
"""Marks by which a hello is known that was overtaken by a later one; far more than can be under way."""

CERTAIN = 3
"""So many knocks are a copy's, or several copies', whatever they say."""

SAID_AGAIN_SECONDS = 3600.0
"""A copy knocks again and again; the event is fired this often."""

_KEEP = (
    "INSERT INTO site_marks (site, mark, epoch, renew, twin, address, seen, count) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (site) DO UPDATE SET mark=excluded.mark, epoch=excluded.epoch, renew=excluded.renew,"
    " twin=excluded.twin, address=excluded.address, seen=excluded.seen, count=excluded.count"
)


@dataclass
class _Known:
    """What is known of one site's gateway, and of another that came with a copy of its store."""

    mark: bytes
    epoch: str
    renew: str = ""
    twin: bytes = b""
    address: str = ""
    seen: float = 0.0
    count: int = 0


async def _nobody(site: str) -> None:
    """Until somebody asks to be told."""


class SiteFence(Part):
    """The newest mark of each site. Implements ``upstream.ports.Fence``."""

    name: ClassVar[str] = "fence"
    drain_seconds: ClassVar[float] = 0.5

    def __init__(self, *, writer: Writer, reader: Reader, bus: Bus, clock: Clock, site_book: SiteBook) -> None:
        site_book.ask_twins(self.view)
        self._writer = writer
        self._reader = reader
        self._bus = bus
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._said: dict[str, float] = {}
        self._heard: dict[str, list[bytes]] = {}
        """By site, marks of hellos that were let in. Not on disk: no connection is older than this program."""
        self._on_unfenced: Callable[[str], Awaitable[None]] = _nobody

    async def open(self) -> None:
        """Load what is known."""
        for site, *row in await self._reader.rows(
            "SELECT site, mark, epoch, renew, twin, address, seen, count FROM site_marks"
        ):
            self._known[site] = _Known(*row)

    def on_unfenced(self, call: Callable[[str], Awaitable[None]]) -> None:
        """Call with a site's name when another gateway is let in for it."""
        self._on_unfenced = call

    async def judge(self, site: str, hello: SiteHello, address: str) -> Entry:
        """Whether this is the gateway that was welcome last. Raises ``StoreFailed``."""
        if not hello.marks:
            # A release from before there were marks.
            return Entry()
        known, heard = self._known.get(site), self._heard.setdefault(site, [])
        if known is not None and hello.marks[-1] != known.mark and hello.marks[-1] in heard:
            # A copy would say a mark of its own. This one was held up on a line that was cut, or by a busy master.
            return Entry(late=True)
        begun_anew = known is not None and hello.fresh and hello.epoch != known.epoch
        if known is not None and known.mark not in hello.marks and not begun_anew:
            await self._refuse(site, known, hello, address)
            return Entry(
                refused="another gateway runs with a copy of this store and was connected since: stop one of the two;"
                f" to go on with this one, on the master: outstation sites unfence {site}",
                mark=known.mark,
            )
        renew = known.renew if known is not None and known.renew == hello.epoch else ""
        fresh = _Known(hello.marks[-1], hello.epoch, renew)
        if known is not None and known.twin not in (b"", *hello.marks) and not begun_anew and not renew:
            # Until it is mended, what was seen of the other stays to be seen. One that says the mark of the other is no
            # other: this master was restored from a backup, and has turned it away once.
            fresh.twin, fresh.address, fresh.seen, fresh.count = known.twin, known.address, known.seen, known.count
        await self._keep(site, fresh)
        self._heard[site] = [*(mark for mark in heard if mark not in hello.marks), *hello.marks][-HEARD:]
        return Entry(renew=bool(renew))

    async def unfence(self, site: str) -> None:
        """Let in the other gateway, and fence the one that was. Raises ``NotFound`` when there is none."""
        known = self._known.get(site)
        if known is None or not known.twin:
            raise NotFound(
                f"no gateway of site {site!r} is fenced",
                error_id="site.not_fenced",
                found=", ".join(site for site, known in self._known.items() if known.twin) or "no fenced site",
                hint="outstation sites list",
            )
        # Both number what they send under this name, so who goes on takes another.
        await self._keep(site, _Known(known.twin, known.epoch, renew=known.epoch))
        self._said.pop(site, None)
        self._heard.pop(site, None)
        await self._on_unfenced(site)

    def view(self, site: str) -> dict[str, Any]:
        """What is known of a second gateway of a site; empty for none, and for one that was stopped."""
        known = self._known.get(site)
        if known is None or not known.twin or self._clock.wall() - known.seen > STOPPED_SECONDS:
            return {}
        return {"address": known.address, "seen": known.seen, "count": known.count}

    async def _refuse(self, site: str, known: _Known, hello: SiteHello, address: str) -> None:
        # By itself it comes again. Who was let in before this master was restored from a backup says so then.
        again = known.twin in hello.marks or known.count >= CERTAIN
        known.twin, known.address, known.seen = hello.marks[-1], address, self._clock.wall()
        known.count += 1
        await self._keep(site, known)
        now = self._clock.monotonic()
        if again and now - self._said.get(site, -SAID_AGAIN_SECONDS) >= SAID_AGAIN_SECONDS:
            self._said[site] = now
            log.error("two gateways run with copies of one store site=%s fenced=%s", site, address)
            await self._bus.fire(
                [self._bus.event(tags.site_twin(site), {"site": site, "address": address, "count": known.count})]
            )

    async def _keep(self, site: str, known: _Known) -> None:
        row = (known.mark, known.epoch, known.renew, known.twin, known.address, known.seen, known.count)
        await self._writer.commit([(_KEEP, [(site, *row)])])
        self._known[site] = known
