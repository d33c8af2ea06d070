"""The station's own functions: which there are, what each is given, and who takes calls of them.

Wiring only, no behaviour, like ``rooms``.
"""

from __future__ import annotations

from device_agent.clock import Clock
from gateway.calls.book import CallBook
from gateway.calls.calls import Calls
from gateway.calls.functions import Functions
from gateway.calls.jobs import CallJobs
from gateway.calls.permission import CallPermission
from gateway.config import StationSettings
from gateway.reactor.sources import Sources
from gateway.rooms import Rooms
from gateway.runners import test
from gateway.runners.delay import DelayRunner
from gateway.runners.doc import DocRunner
from gateway.runners.event import EventRunner
from gateway.runners.http import HttpRunner
from gateway.runners.jobs import JobsRunner
from gateway.runners.manage import ManageRunner
from gateway.runners.queue import QueueRunner
from gateway.runners.reactor import ReactorRunner
from gateway.runners.salt import SaltRunner
from gateway.wheels.config import ConfigWheel
from gateway.wheels.key import KeyWheel
from gateway.wheels.minions import MinionsWheel


class CallRooms:
    """Runners and wheels. A further module is registered here, in ``functions``, before the station opens."""

    def __init__(self, rooms: Rooms, settings: StationSettings, clock: Clock, sources: Sources) -> None:
        self.functions = Functions()
        self.book = CallBook(
            writer=rooms.writer,
            reader=rooms.reader,
            clock=clock,
            keep_seconds=settings.calls.keep_hours * 3600.0,
        )
        self.jobs = CallJobs(acceptance=rooms.acceptance, open_jobs=rooms.open_jobs, views=rooms.views, book=self.book)
        self.calls = Calls(
            settings=settings.calls,
            functions=self.functions,
            book=self.book,
            permission=CallPermission(
                site=settings.name,
                policy=lambda: rooms.policies.policy,
                audit=rooms.audit,
                metrics=rooms.metrics,
                clock=clock,
            ),
            jobs=self.jobs,
            jids=rooms.acceptance.jids,
            now=rooms.sealer.now,
            bus=rooms.bus,
            metrics=rooms.metrics,
            clock=clock,
            doubt=rooms.doubt,
        )
        jobs = JobsRunner(
            site=settings.name, views=rooms.views, open_jobs=rooms.open_jobs, jobs=self.jobs, book=self.book
        )
        self.functions.add("runner", jobs.functions())
        self.functions.add("runner", ManageRunner(rooms.registry).functions())
        self.functions.add("runner", EventRunner(rooms.permission).functions())
        self.functions.add("runner", ReactorRunner(sources, settings.name).functions())
        self.functions.add("runner", DocRunner(self.functions).functions())
        self.functions.add("runner", test.functions())
        self.functions.add("runner", QueueRunner(writer=rooms.writer, reader=rooms.reader).functions())
        self.functions.add("runner", HttpRunner().functions())
        self.functions.add("runner", SaltRunner(rooms.acceptance.refusal).functions())
        self.functions.add("runner", DelayRunner(clock).functions())
        self.keys = KeyWheel(keys=rooms.keys, site_keys=rooms.site_keys, revoke_site=rooms.fleet_revocation.revoke_site)
        self.functions.add("wheel", self.keys.functions())
        self.functions.add("wheel", ConfigWheel(settings).functions())
        self.functions.add("wheel", MinionsWheel(rooms.registry).functions())
        rooms.facts.more_gauges.append(self.calls.gauges)
