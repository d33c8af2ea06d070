"""The composition root of a station: which parts it has, in the order they open. Wiring only, no behaviour.

A master and a gateway are the same class. A master has the ``sites`` downlink; a gateway has device downlinks and an
uplink; a gateway with a ``sites`` section is a relay.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import faulthandler
import gc
import logging
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import uvloop
from msgspec import structs

from device_agent.clock import Clock
from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK, ConfigInvalid, OutstationError, StartDeferred
from device_agent.log_stream import log_to
from device_agent.notify import Notifier
from device_agent.parts import Part, leaves
from device_agent.signals import handled
from gateway.api.keys import KeysApi
from gateway.api.listener import Listen
from gateway.api.reload import ReloadApi
from gateway.api.server import ApiServer
from gateway.api.ssh_devices import SshDevicesApi
from gateway.config import BrokerSettings, SitesSettings, StationSettings
from gateway.devices.site_prover import SiteProver
from gateway.event_socket import EventSocket, beside
from gateway.fleet.state_folder import full, held
from gateway.jobs.recover import recover
from gateway.kept_rooms import KeptRooms
from gateway.outlet_rooms import OutletRooms
from gateway.own_faults import faults_of
from gateway.rooms import Role, Rooms
from gateway.salt_rooms import SaltRooms
from gateway.schedule.schedule import StationSchedule
from gateway.service_status import reports_of
from gateway.site_rooms import SiteRooms
from gateway.station_settings import settings_for, uplink_rules
from upstream.sites import Sites
from upstream.uplink import Uplink

log = logging.getLogger(__name__)

OPENING_SECONDS = 1800.0
"""A large store may have to be brought to another schema, or salvaged, before anything else can begin."""

RELOADED = ("log_level", "masters", "policy", "nodegroups", "schedule", "timezone")
RESTART_KEYS = tuple(name for name in StationSettings.__struct_fields__ if name not in RELOADED)
LOG_FORMAT = "%(asctime)s %(levelname)-7s %(name)s %(message)s"


class Station:
    """A station from its settings. ``run`` returns after an orderly stop, and raises what crashed a part."""

    def __init__(
        self,
        role: Role,
        settings: StationSettings,
        clock: Clock | None = None,
        notifier: Notifier | None = None,
    ) -> None:
        self._role = role
        self._notifier = notifier or Notifier({})
        self._settings = settings
        self._clock = clock or Clock()
        self._stop = asyncio.Event()
        self._stopping = asyncio.Event()
        self._rooms: Rooms | None = None
        self._uplink: Uplink | None = None
        self._salt: SaltRooms | None = None
        self._site: SiteRooms | None = None
        self._server: ApiServer | None = None
        self._schedule: StationSchedule | None = None
        self.take_settings: Callable[[], None] = lambda: self.reload(self._settings)
        """Reads the settings anew and takes them over; raises ``ConfigInvalid``."""

    def stop(self) -> None:
        """Drain and end."""
        if self._rooms is not None:
            self._rooms.acceptance.draining = True
            self._rooms.registry.hold()
        if self._site is not None:
            self._site.broker.expect_end()
        self._stop.set()

    def reload(self, settings: StationSettings) -> None:
        """Take over what can change while running: the log level, masters, policy, nodegroups and the schedule."""
        logging.getLogger().setLevel(settings.log_level.upper())
        if self._rooms is not None:
            self._rooms.policy_notes.reload(settings.policy)
            self._rooms.nodegroups.use(settings.nodegroups)
            self._rooms.listed = settings.masters
            self._use_masters(self._rooms)
        if self._salt is not None and settings.upstream.salt:
            self._salt.use_masters(settings.upstream.masters)
            # What else stands in that section waits.
            upstream = structs.replace(settings.upstream, masters=self._settings.upstream.masters)
            settings = structs.replace(settings, upstream=upstream)
        if self._schedule is not None:
            self._schedule.use(settings.schedule, settings.timezone)
        if self._server is not None:
            try:
                self._server.renew_certificate()
            except ConfigInvalid as error:
                log.error("the API's certificate was not renewed, the one before counts on: %s", error)
        for name in [name for name in RESTART_KEYS if getattr(settings, name) != getattr(self._settings, name)]:
            log.warning("changed in the settings, takes effect at the next start key=%s", name)
        log.info("settings reloaded")

    async def run(self) -> None:
        """Open every part in order, wait for the stop, close them in reverse."""
        state_dir = Path(self._settings.state_dir or f"/var/lib/outstation/{self._role}")
        socket = Path(self._settings.socket or f"/run/outstation/{self._role}.sock")
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(held(state_dir, _taken(state_dir)))
            self._notifier.extend(OPENING_SECONDS, f"{self._settings.name}: starting: opening the store at {state_dir}")
            rooms = self._rooms = Rooms(self._role, self._settings, state_dir, self._clock)
            kept = KeptRooms(rooms, self._settings, state_dir, self._clock)
            for part in rooms.parts_before_recovery():
                await stack.enter_async_context(part)
            recovered = await recover(rooms.open_jobs, rooms.reader, self._clock)
            await rooms.doubted.end_past()
            for part in rooms.parts_after_recovery():
                await stack.enter_async_context(part)
            for part in kept.parts():
                await stack.enter_async_context(part)
            events = self._events_path(socket)
            outlets = OutletRooms(
                self._role,
                self._settings,
                rooms=rooms,
                kept=kept,
                state_dir=state_dir,
                api=socket,
                events=events,
                clock=self._clock,
            )
            for part in outlets.parts():
                await stack.enter_async_context(part)
            for part in self._event_sockets(events, rooms):
                await stack.enter_async_context(part)
            target = kept.station_target(self._role, state_dir)
            rooms.downlinks[target.name] = await stack.enter_async_context(target)
            if self._settings.broker is not None:
                await self._open_devices(stack, rooms, kept, self._settings.broker, state_dir)
            if self._settings.sites is not None:
                await self._open_sites(stack, rooms, kept, self._settings.sites)
            if self._role == "gateway":
                await self._open_uplink(stack, rooms, kept, state_dir)
            await stack.enter_async_context(kept.own.calls)
            await stack.enter_async_context(kept.reactor)
            await stack.enter_async_context(kept.schedule)
            self._schedule = kept.schedule
            await rooms.doubt.settled()
            api = self._server = self._api(socket, rooms, kept, outlets)
            await stack.enter_async_context(api)
            for part in outlets.parts_with_api():
                await stack.enter_async_context(part)
            rooms.delivery.kick()
            reports = reports_of(rooms, self._notifier, self._site, self._clock)
            # What is loaded now stays until the end: walking it again and again was a tenth of a job's cost.
            gc.collect()
            gc.freeze()
            log.info(
                "ready role=%s name=%s socket=%s key=%s jobs_recovered=%d",
                self._role,
                self._settings.name,
                socket,
                rooms.keys.public,
                recovered,
            )
            await stack.enter_async_context(reports)
            await self._stop.wait()
            log.info("stopping")
        log.info("stopped")

    def _events_path(self, api: Path) -> Path | None:
        events = self._settings.events
        if not events.publish:
            return None
        path = beside(api) if events.socket is None else Path(events.socket)
        if path is None:
            log.warning("events are not published, the path of the API's socket leaves no room: set events.socket")
        return path

    def _event_sockets(self, path: Path | None, rooms: Rooms) -> list[Part]:
        if path is None:
            return []
        events = self._settings.events
        setting = "socket" if events.socket is None else "events.socket"
        return [EventSocket(path, bus=rooms.bus, metrics=rooms.metrics, queue=events.queue, setting=setting)]

    def _api(self, socket: Path, rooms: Rooms, kept: KeptRooms, outlets: OutletRooms) -> ApiServer:
        keys = KeysApi(
            site=self._settings.name,
            site_keys=rooms.site_keys,
            revoke_site=rooms.fleet_revocation.revoke_site,
            keys=rooms.keys,
            enrollment=self._site.enrollment if self._site is not None else None,
            audit=rooms.audit,
            refused_of=rooms.metrics.refused_of,
        )
        ssh = SshDevicesApi(book=self._site.ssh_book if self._site is not None else None, audit=rooms.audit)
        operations = [*rooms.operations(self._stopping), *keys.operations(), *ssh.operations()]
        operations += [*kept.operations(), *outlets.operations(), *ReloadApi(self.take_settings).operations()]
        listen = self._settings.api
        return ApiServer(
            socket,
            operations,
            on_stop=self._stopping.set,
            door=rooms.door,
            listen=None if listen is None else Listen(listen.listen, listen.certificate, listen.key),
            failures=rooms.metrics.accept_failures,
        )

    async def _open_devices(
        self,
        stack: contextlib.AsyncExitStack,
        rooms: Rooms,
        kept: KeptRooms,
        settings: BrokerSettings,
        state_dir: Path,
    ) -> None:
        name, ssh = self._settings.name, self._settings.ssh
        site = self._site = SiteRooms(rooms, kept.to_devices, settings, ssh, name, state_dir, self._clock)
        site.custom = kept.custom
        for part in site.parts_before_broker():
            await stack.enter_async_context(part)
        await site.enrollment.use_broker(site.broker)
        await stack.enter_async_context(site.broker)
        for part in site.parts_after_broker():
            await stack.enter_async_context(part)
        for part in kept.parts_with_devices(site):
            await stack.enter_async_context(part)
        rooms.downlinks |= {site.downlink.name: site.downlink, site.ssh.name: site.ssh}
        rooms.facts.broker, rooms.facts.downlink, rooms.facts.ssh = site.broker, site.downlink, site.ssh
        rooms.facts.enrolled = site.enrollment.all
        rooms.facts.ssh_secrets_lost = site.ssh_book.lost

    async def _open_sites(
        self, stack: contextlib.AsyncExitStack, rooms: Rooms, kept: KeptRooms, settings: SitesSettings
    ) -> None:
        sites = Sites(
            station=self._settings.name,
            listen=settings.listen,
            keys=rooms.keys,
            admission=rooms.site_keys,
            inbox=rooms.inbox,
            watch=rooms.site_book,
            refusals=rooms.metrics,
            clock=self._clock,
            trust=rooms.site_trust,
            fence=rooms.fence,
            answers=kept.to_sites,
        )
        rooms.fence.on_unfenced(sites.unfenced)
        rooms.downlinks[sites.name] = sites
        rooms.site_keys.on_change(sites.keys_changed)
        sites.on_reseal(rooms.branches.reseal_for)
        rooms.asking.through(sites.ask)
        await stack.enter_async_context(sites)
        rooms.facts.sites_address = sites.address

    async def _open_uplink(
        self, stack: contextlib.AsyncExitStack, rooms: Rooms, kept: KeptRooms, state_dir: Path
    ) -> None:
        if self._settings.upstream.salt:
            self._salt = salt = SaltRooms(rooms, self._settings, kept.files.store, state_dir, self._clock)
            rooms.facts.uplink = rooms.cutting = salt.uplink
            for part in salt.parts():
                await stack.enter_async_context(part)
            kept.ask_above(salt.uplink)
            return
        self._uplink = rooms.facts.uplink = rooms.cutting = Uplink(
            site=self._settings.name,
            keys=rooms.keys,
            masters=rooms.masters(),
            echo_seconds=self._settings.uplink.echo_seconds,
            outgoing=rooms.spool,
            roll=rooms.registry,
            intake=rooms.intake,
            refusals=rooms.metrics,
            clock=self._clock,
            trust=rooms.standing,
            marks=rooms.marks,
            prover=SiteProver(self._settings.name, rooms.authority),
            rules=uplink_rules(self._settings),
            stories=rooms.stories,
            faults=await stack.enter_async_context(faults_of(rooms, self._clock)),
        )
        rooms.reseal.ask_above(self._uplink.reseal)

        async def masters_changed() -> None:
            self._use_masters(rooms)

        rooms.authority.on_change(masters_changed)
        await stack.enter_async_context(self._uplink)
        kept.ask_above(self._uplink)
        for part in kept.parts_with_uplink(self._uplink):
            await stack.enter_async_context(part)

    def _use_masters(self, rooms: Rooms) -> None:
        masters = rooms.masters()
        # From now on somebody will take what is spooled.
        rooms.spool.enabled = rooms.spool.enabled or bool(masters)
        if self._uplink is not None:
            self._uplink.replace_masters(masters)


def main(role: Role, config: Path, notifier: Notifier | None = None) -> int:
    """Run a station until it is told to stop; returns the exit status. Raises ``ConfigInvalid``."""
    notifier = notifier or Notifier()
    with notifier.told():
        return _run(role, config, notifier)


def _run(role: Role, config: Path, notifier: Notifier) -> int:
    settings = settings_for(role, config)
    log_to(settings.log_level, LOG_FORMAT, {"ROLE": role, "STATION": settings.name})
    # What systemd sends to a process that hangs leaves where it hung in the log.
    faulthandler.enable()
    for chatty in ("uvicorn", "asyncssh"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        uvloop.run(_until_stopped(role, settings, config, notifier))
    except asyncio.CancelledError:
        log.critical("cut short by a second signal: what was not finished is on disk and goes on at the next start")
        return EXIT_NOT_ALL_OK
    except OSError as refused:
        raise _told_apart(refused, role, settings) from refused
    except BaseExceptionGroup as crashed:
        errors = [_told_apart(error, role, settings) for error in leaves(crashed)]
        for error in errors:
            if isinstance(error, ConfigInvalid):
                raise error from None
            log.critical("crashed: %s", error, exc_info=None if isinstance(error, OutstationError) else error)
        notifier.crashed(errors)
        return EXIT_NOT_ALL_OK
    return EXIT_OK


def _told_apart(error: BaseException, role: Role, settings: StationSettings) -> BaseException:
    """A full disk is no fault of this program, wherever it was met first."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return full(error, Path(settings.state_dir or f"/var/lib/outstation/{role}"))
    return error


async def _until_stopped(role: Role, settings: StationSettings, config: Path, notifier: Notifier) -> None:
    station = Station(role, settings, notifier=notifier)
    running = asyncio.current_task()
    asked = 0

    def stop() -> None:
        nonlocal asked
        asked += 1
        # The first signal drains, a second one cuts.
        if asked == 1:
            station.stop()
        elif running is not None:
            running.cancel()

    station.take_settings = lambda: station.reload(settings_for(role, config))

    def reload() -> None:
        try:
            station.take_settings()
        except ConfigInvalid as error:
            log.error("settings not reloaded: %s", error)

    with handled({signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: reload}):
        await station.run()


def _taken(state_dir: Path) -> StartDeferred:
    # The other one may end.
    return StartDeferred(
        "another station uses this state folder",
        where="state_dir",
        found=str(state_dir),
        allowed="one station for each folder",
        hint="stop the other one, or set state_dir: in the settings",
    )
