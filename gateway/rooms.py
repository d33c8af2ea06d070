"""What every station has, whatever its links: the rooms, each given what it needs of the ones before it.

Wiring only, no behaviour; ``station`` decides which links there are and opens everything in order.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from device_agent.clock import Clock
from device_agent.parts import Part
from device_agent.protocol.links import Downlink
from gateway.api.devices import DevicesApi
from gateway.api.events import EventsApi
from gateway.api.jobs import JobsApi
from gateway.api.operation import Operation
from gateway.api.sites import SitesApi
from gateway.api.station import StationApi
from gateway.bus import Bus
from gateway.checks import broker, disk, keys, refusals, uplink
from gateway.config import StationSettings
from gateway.devices.registry import Registry
from gateway.devices.site_keys import SiteKeys
from gateway.devices.sites import SiteBook
from gateway.facts import StationFacts
from gateway.jobs.accept import Acceptance
from gateway.jobs.close import Closing
from gateway.jobs.collect import Collection
from gateway.jobs.deliver import Delivery
from gateway.jobs.intake import Intake
from gateway.jobs.open_jobs import OpenJobs
from gateway.jobs.retention import Retention
from gateway.jobs.views import JobViews
from gateway.metrics import Metrics
from gateway.spool.inbox import Inbox
from gateway.spool.queue import Spool
from gateway.store.migrate import migrate
from gateway.store.reader import Reader
from gateway.store.writer import Writer
from upstream.curve import load_or_make

CHECKS = [disk.check, broker.check, uplink.check, keys.check, refusals.check]


class Rooms:
    """What every station has, whatever its links: built here, in the order in which each needs the ones before it."""

    def __init__(self, role: str, settings: StationSettings, state_dir: Path, clock: Clock) -> None:
        name, path = settings.name, state_dir / "station.sqlite"
        self.keys = load_or_make(state_dir / "curve.key")
        epoch = migrate(path)
        writer = self.writer = Writer(path)
        reader = self.reader = Reader(path)
        metrics = self.metrics = Metrics(clock)
        spool = self.spool = Spool(writer, reader, epoch, enabled=bool(settings.masters))
        bus = self.bus = Bus(writer, reader, spool, metrics, clock, name)
        self.downlinks: dict[str, Downlink] = {}
        self.open_jobs = OpenJobs()
        self.registry = Registry(site=name, writer=writer, reader=reader, bus=bus, metrics=metrics, clock=clock)
        self.site_keys = SiteKeys(station=name, writer=writer, reader=reader, bus=bus, metrics=metrics, clock=clock)
        self.site_book = SiteBook(
            writer=writer, reader=reader, bus=bus, registry=self.registry, site_keys=self.site_keys, clock=clock
        )
        self.closing = Closing(
            site=name,
            open_jobs=self.open_jobs,
            writer=writer,
            reader=reader,
            spool=spool,
            bus=bus,
            metrics=metrics,
            clock=clock,
        )
        self.collection = Collection(
            site=name,
            open_jobs=self.open_jobs,
            registry=self.registry,
            downlink_of=self.downlinks.get,
            writer=writer,
            reader=reader,
            spool=spool,
            bus=bus,
            closing=self.closing,
            metrics=metrics,
            clock=clock,
        )
        self.delivery = Delivery(
            open_jobs=self.open_jobs,
            registry=self.registry,
            site_book=self.site_book,
            downlink_of=self.downlinks.get,
            collection=self.collection,
            closing=self.closing,
            spool=spool,
            writer=writer,
            clock=clock,
        )
        self.acceptance = Acceptance(
            site=name,
            open_jobs=self.open_jobs,
            registry=self.registry,
            sites_below=self.site_keys.accepted_sites,
            spool=spool,
            writer=writer,
            reader=reader,
            bus=bus,
            closing=self.closing,
            metrics=metrics,
            clock=clock,
            kick=self.delivery.kick,
        )
        self.inbox = Inbox(
            open_jobs=self.open_jobs,
            registry=self.registry,
            site_book=self.site_book,
            closing=self.closing,
            spool=spool,
            writer=writer,
            reader=reader,
            bus=bus,
            metrics=metrics,
            clock=clock,
            on_new_store=self.delivery.site_forgot,
        )
        self.facts = StationFacts(
            role=role,
            name=name,
            state_dir=str(state_dir),
            keys=self.keys,
            started=clock.wall(),
            registry=self.registry,
            site_keys=self.site_keys,
            site_book=self.site_book,
            open_jobs=self.open_jobs,
            spool=spool,
            metrics=metrics,
        )
        self.retention = Retention(writer=writer, keep_seconds=settings.jobs.keep_hours * 3600.0, clock=clock)
        self.views = JobViews(open_jobs=self.open_jobs, reader=reader, site_book=self.site_book, clock=clock)
        self.intake = Intake(self.acceptance, self.delivery, clock)
        self.registry.on_move(self.delivery.moved)
        self.registry.ask_accepted(lambda site: self.site_keys.of_site(site) is not None)
        self.site_book.on_up(self.delivery.site_up)

    def parts_before_recovery(self) -> list[Part]:
        """What must know its own past before jobs are taken up again."""
        return [self.writer, self.reader, self.registry, self.site_keys, self.site_book]

    def parts_after_recovery(self) -> list[Part]:
        """What works on jobs."""
        return [self.collection, self.delivery, self.intake, self.retention]

    def operations(self, stopping: asyncio.Event) -> list[Operation]:
        """The whole API, noun by noun."""
        jobs = JobsApi(
            acceptance=self.acceptance,
            delivery=self.delivery,
            views=self.views,
            open_jobs=self.open_jobs,
            stopping=stopping,
        )
        return [
            *StationApi(self.facts, CHECKS).operations(),
            *jobs.operations(),
            *DevicesApi(registry=self.registry, site_book=self.site_book).operations(),
            *SitesApi(site_book=self.site_book, site_keys=self.site_keys, keys=self.keys).operations(),
            *EventsApi(bus=self.bus, stopping=stopping).operations(),
        ]
