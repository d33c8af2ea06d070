"""The sites below this station: how far each is confirmed, and whether it is heard. Implements ``SiteWatch``."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from device_agent.clock import Clock, iso
from device_agent.parts import Part
from device_agent.protocol import tags
from device_agent.protocol.stations import devices_alone
from gateway.bus import Bus
from gateway.devices.registry import Registry
from gateway.devices.site_keys import SiteKeys
from gateway.store.reader import Reader
from gateway.store.writer import Statement, StoreFailed, Writer
from upstream.fault_frames import SiteFault
from upstream.frames import Stream

log = logging.getLogger(__name__)

_PUT_SITE = (
    "INSERT INTO sites (site, epoch, revision) VALUES (?, ?, ?)"
    " ON CONFLICT (site) DO UPDATE SET epoch=excluded.epoch, revision=excluded.revision"
)
_PUT_POSITION = (
    "INSERT INTO site_positions (site, stream, epoch, sequence) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (site, stream) DO UPDATE SET epoch=excluded.epoch, sequence=excluded.sequence"
)


@dataclass
class Site:
    """A site below. Times are wall seconds, ``dark_since`` and ``here_since`` monotonic.

    ``positions`` are of ``epoch`` alone; ``unheard``: it was not here since this station started. ``faults`` are what
    it says that keeps it from taking jobs, ``last_fault`` the last of them and ``fault_ended`` when that was over.
    """

    name: str
    epoch: str
    revision: int
    release: str
    address: str
    since: float
    last_seen: float
    connected: bool = False
    active: bool = False
    dark_since: float = 0.0
    positions: dict[Stream, int] = field(default_factory=dict)
    here_since: float = 0.0
    unheard: bool = True
    faults: tuple[SiteFault, ...] = ()
    last_fault: SiteFault | None = None
    fault_ended: float = 0.0

    def now_has(self, faults: tuple[SiteFault, ...], wall: float) -> None:
        """It says this of itself from now on."""
        if self.faults and not faults:
            self.last_fault, self.fault_ended = self.faults[0], wall
        self.faults = faults

    def fault_since(self, wall: float) -> str:
        """What has kept it from taking jobs at any time since then, in words; empty for nothing."""
        fault = self.faults[0] if self.faults else self.last_fault if self.fault_ended >= wall else None
        return fault_words(fault) if fault is not None else ""


def fault_words(fault: SiteFault) -> str:
    """What keeps a site from taking jobs, in words; it may have a reason that this release does not know."""
    since = iso(fault.since)
    match fault.reason:
        case "store_failed":
            return f"store_failed: its store cannot be written since {since}: {fault.detail}"
        case "spool_full" | "busy":
            return f"{fault.reason}: {fault.detail}, since {since}"
        case _:
            return f"{fault.reason[:64]}: {fault.detail or 'it says no more'}, since {since}"


async def _nobody(site: str) -> None:
    """Until somebody asks to be told."""


def _nothing(_: str) -> dict[str, Any]:
    """Until somebody knows."""
    return {}


class SiteBook(Part):
    """What is known of each site."""

    name: ClassVar[str] = "site-book"

    def __init__(
        self, *, writer: Writer, reader: Reader, bus: Bus, registry: Registry, site_keys: SiteKeys, clock: Clock
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._bus = bus
        self._registry = registry
        self._enrollment = site_keys
        self._clock = clock
        self._sites: dict[str, Site] = {}
        self._on_up: Callable[[str], Awaitable[None]] = _nobody
        self._on_standby: Callable[[str], Coroutine[Any, Any, None]] = _nobody
        self._on_mended: Callable[[str], Coroutine[Any, Any, None]] = _nobody
        self._twin_of: Callable[[str], dict[str, Any]] = _nothing

    async def open(self) -> None:
        """Load the sites; all are dark until heard."""
        now = self._clock.monotonic()
        for row in await self._reader.rows(
            "SELECT site, epoch, revision, release, address, since, last_seen FROM sites"
        ):
            entry = Site(*row)
            entry.dark_since = now
            self._sites[entry.name] = entry
        for site, stream, sequence in await self._reader.rows(
            "SELECT site, stream, sequence FROM site_positions JOIN sites USING (site, epoch)"
        ):
            self._sites[site].positions[stream] = sequence

    def on_up(
        self,
        call: Callable[[str], Awaitable[None]],
        standby: Callable[[str], Coroutine[Any, Any, None]] = _nobody,
        mended: Callable[[str], Coroutine[Any, Any, None]] = _nobody,
    ) -> None:
        """Call with a site's name whenever it is welcome.

        ``standby`` when its spool goes elsewhere from then on, ``mended`` when it takes jobs again.
        """
        self._on_up = call
        self._on_standby = standby
        self._on_mended = mended

    def ask_twins(self, call: Callable[[str], dict[str, Any]]) -> None:
        """Ask for what is known of a second gateway of a site."""
        self._twin_of = call

    def get(self, site: str) -> Site:
        """What is known of a site; a new one is dark and has sent nothing."""
        if site not in self._sites:
            self._sites[site] = Site(site, "", 0, "", "", 0.0, 0.0, dark_since=self._clock.monotonic())
        return self._sites[site]

    def position_statements(
        self, site: str, epoch: str, positions: Mapping[Stream, int], revision: int
    ) -> list[Statement]:
        """The statements that put a site's position on disk, to be committed with what it stands for."""
        return [
            (_PUT_SITE, [(site, epoch, revision)]),
            (_PUT_POSITION, [(site, stream, epoch, sequence) for stream, sequence in positions.items()]),
        ]

    def moved(self, site: str, epoch: str, positions: Mapping[Stream, int], revision: int) -> None:
        """A position is on disk."""
        entry = self.get(site)
        if entry.epoch != epoch:
            entry.epoch, entry.positions = epoch, {}
        entry.positions |= positions
        entry.revision = revision

    async def site_up(self, site: str, release: str, address: str) -> None:
        """A site is welcome and connected."""
        entry = self.get(site)
        now = self._clock.wall()
        entry.active = False
        entry.now_has((), self._clock.wall())
        entry.here_since, entry.unheard = self._clock.monotonic(), False
        entry.connected, entry.release, entry.address, entry.since, entry.last_seen = True, release, address, now, now
        log.info("site up site=%s address=%s", site, address)
        await self._write(entry)
        await self._bus.fire([self._bus.event(tags.site_change(site), {"site": site, "connected": True})])
        await self._on_up(site)

    def site_role(self, site: str, active: bool, faults: Sequence[SiteFault] = ()) -> None:
        """A site says whether this master gets its spool, or stands by, and what keeps it from taking jobs."""
        entry = self.get(site)
        self._keep_faults(entry, tuple(faults))
        if entry.connected and entry.active != active:
            entry.active = active
            log.info("site role site=%s role=%s", site, "active" if active else "standby")
            if not active:
                self.spawn(self._on_standby(site), f"standby/{site}")

    def _keep_faults(self, entry: Site, faults: tuple[SiteFault, ...]) -> None:
        if not entry.connected or faults == entry.faults:
            return
        entry.now_has(faults, self._clock.wall())
        if faults:
            log.warning("site takes no job site=%s reason=%s detail=%s", entry.name, faults[0].reason, faults[0].detail)
            return
        log.info("site takes jobs again site=%s", entry.name)
        self.spawn(self._on_mended(entry.name), f"mended/{entry.name}")

    def site_heard(self, site: str) -> None:
        """A site said anything."""
        self.get(site).last_seen = self._clock.wall()

    def site_down(self, site: str, why: str) -> None:
        """A site's link is gone."""
        entry = self.get(site)
        if entry.connected:
            entry.connected, entry.dark_since, entry.since = False, self._clock.monotonic(), self._clock.wall()
            self.spawn(self._down(entry, why), f"down/{site}")

    def views(self) -> list[dict[str, Any]]:
        """Every accepted site, as the API shows it."""
        return [self.view(site) for site in self._enrollment.accepted_sites()]

    def view(self, site: str) -> dict[str, Any]:
        """One site, as the API shows it."""
        entry = self.get(site)
        key = self._enrollment.of_site(site)
        devices = list(devices_alone(self._registry.below(site)))
        return {
            "site": site,
            "connected": entry.connected,
            "role": ("active" if entry.active else "standby") if entry.connected else "",
            "since": entry.since,
            "last_seen": entry.last_seen,
            "devices": len(devices),
            "present": sum(1 for device in devices if device.present) if entry.connected else 0,
            "version": entry.release,
            "fingerprint": key.view()["fingerprint"] if key else "",
            "address": entry.address,
            "twin": self._twin_of(site) or None,
            "confirmed": dict(entry.positions),
            "faults": [
                {"reason": each.reason, "since": each.since, "detail": each.detail, "words": fault_words(each)}
                for each in (entry.faults if entry.connected else ())
            ],
        }

    async def _down(self, entry: Site, why: str) -> None:
        await self._write(entry)
        await self._bus.fire(
            [self._bus.event(tags.site_change(entry.name), {"site": entry.name, "connected": False, "why": why})]
        )

    async def _write(self, entry: Site) -> None:
        row = (entry.release, entry.address, entry.since, entry.last_seen, entry.name)
        try:
            await self._writer.commit(
                [("UPDATE sites SET release=?, address=?, since=?, last_seen=? WHERE site=?", [row])]
            )
        except StoreFailed as error:
            log.error("site times not written error=%s", error.found)
