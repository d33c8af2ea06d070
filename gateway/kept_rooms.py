"""What a station keeps for those below it, and who answers when they ask.

Wiring only, no behaviour, like ``rooms``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from device_agent.clock import Clock
from device_agent.custom.modules import CustomModules
from device_agent.parts import Part
from device_agent.protocol import mine
from device_agent.protocol.pillar import ITEMS, OF
from device_agent.protocol.stations import station_device
from gateway.answers import Answers, Within
from gateway.api.calls import CallsApi
from gateway.api.files import FilesApi
from gateway.api.mine import MineApi
from gateway.api.operation import Operation
from gateway.api.pillar import PillarApi
from gateway.api.reactor import ReactorApi
from gateway.api.schedule import ScheduleApi
from gateway.call_rooms import CallRooms
from gateway.calls.custom import CustomRunners
from gateway.calls.looking import Looking
from gateway.config import StationSettings
from gateway.devices.device_events import DeviceEvents
from gateway.devices.pillar import Pillars
from gateway.devices.pillar_kept import PillarKept
from gateway.devices.policy import Operator
from gateway.devices.presence_events import presence_events
from gateway.devices.presence_present import PresencePresent
from gateway.files.files import Files
from gateway.files.received import Received
from gateway.files.served import Patterns
from gateway.files.wanted import urls_of
from gateway.mine import words_up
from gateway.mine.answering import ASK_ABOVE_SECONDS, MineAnswers
from gateway.mine.below import MineBelow
from gateway.mine.book import MineBook
from gateway.mine.reading import MineReading
from gateway.mine.ssh import SshMine
from gateway.mine.upward import MineUpward
from gateway.orchestrate_rooms import state_runner
from gateway.own.target import StationTarget
from gateway.reactor.book import ReactionBook
from gateway.reactor.explain import Explain
from gateway.reactor.foreseen import ForeseenTroubles
from gateway.reactor.held import HeldBook
from gateway.reactor.past import Past
from gateway.reactor.plan import Planner
from gateway.reactor.replay import Replay
from gateway.reactor.rule_book import RuleBook
from gateway.reactor.runs import Reactor, reactor_by
from gateway.reactor.seen import Seen
from gateway.reactor.site_reactions import SiteReactions
from gateway.reactor.sources import Sources
from gateway.reactor.throttling import Throttling
from gateway.reactor.upward import ReactionsUpward
from gateway.render import Renderer
from gateway.rooms import Rooms
from gateway.runners.cache import CacheRunner
from gateway.runners.saltutil import SaltutilRunner
from gateway.schedule.book import ScheduleStore
from gateway.schedule.schedule import StationSchedule
from gateway.site_rooms import SiteRooms
from upstream.rope import Rope


class KeptRooms:
    """The rooms that answer the questions of a station's devices and of its sites."""

    uplink: Rope | None = None
    """The way to the masters, once it is open."""

    def __init__(self, rooms: Rooms, settings: StationSettings, state_dir: Path, clock: Clock) -> None:
        self.to_devices = Answers("questions_of_devices", rooms.metrics)
        self.to_sites = Answers("questions_of_sites", rooms.metrics)
        self._rooms = rooms
        self._settings = settings
        self._clock = clock
        self.custom = CustomModules(state_dir / "custom", lambda: rooms.authority.anchor.root)
        """What was brought for this station itself, and for all its devices without an agent."""
        rooms.sealer.custom_reach = self.custom.reach
        self._keep_files(state_dir)
        self._mine()
        self._pillar()
        self.device_events = DeviceEvents(
            bus=rooms.bus, writer=rooms.writer, reader=rooms.reader, metrics=rooms.metrics, clock=clock
        )
        self.device_events.answer_with(self.to_devices)
        self._react()
        self.presence = self._presence()

    def parts(self) -> list[Part]:
        """What must be open before anybody can ask."""
        keeping = [self.files, self.files.fetches, self.mine, self.renderer, self.pillars, self.device_events]
        return [*keeping, self.to_devices, self.to_sites, self.presence, self.reactions_upward]

    def _presence(self) -> PresencePresent:
        rooms, settings = self._rooms, self._settings
        rooms.registry.events_of = partial(presence_events, legacy_starts=settings.enable_legacy_startup_events)
        return PresencePresent(
            registry=rooms.registry, bus=rooms.bus, enabled=settings.presence_events, interval=settings.loop_interval
        )

    def station_target(self, role: str, state_dir: Path) -> StationTarget:
        """The station itself as a device."""
        rooms = self._rooms
        target = StationTarget(
            site=self._settings.name,
            role=role,
            settings=self._settings.station,
            state_dir=state_dir,
            authority=rooms.authority,
            epochs=rooms.epochs,
            registry=rooms.registry,
            returns=rooms.collection,
            reseal=rooms.delivery.reseal,
            answers=self.to_devices,
            custom=self.custom,
            reader=rooms.reader,
            metrics=rooms.metrics,
            clock=self._clock,
            doubt=rooms.doubt,
        )
        rooms.facts.files_failing.append(target.health.words)
        return target

    def parts_with_devices(self, site: SiteRooms) -> list[Part]:
        """What works on the devices of this station, once their links are open."""
        rooms = self._rooms
        self.own.keys.enrollment = site.enrollment
        site.enrollment.verdicts.leave_with(self.pillars.leaving, self.pillars.left)
        return [
            SshMine(
                site=self._settings.name,
                settings=self._settings.ssh,
                reached=site.ssh.reached,
                registry=rooms.registry,
                authority=rooms.authority,
                metrics=rooms.metrics,
                clock=self._clock,
            )
        ]

    def parts_with_uplink(self, uplink: Rope) -> list[Part]:
        """What speaks with the masters, once the way to them is open."""
        self.uplink, rooms = uplink, self._rooms
        return [
            MineUpward(book=self.mine, epoch=lambda: rooms.spool.epoch, askable=uplink.askable, metrics=rooms.metrics)
        ]

    def operations(self) -> list[Operation]:
        """What the API has of it."""
        mine_api = MineApi(
            book=self.mine, reading=self.mine_reading, permission=self._rooms.permission, clock=self._clock
        )
        pillar_api = PillarApi(pillars=self.pillars, registry=self._rooms.registry)
        kept = [*FilesApi(self.files).operations(), *mine_api.operations(), *pillar_api.operations()]
        kept += [
            *ReactorApi(self.explain, self.replay).operations(),
            *CallsApi(self.own.calls, self._rooms.bus).operations(),
        ]
        return [*kept, *ScheduleApi(self.schedule).operations()]

    def ask_above(self, uplink: Rope) -> None:
        """There is an uplink, over which masters can be asked."""
        self.files.above = uplink
        salt = self._settings.upstream.salt
        self.pillars.above = lambda: uplink if salt or self._rooms.masters() else None

    # --- files -----------------------------------------------------------------------------------------------------

    def _keep_files(self, state_dir: Path) -> None:
        rooms, settings = self._rooms, self._settings
        self.files = Files(
            roots=settings.file_roots,
            settings=settings.files,
            patterns=Patterns(settings.files.include_glob, settings.file_ignore_glob, settings.file_ignore_regex),
            folder=state_dir / "files",
            writer=rooms.writer,
            reader=rooms.reader,
            metrics=rooms.metrics,
            clock=self._clock,
        )
        self.files.answer(self.to_devices, self.to_sites)
        self.files.spare_for(lambda: (url for opened in rooms.open_jobs for url in urls_of(opened.job)))
        rooms.facts.more_gauges.append(self.files.gauges)
        rooms.facts.cache_full = lambda: self.files.store.full
        rooms.facts.files_failing.append(self.files.store.health.words)
        rooms.acceptance.made_from = lambda job: self.files.made_from(urls_of(job))
        Received(state_dir / "received", settings.files, rooms.metrics).answer(self.to_devices)

    # --- the mine --------------------------------------------------------------------------------------------------

    def _mine(self) -> None:
        rooms, settings, site = self._rooms, self._settings.mine, self._settings.name
        book = self.mine = MineBook(
            site=site,
            megabytes=settings.megabytes,
            registry=rooms.registry,
            writer=rooms.writer,
            reader=rooms.reader,
            metrics=rooms.metrics,
            clock=self._clock,
        )
        reading = self.mine_reading = MineReading(
            site=site, book=book, registry=rooms.registry, nodegroups=rooms.nodegroups
        )
        ask_above = self._mine_above if settings.other_sites else None
        MineAnswers(
            site=site, book=book, reading=reading, metrics=rooms.metrics, clock=self._clock, ask_above=ask_above
        ).answer_with(self.to_devices)
        MineBelow(
            book=book,
            reading=reading,
            registry=rooms.registry,
            reader=rooms.reader,
            metrics=rooms.metrics,
            clock=self._clock,
            other_sites=settings.other_sites,
            ask_above=ask_above,
        ).answer_with(self.to_sites)
        rooms.facts.mine = book.gauges

    async def _mine_above(self, asked: words_up.Others) -> list[mine.Found]:
        if self.uplink is None:
            return []
        body = await self.uplink.ask(words_up.OTHERS, words_up.encode(asked), patience=ASK_ABOVE_SECONDS)
        return mine.decode_found(body)

    # --- pillar ----------------------------------------------------------------------------------------------------

    def _pillar(self) -> None:
        rooms, settings, clock = self._rooms, self._settings, self._clock
        self.renderer = Renderer(settings.render, rooms.metrics)
        self.pillars = Pillars(
            site=settings.name,
            roots=settings.pillar_roots,
            settings=settings.pillar,
            nodegroups=rooms.nodegroups.compounds,
            renderer=self.renderer,
            kept=PillarKept(
                lambda: rooms.authority.signing.private, writer=rooms.writer, reader=rooms.reader, clock=clock
            ),
            registry=rooms.registry,
            clock=clock,
            metrics=rooms.metrics,
        )
        rooms.registry.know = self.pillars.know
        self.to_devices.about(ITEMS, self.pillars.to_device)
        self.to_sites.about(OF, self.pillars.to_site)

    # --- runners and wheels ----------------------------------------------------------------------------------------

    def _call(self, sources: Sources) -> None:
        rooms, settings = self._rooms, self._settings
        self.own = CallRooms(rooms, settings, self._clock, sources)
        self.own.calls.custom = CustomRunners(self.custom)
        cache = CacheRunner(
            registry=rooms.registry,
            pillars=self.pillars,
            mine=self.mine,
            reading=self.mine_reading,
            permission=rooms.permission,
        )
        self.own.functions.add("runner", cache.functions())
        saltutil = SaltutilRunner(self.custom, Within(self.to_devices, station_device(settings.name)))
        self.own.functions.add("runner", saltutil.functions())
        state = state_runner(rooms, settings, self._clock, self.own, self.files, self.renderer)
        self.own.functions.add("runner", state.functions())

    # --- reactions -------------------------------------------------------------------------------------------------

    def _react(self) -> None:
        rooms, settings = self._rooms, self._settings
        book = ReactionBook(
            writer=rooms.writer,
            reader=rooms.reader,
            clock=self._clock,
            keep_seconds=settings.reactions.keep_hours * 3600.0,
        )
        changes = RuleBook(writer=rooms.writer, reader=rooms.reader, clock=self._clock)
        sources = Sources(settings.reactor, self.files, changes, settings.reactor_throttle)
        # What a site decides by does not give way to what its devices fetch.
        self.files.spare_for(sources.addresses)
        held = HeldBook(writer=rooms.writer, reader=rooms.reader, clock=self._clock)
        self._call(sources)

        def looking(operator: Callable[[], Operator]) -> Looking:
            return Looking(
                functions=self.own.functions,
                running=self.own.calls.running,
                operator=operator,
                seconds=settings.render.seconds,
                clock=self._clock,
            )

        def planning(operator: Callable[[], Operator]) -> Planner:
            return Planner(sources, self.renderer, settings.reactions, looking(operator))

        planner = planning(lambda: reactor_by(rooms.policies.policy))
        self.reactor = Reactor(
            site=settings.name,
            settings=settings.reactions,
            planner=planner,
            seen=Seen(rooms.reader, rooms.metrics),
            book=book,
            acceptance=rooms.acceptance,
            calls=self.own.calls,
            throttling=Throttling(book=held, metrics=rooms.metrics, clock=self._clock),
            policy=lambda: rooms.policies.policy,
            bus=rooms.bus,
            metrics=rooms.metrics,
            clock=self._clock,
            doubt=rooms.doubt,
        )
        foreseen = ForeseenTroubles(
            site=settings.name,
            acceptance=rooms.acceptance,
            calls=self.own.calls,
            operator=lambda: reactor_by(rooms.policies.policy),
            brought=self.custom.reach,
            station_grants=settings.station.grants,
            expires_seconds=settings.reactions.expires_seconds,
        )
        self.explain = Explain(
            planner=planner,
            foreseen=foreseen,
            book=book,
            held=held,
            bus=rooms.bus,
            reader=rooms.reader,
            sites=SiteReactions(rooms.reader),
        )
        self.replay = Replay(
            planner=planner,
            planning=lambda operator: planning(lambda: operator),
            foreseen=foreseen,
            past=Past(rooms.reader, Seen(rooms.reader, rooms.metrics)),
            clock=self._clock,
        )
        self.reactions_upward = ReactionsUpward(
            site=settings.name,
            spool=rooms.spool,
            reader=rooms.reader,
            writer=rooms.writer,
            clock=self._clock,
            keep_seconds=settings.reactions.keep_hours * 3600.0,
        )
        rooms.facts.more_gauges += [self.reactor.gauges, rooms.upgrade_news.rollbacks]
        self._schedule()

    # --- the schedule ----------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        rooms, settings = self._rooms, self._settings
        self.schedule = StationSchedule(
            site=settings.name,
            schedule=settings.schedule,
            timezone=settings.timezone,
            book=ScheduleStore(writer=rooms.writer, reader=rooms.reader, clock=self._clock),
            acceptance=rooms.acceptance,
            open_jobs=rooms.open_jobs,
            calls=self.own.calls,
            policy=lambda: rooms.policies.policy,
            bus=rooms.bus,
            metrics=rooms.metrics,
            clock=self._clock,
            doubt=rooms.doubt,
        )
        rooms.facts.schedule_failing = self.schedule.failing
