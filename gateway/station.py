"""The composition root of a station: which parts it has, in the order they open. Wiring only, no behaviour.

A master and a gateway are the same class. A master has the ``sites`` downlink; a gateway has device downlinks and an
uplink; a gateway with a ``sites`` section is a relay.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import uvloop
from msgspec.structs import replace

from device_agent.clock import Clock
from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK, ConfigInvalid, OutstationError
from device_agent.parts import leaves
from device_agent.settings import load
from device_agent.signals import handled
from gateway.api.keys import KeysApi
from gateway.api.listener import Listen
from gateway.api.server import ApiServer
from gateway.config import BrokerSettings, SitesSettings, StationSettings
from gateway.jobs.recover import recover
from gateway.rooms import Role, Rooms
from gateway.site_rooms import SiteRooms
from upstream.sites import Sites
from upstream.uplink import Uplink, UplinkRules

log = logging.getLogger(__name__)

HIGHEST_PORT = 65535
RESTART_KEYS = (
    "name",
    "state_dir",
    "socket",
    "master_type",
    "master_alive_interval",
    "master_failback",
    "master_failback_interval",
    "master_shuffle",
    "random_reauth_delay",
    "uplink",
    "sites",
    "broker",
    "jobs",
    "api",
    "audit",
    "spool",
)
LOG_FORMAT = "%(asctime)s %(levelname)-7s %(name)s %(message)s"


class Station:
    """A station from its settings. ``run`` returns after an orderly stop, and raises what crashed a part."""

    def __init__(self, role: Role, settings: StationSettings, clock: Clock | None = None) -> None:
        self._role = role
        self._settings = settings
        self._clock = clock or Clock()
        self._stop = asyncio.Event()
        self._stopping = asyncio.Event()
        self._rooms: Rooms | None = None
        self._uplink: Uplink | None = None
        self._site: SiteRooms | None = None
        self._server: ApiServer | None = None

    def stop(self) -> None:
        """Drain and end."""
        if self._rooms is not None:
            self._rooms.acceptance.draining = True
            self._rooms.registry.hold()
        if self._site is not None:
            self._site.broker.expect_end()
        self._stop.set()

    def reload(self, settings: StationSettings) -> None:
        """Take over what can change while running: the log level and the list of masters."""
        logging.getLogger().setLevel(settings.log_level.upper())
        if self._rooms is not None:
            self._rooms.policy_notes.reload(settings.policy)
            self._rooms.listed = settings.masters
            self._use_masters(self._rooms)
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
            stack.enter_context(_claimed(state_dir))
            rooms = self._rooms = Rooms(self._role, self._settings, state_dir, self._clock)
            for part in rooms.parts_before_recovery():
                await stack.enter_async_context(part)
            recovered = await recover(rooms.open_jobs, rooms.reader, self._clock)
            for part in rooms.parts_after_recovery():
                await stack.enter_async_context(part)
            if self._settings.broker is not None:
                await self._open_devices(stack, rooms, self._settings.broker, state_dir)
            if self._settings.sites is not None:
                await self._open_sites(stack, rooms, self._settings.sites)
            if self._role == "gateway":
                await self._open_uplink(stack, rooms)
            api = self._server = self._api(socket, rooms)
            await stack.enter_async_context(api)
            rooms.delivery.kick()
            log.info(
                "ready role=%s name=%s socket=%s key=%s jobs_recovered=%d",
                self._role,
                self._settings.name,
                socket,
                rooms.keys.public,
                recovered,
            )
            await self._stop.wait()
            log.info("stopping")
        log.info("stopped")

    def _api(self, socket: Path, rooms: Rooms) -> ApiServer:
        keys = KeysApi(
            site=self._settings.name,
            site_keys=rooms.site_keys,
            revoke_site=rooms.fleet_revocation.revoke_site,
            keys=rooms.keys,
            enrollment=self._site.enrollment if self._site is not None else None,
            audit=rooms.audit,
            refused_of=rooms.metrics.refused_of,
        )
        operations = [*rooms.operations(self._stopping), *keys.operations()]
        listen = self._settings.api
        return ApiServer(
            socket,
            operations,
            on_stop=self._stopping.set,
            door=rooms.door,
            listen=None if listen is None else Listen(listen.listen, listen.certificate, listen.key),
        )

    async def _open_devices(
        self, stack: contextlib.AsyncExitStack, rooms: Rooms, settings: BrokerSettings, state_dir: Path
    ) -> None:
        site = self._site = SiteRooms(rooms, settings, self._settings.name, state_dir, self._clock)
        for part in site.parts_before_broker():
            await stack.enter_async_context(part)
        await site.enrollment.use_broker(site.broker)
        await stack.enter_async_context(site.broker)
        for part in site.parts_after_broker():
            await stack.enter_async_context(part)
        rooms.downlinks[site.downlink.name] = site.downlink
        rooms.facts.broker, rooms.facts.downlink = site.broker, site.downlink
        rooms.facts.enrolled = site.enrollment.all

    async def _open_sites(self, stack: contextlib.AsyncExitStack, rooms: Rooms, settings: SitesSettings) -> None:
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
        )
        rooms.fence.on_unfenced(sites.unfenced)
        rooms.downlinks[sites.name] = sites
        rooms.site_keys.on_change(sites.keys_changed)
        sites.on_reseal(rooms.branches.reseal_for)
        rooms.asking.through(sites.ask)
        await stack.enter_async_context(sites)
        rooms.facts.sites_address = sites.address

    async def _open_uplink(self, stack: contextlib.AsyncExitStack, rooms: Rooms) -> None:
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
            rules=UplinkRules(
                master_type=self._settings.master_type,
                master_alive_interval=self._settings.master_alive_interval,
                master_failback=self._settings.master_failback,
                master_failback_interval=self._settings.master_failback_interval,
                master_shuffle=self._settings.master_shuffle,
                random_reauth_delay=self._settings.random_reauth_delay,
                max_bytes_per_second=self._settings.uplink.max_bytes_per_second,
            ),
            stories=rooms.stories,
        )
        rooms.reseal.ask_above(self._uplink.reseal)

        async def masters_changed() -> None:
            self._use_masters(rooms)

        rooms.authority.on_change(masters_changed)
        await stack.enter_async_context(self._uplink)

    def _use_masters(self, rooms: Rooms) -> None:
        masters = rooms.masters()
        # From now on somebody will take what is spooled.
        rooms.spool.enabled = rooms.spool.enabled or bool(masters)
        if self._uplink is not None:
            self._uplink.replace_masters(masters)


def settings_for(role: Role, path: Path) -> StationSettings:
    """The settings of a station, with what its role implies. Raises ``ConfigInvalid``."""
    settings = load(StationSettings, path)
    addresses = {f"masters[{place}].address": entry.address for place, entry in enumerate(settings.masters)}
    if settings.sites is not None:
        addresses["sites.listen"] = settings.sites.listen
    for key, address in addresses.items():
        port = address.rsplit(":", 1)[1]
        if port != "*" and not (port.isdigit() and int(port) <= HIGHEST_PORT):
            raise ConfigInvalid(
                "there is no such port",
                where=f"{path}: {key}",
                found=address,
                allowed=f"1 to {HIGHEST_PORT}, or * to listen",
            )
    if role == "gateway":
        return settings if settings.broker is not None else replace(settings, broker=BrokerSettings())
    if settings.masters or settings.broker is not None:
        raise ConfigInvalid(
            "a master has sites, and neither masters nor a broker",
            where=str(path),
            found="masters" if settings.masters else "broker",
            allowed="name, sites, state_dir, socket, log_level, jobs",
            hint="run it as a gateway with a sites: section, if it stands between a master and other gateways",
        )
    return settings if settings.sites is not None else replace(settings, sites=SitesSettings())


def main(role: Role, config: Path) -> int:
    """Run a station until it is told to stop; returns the exit status. Raises ``ConfigInvalid``."""
    settings = settings_for(role, config)
    logging.basicConfig(stream=sys.stderr, level=settings.log_level.upper(), format=LOG_FORMAT)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        uvloop.run(_until_stopped(role, settings, config))
    except asyncio.CancelledError:
        log.critical("cut short by a second signal: what was not finished is on disk and goes on at the next start")
        return EXIT_NOT_ALL_OK
    except BaseExceptionGroup as crashed:
        errors = leaves(crashed)
        for error in errors:
            if isinstance(error, ConfigInvalid):
                raise error from None
            log.critical("crashed: %s", error, exc_info=None if isinstance(error, OutstationError) else error)
        return EXIT_NOT_ALL_OK
    return EXIT_OK


async def _until_stopped(role: Role, settings: StationSettings, config: Path) -> None:
    station = Station(role, settings)
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

    def reload() -> None:
        try:
            station.reload(settings_for(role, config))
        except ConfigInvalid as error:
            log.error("settings not reloaded: %s", error)

    with handled({signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: reload}):
        await station.run()


@contextlib.contextmanager
def _claimed(state_dir: Path) -> Iterator[None]:
    """Make the state folder, and hold it: two stations on one store would both believe to be the only writer."""
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (state_dir / "lock").open("w")
    except OSError as error:
        raise ConfigInvalid(
            "the state folder cannot be used",
            where="state_dir",
            found=f"{state_dir}: {error.strerror}",
            allowed="a folder that this user may write",
            hint="set state_dir: in the settings",
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigInvalid(
                "another station uses this state folder",
                where="state_dir",
                found=str(state_dir),
                allowed="one station for each folder",
                hint="stop the other one, or set state_dir: in the settings",
            ) from None
        yield
