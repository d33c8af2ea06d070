"""Masters, gateways and relays with what joining and trust need: real files, stores, keys and sockets, no devices."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from device_agent.clock import Clock
from device_agent.parts import Part
from device_agent.trust import hpke
from device_agent.trust.root_list import MasterKey
from gateway.bus import Bus
from gateway.devices.authority import Authority
from gateway.devices.epochs import master_info
from gateway.devices.registry import Registry
from gateway.devices.site_keys import SiteKeys
from gateway.devices.site_trust import SiteTrust
from gateway.devices.time_beacons import TimeBeacons
from gateway.devices.trust_above import TrustAbove
from gateway.fleet.ceremony import Ceremony
from gateway.fleet.grants import Grant
from gateway.fleet.joining import join_with_token, site_token
from gateway.metrics import Metrics
from gateway.spool.queue import Spool
from gateway.store.migrate import migrate
from gateway.store.reader import Reader
from gateway.store.writer import Writer
from tests.peers.broker import free_port
from tests.peers.clock import HandClock
from tests.peers.fleet import private
from tests.peers.ports import Above, Below
from tests.peers.waiting import until
from upstream.curve import key_bytes, load_or_make
from upstream.sites import Sites
from upstream.uplink import MasterAddress, Uplink, UplinkRules, masters_above

ECHO_SECONDS = 0.2
SILENT_SECONDS = 3.0
"""After so long a master that was stopped is known to be gone; the others must be heard within it."""


class Groups:
    """A site's group key, changed by the test; sealed to the masters as the real one is."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        self.epoch = 1

    @property
    def key(self) -> bytes:
        return private(f"{self._authority.site} {self.epoch}")

    def group_key(self, site: str) -> tuple[int, bytes] | None:
        return (self.epoch, self.key) if site == self._authority.site else None

    def for_masters(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        root = self._authority.anchor.root
        info = master_info(self._authority.site, self._authority.signing.kid, self.epoch)
        masters = root.masters if root is not None else ()
        return self.epoch, [(master.kid, hpke.seal(master.kem, info, self.key)) for master in masters]

    async def go_above(self, known: int) -> None:
        self.epoch = max(self.epoch, known + 1 if known > self.epoch else 0)


class _Station:
    """What masters and gateways have alike."""

    def __init__(self, folder: Path, name: str, clock: HandClock, role: Literal["master", "gateway"]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.name, self.clock = folder, name, clock
        self.path = folder / "station.sqlite"
        epoch = migrate(self.path)
        self.writer, self.reader = Writer(self.path), Reader(self.path)
        self.metrics = Metrics(clock)
        spool = Spool(self.writer, self.reader, epoch, enabled=False)
        self.bus = Bus(self.writer, self.reader, spool, self.metrics, clock, name)
        self.registry = Registry(
            site=name, writer=self.writer, reader=self.reader, bus=self.bus, metrics=self.metrics, clock=clock
        )
        self.curve = load_or_make(folder / "curve.key")
        self.authority = Authority(folder, role=role, site=name, curve=self.curve, clock=clock)
        self.beacons = TimeBeacons(folder, authority=self.authority, clock=clock)
        self._stack = AsyncExitStack()

    def refused(self) -> dict[str, int]:
        """What was refused on the rope, by reason."""
        return {reason: count for (link, reason), count in self.metrics.refusals.items() if link == "uplink"}

    def parts(self) -> list[Part]:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        for part in self.parts():
            await self._stack.enter_async_context(part)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)


class _WithSites(_Station):
    """A station that sites connect to."""

    def open_for_sites(self, port: int) -> None:
        self.above = Above()
        self.trust = SiteTrust(
            authority=self.authority,
            registry=self.registry,
            writer=self.writer,
            reader=self.reader,
            metrics=self.metrics,
            clock=self.clock,
        )
        self.keys = SiteKeys(
            station=self.name,
            writer=self.writer,
            reader=self.reader,
            bus=self.bus,
            metrics=self.metrics,
            clock=self.clock,
            trust=self.trust,
        )
        self.trust.time_beacons = self.beacons.bodies
        self.beacons.on_change(self.trust.tell)
        self.sites = Sites(
            station=self.name,
            listen=f"tcp://127.0.0.1:{port}",
            keys=self.curve,
            admission=self.keys,
            inbox=self.above,
            watch=self.above,
            refusals=self.metrics,
            # The rope keeps its own time: whether somebody is silent is not for a test to decide here.
            clock=Clock(),
            trust=self.trust,
        )
        self.keys.on_change(self.sites.keys_changed)
        self.registry.ask_accepted(lambda site: self.keys.of_site(site) is not None)

    def states(self) -> dict[str, str]:
        """The standing of each site, as keys are shown."""
        return {view["site"]: view["state"] for view in self.keys.views()}


class MasterStation(_WithSites):
    """A master on a port of its own; in a fleet when the ceremony has one."""

    def __init__(self, folder: Path, name: str, clock: HandClock, port: int | None = None) -> None:
        super().__init__(folder, name, clock, "master")
        self.port = port or free_port()
        self.open_for_sites(self.port)

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def described(self) -> MasterKey:
        """As it describes itself to the holders of the root keys."""
        authority = self.authority
        curve = key_bytes(self.curve.public)
        return MasterKey(self.name, authority.signing.public, authority.kem.public, curve, (self.address,), ())

    def parts(self) -> list[Part]:
        held: list[Part] = [self.writer, self.reader, self.authority, self.beacons]
        return [*held, self.registry, self.trust, self.keys, self.sites]


class GatewayStation(_WithSites):
    """A gateway; a relay when it has a port for sites. ``settings`` are masters that it is told of beside its fleet."""

    def __init__(
        self,
        folder: Path,
        name: str,
        clock: HandClock,
        *,
        settings: tuple[MasterAddress, ...] = (),
        port: int | None = None,
    ) -> None:
        super().__init__(folder, name, clock, "gateway")
        self.port = port
        self.open_for_sites(port or 1)
        self.below, self.groups = Below(), Groups(self.authority)
        self.above_trust = TrustAbove(
            authority=self.authority,
            refusals=self.metrics,
            groups=self.groups,
            sites=self.trust if port else None,
            beacons=self.beacons,
        )
        self._settings = settings
        self.uplink = Uplink(
            site=name,
            keys=self.curve,
            masters=self.masters(),
            echo_seconds=ECHO_SECONDS,
            outgoing=self.below,
            roll=self.below.roll,
            intake=self.below,
            refusals=self.metrics,
            clock=Clock(),
            trust=self.above_trust,
            rules=UplinkRules(master_alive_interval=SILENT_SECONDS),
        )
        self.authority.on_change(self._masters_changed)

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    @property
    def connected_to(self) -> str:
        """The master it is connected to; empty for none."""
        status = self.uplink.status()
        return str(status["master"]) if status["state"] == "connected" else ""

    def masters(self) -> list[MasterAddress]:
        """Those of the settings, of the join and of the root list, in this order."""
        found = [MasterAddress(master.address, master.key) for master in self.authority.masters()]
        return masters_above(self._settings, found)

    async def _masters_changed(self) -> None:
        self.uplink.replace_masters(self.masters())

    def parts(self) -> list[Part]:
        below: list[Part] = [self.trust, self.keys, self.sites] if self.port else []
        return [self.writer, self.reader, self.authority, self.beacons, self.registry, *below, self.uplink]


class Holders:
    """The holders of the root keys, with their folder."""

    def __init__(self, folder: Path, clock: HandClock, *masters: MasterStation) -> None:
        self.clock = clock
        self.ceremony = Ceremony(folder)
        self.ceremony.begin(clock.wall(), standalone=False)
        for master in masters:
            self.add(master)

    def add(self, master: MasterStation, *, root_shell: bool = False) -> None:
        assert self.ceremony.add_master(master.described(), [], self.clock.wall(), root_shell=root_shell).complete

    def drop(self, name: str) -> None:
        assert self.ceremony.drop_master(name, [], self.clock.wall()).complete

    async def publish(self, *masters: MasterStation) -> None:
        """Carry the root lists to masters."""
        for master in masters:
            await master.authority.install(root_lists=self.ceremony.chain())


def token_of(master: MasterStation) -> str:
    """The token with which gateways find this master."""
    return site_token(master.authority, []).text()


async def joined(master: MasterStation, gateway: GatewayStation, **grant: Any) -> None:
    """The gateway has joined with the master's token, was accepted, and has its certificate."""
    await join_with_token(gateway.authority, token_of(master))
    await until(lambda: master.states().get(gateway.name) == "pending", what="the knock")
    await master.keys.accept(gateway.name, None, Grant(**grant))
    await until(lambda: gateway.authority.certificate is not None, what="the certificate")
