"""What looks after the store of a station: copies of it, damage to it, and what is old in it.

Wiring only, no behaviour, like ``rooms``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from device_agent.clock import Clock
from gateway.bus import Bus
from gateway.config import StationSettings
from gateway.devices.fence import SiteFence
from gateway.devices.sites import SiteBook
from gateway.jobs.retention import Retention
from gateway.store.aftermath import Aftermath
from gateway.store.doubt import StoreDoubt
from gateway.store.reader import Reader
from gateway.store.told import Marks
from gateway.store.writer import Writer
from gateway.upgrade.news import UpgradeNews
from upstream.uplink import MasterAddress


def guards_of(
    settings: StationSettings,
    path: Path,
    writer: Writer,
    reader: Reader,
    bus: Bus,
    site_book: SiteBook,
    masters: Callable[[], Sequence[MasterAddress]],
    clock: Clock,
) -> tuple[SiteFence, Marks, StoreDoubt, Aftermath, Retention, UpgradeNews]:
    """The parts that look after the store at ``path``."""
    name = settings.name
    marks = Marks(site=name, writer=writer, reader=reader, bus=bus, clock=clock)
    return (
        SiteFence(writer=writer, reader=reader, bus=bus, clock=clock, site_book=site_book),
        marks,
        StoreDoubt(writer=writer, reader=reader, marks=marks, masters=masters, clock=clock),
        Aftermath(station=name, path=path, writer=writer, reader=reader, bus=bus, clock=clock),
        Retention(
            writer=writer,
            keep_seconds=settings.jobs.keep_hours * 3600.0,
            keep_audit_seconds=settings.audit.keep_days * 86_400.0,
            clock=clock,
        ),
        UpgradeNews(station=name, reader=reader, bus=bus),
    )
