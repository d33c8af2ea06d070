"""What every station has, whatever its links: the rooms, each given what it needs of the ones before it.

Wiring only, no behaviour; ``station`` decides which links there are and opens everything in order.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Literal

from device_agent.clock import Clock
from device_agent.parts import Part
from device_agent.protocol.links import Downlink
from gateway.api.audit import AuditApi
from gateway.api.devices import ByName, DevicesApi, SshByName, SshLink
from gateway.api.door import Door
from gateway.api.events import EventsApi
from gateway.api.fire import FireApi
from gateway.api.fleet import FleetApi
from gateway.api.jobs import JobsApi
from gateway.api.operation import Operation
from gateway.api.operators import OperatorsApi
from gateway.api.sites import SitesApi
from gateway.api.spool import SpoolApi
from gateway.api.station import StationApi
from gateway.audit.book import AuditBook
from gateway.audit.policy_notes import PolicyNotes
from gateway.audit.refusal_rows import RefusalRows
from gateway.audit.views import AuditViews
from gateway.bus import Bus
from gateway.checks.box import box_of
from gateway.checks.check_events import CheckEvents
from gateway.config import StationSettings
from gateway.devices.api_tokens import ApiTokens
from gateway.devices.authority import Authority
from gateway.devices.enrolled import Enrolled
from gateway.devices.epochs import Epochs
from gateway.devices.fleet_revocation import FleetRevocation
from gateway.devices.keyring import Keyring
from gateway.devices.outboxes import Outboxes
from gateway.devices.policy_file import PolicyHolder
from gateway.devices.registry import Registry
from gateway.devices.site_keys import SiteKeys
from gateway.devices.site_trust import SiteTrust
from gateway.devices.sites import SiteBook
from gateway.devices.trust_links import trust_links
from gateway.facts import StationFacts
from gateway.jobs.accept import Acceptance
from gateway.jobs.asking import Asking
from gateway.jobs.branches import Branches
from gateway.jobs.close import Closing
from gateway.jobs.collect import Collection
from gateway.jobs.deliver import Delivery
from gateway.jobs.doubted import DoubtedJobs
from gateway.jobs.intake import Intake
from gateway.jobs.nodegroups import Nodegroups
from gateway.jobs.open_jobs import OpenJobs
from gateway.jobs.permission import Permission
from gateway.jobs.reseal import Reseal
from gateway.jobs.seal import IssuerSequence, Sealer
from gateway.jobs.stories import Stories
from gateway.jobs.story_pages import StoryPages
from gateway.jobs.views import JobViews
from gateway.metrics import Metrics
from gateway.spool.drill import Cutting, Drill
from gateway.spool.inbox import Inbox
from gateway.spool.queue import spool_of
from gateway.spool.received import SiteLedgers
from gateway.store.opening import open_store
from gateway.store.reader import Reader
from gateway.store.reserve import reserve_of
from gateway.store.watch import StoreWatch
from gateway.store.writer import Writer
from gateway.store_guards import guards_of
from upstream.curve import load_or_make
from upstream.uplink import MasterAddress, masters_above

Role = Literal["master", "gateway"]


class Rooms:
    """What every station has, whatever its links: built here, in the order in which each needs the ones before it."""

    cutting: Cutting | None = None
    """The uplink, once it is open."""

    ssh: SshByName | None = None
    """The SSH devices of this station, where it has any of its own."""

    ssh_link: SshLink | None = None
    """How they are reached."""

    def __init__(self, role: Role, settings: StationSettings, state_dir: Path, clock: Clock) -> None:
        name, path = settings.name, state_dir / "station.sqlite"
        self.keys = load_or_make(state_dir / "curve.key")
        reserve = self.reserve = reserve_of(state_dir)
        epoch = open_store(path, clock)
        writer = self.writer = Writer(path, reserve.release, clock)
        reader = self.reader = Reader(path)
        metrics = self.metrics = Metrics(clock)
        spool = self.spool = spool_of(settings.spool, writer, reader, epoch, clock)
        bus = self.bus = Bus(writer, reader, spool, metrics, clock, name, reserve.is_scarce)
        self.downlinks: dict[str, Downlink] = {}
        self.open_jobs, self.store_watch = OpenJobs(), StoreWatch(writer, clock)
        self.audit = AuditBook(site=name, writer=writer, spool=spool, clock=clock)
        self.policies = PolicyHolder(settings.policy)
        self.policy_notes = PolicyNotes(self.policies, self.audit)
        self.tokens = ApiTokens(writer=writer, reader=reader, clock=clock)
        self.door = Door(
            lambda: self.policies.policy, tokens=self.tokens, audit=self.audit, metrics=metrics, clock=clock, site=name
        )
        self.authority = Authority(state_dir, role=role, site=name, curve=self.keys, clock=clock)
        self.listed, self.salt_above = settings.masters, settings.upstream.salt
        self.enrolled: ByName = _nobody
        spool.enabled = self.salt_above or bool(self.masters())
        self.epochs = Epochs(site=name, authority=self.authority, writer=writer, reader=reader, metrics=metrics)
        self.registry = Registry(site=name, writer=writer, reader=reader, bus=bus, metrics=metrics, clock=clock)
        self.site_trust = SiteTrust(
            authority=self.authority, registry=self.registry, writer=writer, reader=reader, metrics=metrics, clock=clock
        )
        self.site_keys = SiteKeys(
            station=name,
            writer=writer,
            reader=reader,
            bus=bus,
            metrics=metrics,
            clock=clock,
            trust=self.site_trust,
        )
        self.time_beacons, self.standing = trust_links(
            state_dir, self.authority, self.site_trust, self.epochs, refusals=metrics, clock=clock
        )
        self.site_book = SiteBook(
            writer=writer, reader=reader, bus=bus, registry=self.registry, site_keys=self.site_keys, clock=clock
        )
        (
            self.fence,
            self.marks,
            self.doubt,
            self.aftermath,
            self.retention,
            self.upgrade_news,
        ) = guards_of(settings, path, writer, reader, bus, self.site_book, self.masters, clock)
        reserve.catch_up = bus.settle
        self.fleet_revocation = FleetRevocation(
            authority=self.authority,
            reject_site=lambda site: self.site_keys.reject(site, None),
            revoked_sites=self.site_trust.revoked_sites,
            devices=self.registry.everything,
            audit=self.audit,
        )
        self.site_trust.on_revocations(self.fleet_revocation.devices_revoked)
        self.authority.on_change(self.fleet_revocation.look)
        self.outboxes, self.sequence = Outboxes(reader=reader, metrics=metrics), IssuerSequence()
        self.sealer = Sealer(
            site=name,
            authority=self.authority,
            keyring=Keyring(
                site=name,
                authority=self.authority,
                registry=self.registry,
                own=self.epochs,
                below=self.site_trust,
            ),
            sequence=self.sequence,
        )
        self.reseal, self.nodegroups = Reseal(clock), Nodegroups(settings.nodegroups)
        self.permission = Permission(
            site=name,
            policy=lambda: self.policies.policy,
            audit=self.audit,
            registry=self.registry,
            sites_below=self.site_keys.accepted_sites,
            metrics=metrics,
            clock=clock,
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
            outboxes=self.outboxes,
            downlink_of=self.downlinks.get,
            writer=writer,
            reader=reader,
            spool=spool,
            bus=bus,
            closing=self.closing,
            metrics=metrics,
            clock=clock,
        )
        self.stories = Stories(
            pages=StoryPages(site=name, open_jobs=self.open_jobs, reader=reader),
            open_jobs=self.open_jobs,
            metrics=metrics,
        )
        self.closing.on_news(self.stories.news)
        self.doubted = DoubtedJobs(name, self.doubt, self.open_jobs, self.collection, reader, writer, clock)
        self.asking = Asking(reader)
        self.branches = Branches(
            open_jobs=self.open_jobs,
            registry=self.registry,
            site_book=self.site_book,
            downlink_of=self.downlinks.get,
            closing=self.closing,
            sealer=self.sealer,
            reseal=self.reseal,
            asking=self.asking,
            spool=spool,
            writer=writer,
            clock=clock,
        )
        self.delivery = Delivery(
            site=name,
            open_jobs=self.open_jobs,
            registry=self.registry,
            downlink_of=self.downlinks.get,
            collection=self.collection,
            closing=self.closing,
            sealer=self.sealer,
            reseal=self.reseal,
            branches=self.branches,
            writer=writer,
            bus=bus,
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
            sealer=self.sealer,
            permission=self.permission,
            offered=self.stories.offered,
            nodegroups=self.nodegroups,
            metrics=metrics,
            clock=clock,
            kick=self.delivery.kick,
            may_start=self.doubt.check,
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
            asking=self.asking,
            branches=self.branches,
            authority=self.authority,
            settings=settings.sites,
            syndic_tags=settings.events.syndic_tags,
        )
        self.facts = StationFacts(
            box=replace(box_of(role, settings, clock=clock), state_dir=state_dir),
            keys=self.keys,
            authority=self.authority,
            started=clock.wall(),
            registry=self.registry,
            site_keys=self.site_keys,
            site_book=self.site_book,
            open_jobs=self.open_jobs,
            spool=spool,
            site_ledgers=SiteLedgers(reader),
            metrics=metrics,
            marks=self.marks,
            evidences=self.inbox.evidences,
            aftermath=self.aftermath,
            is_scarce=reserve.is_scarce,
            store_watch=self.store_watch,
            beacons_heard=self.time_beacons.heard,
        )
        self.views = JobViews(open_jobs=self.open_jobs, reader=reader, site_book=self.site_book, clock=clock)
        self.intake = Intake(self.acceptance, self.delivery, clock)
        self._listen()

    def _listen(self) -> None:
        """Tell those who work on jobs of devices and sites that come and go."""
        self.spool.on_went_back = self.aftermath.went_back
        self.aftermath.on_loss(self.doubt.went_back)
        self.registry.on_move(self.delivery.moved)
        self.registry.ask_accepted(lambda site: self.site_keys.of_site(site) is not None)
        self.site_book.on_up(self.branches.site_up, self.branches.site_stands_by, self.branches.site_mended)

    def parts_before_recovery(self) -> list[Part]:
        """What must know its own past before jobs are taken up again."""
        return [
            self.writer,
            self.reader,
            self.spool,
            self.reserve,
            self.store_watch,
            self.authority,
            self.time_beacons,
            self.epochs,
            self.registry,
            self.outboxes,
            self.site_trust,
            self.site_keys,
            self.site_book,
            self.fence,
            self.marks,
            self.doubt,
            self.tokens,
            self.policy_notes,
            RefusalRows(self.audit),
        ]

    def parts_after_recovery(self) -> list[Part]:
        """What works on jobs."""
        return [self.collection, self.delivery, self.intake, self.retention, self.aftermath, self.upgrade_news]

    def known_here(self, name: str) -> Enrolled | None:
        """One of this station's own devices, as its enrollment knows it."""
        return self.enrolled(name)

    def masters(self) -> list[MasterAddress]:
        """Where masters listen: those of the settings first, then those of the join token and the root list.

        A master has none above it, though the root list names it and its like; nor has a site below Salt's masters.
        """
        if self.authority.role == "master" or self.salt_above:
            return []
        dropped = self.authority.dropped_masters()
        named = [MasterAddress(entry.address, entry.key) for entry in self.listed if entry.key not in dropped]
        known = [MasterAddress(entry.address, entry.key) for entry in self.authority.masters()]
        return masters_above(named, known)

    def operations(self, stopping: asyncio.Event) -> list[Operation]:
        """The whole API, noun by noun."""
        jobs = JobsApi(
            acceptance=self.acceptance,
            delivery=self.delivery,
            views=self.views,
            open_jobs=self.open_jobs,
            stopping=stopping,
            permission=self.permission,
        )
        return [
            *StationApi(self.facts, CheckEvents(bus=self.bus, reader=self.reader)).operations(),
            *jobs.operations(),
            *DevicesApi(
                registry=self.registry,
                site_book=self.site_book,
                enrolled=self.known_here,
                targeting=self.permission.targeting,
                ssh=self.ssh,
                ssh_link=self.ssh_link,
                refused_of=self.metrics.refused_of,
                nodegroups=self.nodegroups,
            ).operations(),
            *SitesApi(
                site_book=self.site_book,
                site_keys=self.site_keys,
                revocation=self.fleet_revocation,
                fence=self.fence,
            ).operations(),
            *FleetApi(self.authority).operations(),
            *AuditApi(AuditViews(self.reader)).operations(),
            *OperatorsApi(holder=self.policies, tokens=self.tokens, audit=self.audit).operations(),
            *EventsApi(bus=self.bus, stopping=stopping).operations(),
            *FireApi(bus=self.bus, permission=self.permission, audit=self.audit).operations(),
            *SpoolApi(
                self.spool,
                SiteLedgers(self.reader),
                Drill(lambda: self.cutting, self.bus),
                self.aftermath,
            ).operations(),
        ]


def _nobody(_: str) -> None:
    """A station without devices of its own."""
