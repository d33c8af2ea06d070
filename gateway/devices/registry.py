"""The registry: every device this station knows, its own and those of the sites below, in memory and on disk.

A device is ``present``, absent, or unheard: known to have been here before this station (or its link) was away, and
still expected back for RETURN_WINDOW_SECONDS. Places in bitmaps are given once and on disk before a device learns its
own. Implements ``Presence`` for the downlinks and ``Roll`` for the uplink.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from typing import ClassVar

from device_agent.clock import Clock
from device_agent.errors import Refused
from device_agent.parts import Part
from device_agent.protocol import limits
from device_agent.protocol.messages import Beat, Event, Gone, Grains, Hello, decode_stored
from device_agent.protocol.stations import devices_alone
from gateway.bus import Bus
from gateway.devices.device import PATIENCE_SECONDS, PUT_DEVICE, Device
from gateway.devices.device_records import RECORDS_AFTER, away, page_of, told_by
from gateway.devices.pillar_targets import Know, still_known, unknown
from gateway.devices.presence_events import News, presence_events
from gateway.metrics import Metrics
from gateway.store.reader import Reader
from gateway.store.writer import Statement, StoreFailed, Writer
from upstream.frames import DeviceRecord

log = logging.getLogger(__name__)

FLUSH_SECONDS = 0.1
SWEEP_SECONDS = 1.0
SEEN_EVERY_SECONDS = 60.0
REVOKED = "revoked"
"""The state of a row that is kept only so that the masters hear of it."""


class Registry(Part):
    """All devices by (site, id), with the loops that write changes and notice silence."""

    name: ClassVar[str] = "registry"

    def __init__(self, *, site: str, writer: Writer, reader: Reader, bus: Bus, metrics: Metrics, clock: Clock) -> None:
        self._site = site
        self._writer = writer
        self._reader = reader
        self._bus = bus
        self._metrics = metrics
        self._clock = clock
        self._own: dict[str, Device] = {}
        self._below: dict[tuple[str, str], Device] = {}
        self._links: dict[str, str] = {}
        self._next_place = self._revision = 0
        self._dirty: dict[tuple[str, str], Device] = {}
        self._dirtied = asyncio.Event()
        self._changed = asyncio.Event()
        self._flushing = asyncio.Lock()
        self._news = News()
        self._expected_back_until, self._held = 0.0, False
        self._on_move: Callable[[str], None] = _nobody
        self._is_accepted: Callable[[str], bool] = _is_nobody
        self.know: Know = unknown
        self.events_of: Callable[[Bus, News], list[Event]] = presence_events

    async def open(self) -> None:
        """Load every known device; those that were here when the station stopped are expected back."""
        rows = await self._reader.rows(
            "SELECT site, id, link, place, agent, grains, present, first_seen, last_seen, revision,"
            " certificate, state, accepted_by, accepted_at FROM devices"
        )
        now = self._clock.monotonic()
        for site, device_id, link, place, agent, grains, present, first_seen, last_seen, revision, *enrolled in rows:
            device = Device(
                site,
                device_id,
                link,
                place,
                agent,
                decode_stored(grains),
                bool(present),
                first_seen,
                last_seen,
                revision,
                *enrolled,
            )
            self._revision = max(self._revision, revision)
            if site == self._site and device.state == REVOKED:
                self._next_place = max(self._next_place, (place if place is not None else -1) + 1)
            elif site == self._site:
                device.unheard, device.present, device.gone = device.present, False, now
                self._own[device_id] = device
                self._next_place = max(self._next_place, (place if place is not None else -1) + 1)
            else:
                self._below[site, device_id] = device
                self._links.setdefault(site, link)
        self._expected_back_until = now + limits.RETURN_WINDOW_SECONDS
        self.spawn(self._write_changes(), "write")
        self.spawn(self._sweep(), "sweep")

    async def drain(self) -> None:
        """Write what changed."""
        await self.flush()

    def ask_accepted(self, question: Callable[[str], bool]) -> None:
        """Ask this whether a name is that of an accepted site, which no other link may speak for."""
        self._is_accepted = question

    def on_move(self, call: Callable[[str], None]) -> None:
        """Call with a device's id whenever it came or went."""
        self._on_move = call

    # --- told by the enrollment ------------------------------------------------------------------------------------

    def place_for(self, device: str) -> int:
        """The place of a device, or one that was never given to anybody."""
        known = self._own.get(device)
        if known is not None and known.place is not None:
            return known.place
        self._next_place += 1
        return self._next_place - 1

    def keep_place(self, place: int) -> None:
        """This place was given once: nobody gets it any more."""
        self._next_place = max(self._next_place, place + 1)

    def admit(
        self,
        device: str,
        place: int,
        *,
        link: str,
        state: str,
        certificate: bytes,
        accepted_by: str,
        accepted_at: float,
        seen: float,
    ) -> None:
        """A device belongs here, seen by us or not: known at its place, and absent until it says hello."""
        known = self._own.get(device)
        if known is None:
            known = Device(self._site, device, link, place, "", {}, False, seen, seen, 0)
            self._own[device] = known
        enrolled = (place, certificate, state, accepted_by, accepted_at)
        if (known.place, known.certificate, known.state, known.accepted_by, known.accepted_at) != enrolled:
            known.place, known.certificate, known.state, known.accepted_by, known.accepted_at = enrolled
            self._mark(known)
        self.keep_place(place)

    def forget(self, device: str) -> None:
        """A device belongs here no more. Its row stays as that of a revoked one, for the masters to hear of."""
        known = self._own.pop(device, None)
        if known is None:
            return
        if known.present or known.unheard:
            self._news.went.append(device)
        known.present, known.unheard, known.state = False, False, REVOKED
        self._mark(known)
        self._on_move(device)

    # --- Presence: told by the downlinks ---------------------------------------------------------------------------

    def hello(self, link: str, device: str, hello: Hello) -> int:
        """A device said hello; returns its place. It may be told only after ``flush``. Raises ``Refused``."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        known = self._own.get(device)
        if known is None:
            if len(self._own) >= limits.DEVICES_PER_STATION:
                raise Refused("registry_full", f"{limits.DEVICES_PER_STATION} devices are known here")
            known = Device(self._site, device, link, self._next_place, hello.agent, hello.grains, False, wall, wall, 0)
            self._next_place += 1
            self._own[device] = known
        elif known.place is None:
            known.place, self._next_place = self._next_place, self._next_place + 1
        if known.session != hello.session or not known.present:
            self._news.started.append(known)
            if not known.unheard:
                self._news.came.append(device)
        before = known.grains
        known.link, known.agent, known.grains = link, hello.agent, still_known(before, hello.grains)
        self._news.reports(known, before)
        known.present, known.unheard, known.heard, known.last_seen = True, False, now, wall
        known.session, known.away, known.patience = hello.session, "", PATIENCE_SECONDS
        self._mark(known)
        assert known.place is not None
        return known.place

    def stand(self, link: str, device: str, agent: str, grains: Grains, *, changes: bool = True) -> None:
        """The station itself is here while it runs; it has no place. ``changes``: fire the event for changed grains."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        known = self._own.setdefault(device, Device(self._site, device, link, None, agent, {}, False, wall, wall, 0))
        before = known.grains
        known.link, known.agent, known.grains, known.state = link, agent, still_known(before, grains), "accepted"
        self._news.reports(known, before if changes else {})
        known.present, known.unheard, known.heard, known.last_seen, known.patience = True, False, now, wall, math.inf
        self._mark(known)
        self._on_move(device)

    def welcomed(self, device: str) -> None:
        """The device has been told its place: what waits for it may go out."""
        self._on_move(device)

    def beat(self, device: str, beat: Beat) -> bool:
        """A device is alive; False when its session is not known here."""
        known = self._own.get(device)
        if known is None or known.session != beat.session:
            return False
        self.heard(device)
        known.refused = beat.refused
        if not known.present:
            known.present, known.unheard = True, False
            self._news.came.append(device)
            self._mark(known)
            self._on_move(device)
        return True

    def heard(self, device: str) -> None:
        """The device said anything at all."""
        known = self._own.get(device)
        if known is not None:
            known.heard, known.last_seen = self._clock.monotonic(), self._clock.wall()

    def gone(self, device: str, gone: Gone) -> None:
        """A connection ended; the last will of an earlier connection says nothing about the present one."""
        known = self._own.get(device)
        if known is not None and known.session == gone.session and not self._held:
            self._lost(known)

    def unheard(self, link: str) -> None:
        """The link was away: whoever was present on it is expected back."""
        now = self._clock.monotonic()
        for device in self._own.values():
            if device.link == link and device.present:
                device.present, device.unheard, device.gone = False, True, now
        self._expected_back_until = now + limits.RETURN_WINDOW_SECONDS

    # --- asked by jobs, the API and the uplink ---------------------------------------------------------------------

    @property
    def revision(self) -> int:
        """Rises with each change."""
        return self._revision

    @property
    def changed(self) -> asyncio.Event:
        """Set after rows were written."""
        return self._changed

    def hold(self) -> None:
        """The station stops, and its broker maybe with it: that connections end now says nothing of the devices."""
        self._held = True

    def own(self) -> Iterable[Device]:
        """This station's own devices."""
        return self._own.values()

    def present(self) -> int:
        """How many of this station's own devices are here."""
        return sum(1 for device in devices_alone(self._own.values()) if device.present)

    def own_device(self, device: str) -> Device | None:
        """One of this station's own devices."""
        return self._own.get(device)

    def known(self, site: str, device: str) -> Device | None:
        """One device of this station or of a site below."""
        return self._own.get(device) if site == self._site else self._below.get((site, device))

    def below(self, link: str) -> list[Device]:
        """The devices that a site below answers for, as last told; none that it has revoked."""
        return [device for device in self._below.values() if device.link == link and device.state != REVOKED]

    def everything(self) -> Iterable[Device]:
        """Every device that belongs here or below, own ones first."""
        yield from self._own.values()
        yield from (device for device in self._below.values() if device.state != REVOKED)

    def link_of(self, site: str) -> str | None:
        """The site below through which this (leaf) site is reached, if it is known."""
        return self._links.get(site)

    def bind(self, site: str, link: str) -> bool:
        """Tie a leaf site's name to the link that first brought it; False when the name belongs to somebody else."""
        if site == self._site or (site != link and self._is_accepted(site)):
            return False
        if site == link:
            self._links[site] = link
        elif site not in self._links and len(self._links) >= limits.LEAF_SITES:
            return False
        return self._links.setdefault(site, link) == link

    async def records_after(self, revision: int) -> list[DeviceRecord]:
        """Rows that changed after a revision, for the masters; one page."""
        rows = await self._reader.rows(RECORDS_AFTER, (revision, limits.REGISTRY_PAGE))
        return page_of(rows)

    async def keep_records(self, link: str, records: list[DeviceRecord], beside: list[Statement]) -> None:
        """Put what a site told of its devices on disk, together with ``beside``, and remember it."""
        taken = []
        known = sum(1 for device in self._below.values() if device.link == link)
        for record in records:
            if (record.site, record.id) not in self._below:
                known += 1
                if known > limits.DEVICES_PER_STATION:
                    self._metrics.refused("uplink", "registry_full", link, f"device {record.id} of {record.site}")
                    continue
            if not self.bind(record.site, link):
                self._metrics.refused("uplink", "foreign_site", link, f"device {record.id} of site {record.site}")
                continue
            self._revision += 1
            taken.append(told_by(link, record, self._below.get((record.site, record.id)), self._revision))
        await self._writer.commit([(PUT_DEVICE, [device.row() for device in taken]), *beside])
        for device in taken:
            self._below[device.site, device.id] = device
        self._changed.set()

    async def site_forgot(self, link: str) -> None:
        """A site has a new store: none of its devices is known to be here until it says so again."""
        await self.keep_records(link, [away(device) for device in self.below(link) if device.present], [])

    async def flush(self) -> None:
        """Put changed rows and the events about them on disk. Raises ``StoreFailed``; then they stay changed."""
        async with self._flushing:
            dirty, self._dirty = self._dirty, {}
            for device in dirty.values():
                self._revision += 1
                device.revision = self._revision
            try:
                await self._writer.commit([(PUT_DEVICE, [device.row() for device in dirty.values()])])
            except StoreFailed:
                self._dirty = {**dirty, **self._dirty}
                raise
            if dirty:
                self._changed.set()

    async def _write_changes(self) -> None:
        while True:
            await self._dirtied.wait()
            await asyncio.sleep(FLUSH_SECONDS)
            self._dirtied.clear()
            try:
                await self.flush()
            except StoreFailed as error:
                log.error("registry not written error=%s", error.found)
                self._dirtied.set()
                await asyncio.sleep(SWEEP_SECONDS)
                continue
            await self._bus.fire(self._take_events())

    def _take_events(self) -> list[Event]:
        news, self._news = self._news, News()
        return self.events_of(self._bus, news)

    async def _sweep(self) -> None:
        seen_at = self._clock.monotonic()
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = self._clock.monotonic()
            window_over = now > self._expected_back_until
            for device in self._own.values():
                if device.present and now - device.heard > device.patience:
                    self._lost(device)
                elif device.unheard and window_over:
                    device.unheard = False
                    self._news.went.append(device.id)
                    self._mark(device)
                    self._on_move(device.id)
            if now - seen_at > SEEN_EVERY_SECONDS:
                seen_at = now
                await self._write_seen()

    async def _write_seen(self) -> None:
        rows = [(device.last_seen, device.site, device.id) for device in self._own.values() if device.present]
        try:
            await self._writer.commit([("UPDATE devices SET last_seen = ? WHERE site = ? AND id = ?", rows)])
        except StoreFailed as error:
            log.error("last seen times not written error=%s", error.found)

    def _lost(self, device: Device) -> None:
        if device.present or device.unheard:
            device.present = device.unheard = False
            device.gone = self._clock.monotonic()
            self._news.went.append(device.id)
            self._mark(device)
            self._on_move(device.id)

    def _mark(self, device: Device) -> None:
        self._dirty[device.site, device.id] = device
        self._dirtied.set()


def _nobody(device: str) -> None:
    """Until somebody asks to be told."""


def _is_nobody(_: str) -> bool:
    """Until there is somebody to ask."""
    return False
