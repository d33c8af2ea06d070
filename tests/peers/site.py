"""A site: the rooms and the downlink of a gateway on a real broker, and devices that the test plays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from device_agent.mqtt import BrokerAddress
from device_agent.parts import Part
from device_agent.protocol.messages import Beat, Hello, Return
from gateway.answers import Answers
from gateway.config import StationSettings
from gateway.devices.openings import Openings
from gateway.devices.prekeys import Prekeys
from gateway.devices.recertify import Recertification
from gateway.devices.revocation import Revocation
from gateway.devices.sessions import Sessions
from gateway.downlinks.mqtt import MqttDownlink
from gateway.jobs.accept import JobRequest
from gateway.jobs.open_jobs import OpenJob
from gateway.rooms import Rooms
from tests.peers.clock import HandClock
from tests.peers.database import look
from tests.peers.desk import Desk
from tests.peers.fleet import SITE, Fleet, Party
from tests.peers.played_device import Camera, Cameras, played
from tests.peers.waiting import until
from upstream.curve import key_bytes


class Heard:
    """Implements ``Returns``: keeps what devices answered, and confirms nothing."""

    def __init__(self) -> None:
        self.running_jobs: list[tuple[str, str]] = []
        self.returns: list[tuple[str, Return]] = []

    def hello(self, device: str, hello: Hello) -> None:
        return

    def running(self, device: str, jid: str, away: float = 0.0) -> None:
        self.running_jobs.append((device, jid))

    async def returned(self, device: str, message: Return, size: int) -> None:
        self.returns.append((device, message))

    async def settle(self) -> None:
        return


class Gateway:
    """The rooms of a gateway and its downlink, each the real thing; its enrollment is what the test says.

    Without ``working`` it has no jobs: what devices answer is kept in ``heard``, and nothing is confirmed.
    """

    def __init__(
        self, folder: Path, address: BrokerAddress, clock: HandClock, desk: Desk, *, working: bool = False
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        rooms = self.rooms = Rooms("gateway", StationSettings(name=SITE), folder, clock)
        self.desk, self.path, self._working = desk, folder / "station.sqlite", working
        self.writer, self.metrics, self.bus, self.registry = rooms.writer, rooms.metrics, rooms.bus, rooms.registry
        self.heard = Heard()
        self.resealed: list[tuple[str, str, str]] = []
        self.raised: list[int] = []
        authority = self.authority = desk.authority = rooms.authority
        epochs = self.epochs = rooms.epochs
        self.prekeys = Prekeys(site=SITE, authority=authority, writer=rooms.writer, reader=rooms.reader, clock=clock)
        sessions = self.sessions = Sessions(
            site=SITE,
            authority=authority,
            by_did=desk.by_did,
            quarantine=desk.quarantine,
            bus=rooms.bus,
            metrics=rooms.metrics,
            clock=clock,
        )
        self.revocation = Revocation(
            site=SITE,
            authority=authority,
            sessions=sessions,
            epochs=epochs,
            devices=desk.all,
            remove_users=desk.remove_users,
            revoked_above=desk.revoked_above,
            writer=rooms.writer,
            reader=rooms.reader,
            metrics=rooms.metrics,
        )
        self.openings = Openings(
            site=SITE,
            authority=authority,
            prekeys=self.prekeys,
            sessions=sessions,
            epochs=epochs,
            revocation=self.revocation,
            raise_sequence=self.raised.append,
            writer=rooms.writer,
            reader=rooms.reader,
            metrics=rooms.metrics,
            clock=clock,
        )
        self.recertification = Recertification(
            authority=authority, sessions=sessions, renew=desk.renew, metrics=rooms.metrics
        )
        self.answers = Answers("questions_of_devices", rooms.metrics)
        self.downlink = MqttDownlink(
            site=SITE,
            address=address,
            authority=authority,
            enrollment=desk,
            prekeys=self.prekeys,
            sessions=sessions,
            openings=self.openings,
            epochs=epochs,
            recertification=self.recertification,
            registry=rooms.registry,
            returns=rooms.collection if working else self.heard,
            reseal=rooms.delivery.reseal if working else self.reseal,
            answers=self.answers,
            metrics=rooms.metrics,
            clock=clock,
        )
        rooms.downlinks[self.downlink.name] = self.downlink

    def look(self, sql: str) -> list[Any]:
        """Rows of its file, by a connection of the test's own."""
        return look(self.path, sql)

    async def reseal(self, device: str, jid: str, reason: str) -> None:
        self.resealed.append((device, jid, reason))

    @property
    def parts(self) -> list[Part]:
        """Everything in the order in which it opens."""
        jobs = self.rooms.parts_after_recovery() if self._working else []
        own: list[Part] = [self.answers, self.prekeys, self.sessions, self.revocation, self.openings]
        own += [self.recertification, self.downlink]
        return [*self.rooms.parts_before_recovery(), *jobs, *own]


class Scene:
    """A gateway and the devices on its broker."""

    def __init__(self, gateway: Gateway, devices: Cameras, clock: HandClock) -> None:
        self.gateway = gateway
        self.devices = devices
        self.clock = clock

    def add(self, *names: str) -> list[Camera]:
        """Devices that are let in, and have said nothing yet."""
        made = [self.devices.make(name, issuer=party_of(self.gateway)) for name in names]
        for camera in made:
            self.gateway.desk.enrol(camera.keys)
        return made

    async def join(self, *names: str) -> list[Camera]:
        """Devices that are let in and here."""
        made = self.add(*names)
        await self.devices.join(*names)
        return made

    async def issue(self, *names: str, **changed: Any) -> OpenJob:
        """A job for these devices."""
        request = JobRequest(tgt=",".join(names), tgt_type="list", fun="test.ping", **changed)
        rooms = self.gateway.rooms
        opened = rooms.open_jobs.get(await rooms.acceptance.submit(request, "ops"))
        assert opened is not None
        return opened

    async def certified(self) -> None:
        """The gateway belongs to the fleet from now on."""
        await certified(self.gateway, self.devices.fleet)

    async def refuses(self, reason: str, device: str, times: int = 1, link: str = "mqtt") -> None:
        """Wait until this was refused, so often, with the device named."""
        peers = self.gateway.metrics.peers
        await until(lambda: peers[link, reason, device] >= times, what=f"{reason}: {dict(peers)}")
        assert peers[link, reason, device] == times

    async def goes_on(self, name: str) -> None:
        """The device's session is as it was."""
        known = self.gateway.registry.own_device(name)
        assert known is not None
        self.clock.move(1.0)
        await self.devices.say(name, Beat(known.session))
        await until(lambda: known.heard == self.clock.monotonic(), what="the next beat")

    def refused(self) -> dict[str, int]:
        """What was refused on this link, by reason."""
        refusals = self.gateway.metrics.refusals
        return {reason: count for (link, reason), count in refusals.items() if link == "mqtt"}


def party_of(gateway: Gateway) -> Party:
    """The site, with the keys that its gateway has made."""
    authority = gateway.authority
    return Party(SITE, authority.signing, authority.kem, key_bytes(authority.curve.public))


async def certified(gateway: Gateway, fleet: Fleet) -> None:
    """Let a gateway belong to a fleet."""
    await gateway.authority.join(fleet.fingerprint, [])
    certificate = fleet.certify_site(party_of(gateway))
    await gateway.authority.install(root_lists=fleet.chain, certificate=certificate)


@asynccontextmanager
async def running_gateway(
    folder: Path,
    address: BrokerAddress,
    clock: HandClock,
    fleet: Fleet,
    desk: Desk,
    *,
    joined: bool = True,
    working: bool = False,
) -> AsyncIterator[Gateway]:
    """A gateway of this fleet, for as long as the block lasts."""
    gateway = Gateway(folder, address, clock, desk, working=working)
    if joined and not gateway.authority.joined:
        await certified(gateway, fleet)
    async with AsyncExitStack() as stack:
        for part in gateway.parts:
            await stack.enter_async_context(part)
        yield gateway


@asynccontextmanager
async def opened_scene(
    folder: Path, address: BrokerAddress, clock: HandClock, *, working: bool = False
) -> AsyncIterator[Scene]:
    """A gateway that belongs to a fleet, and devices, on a broker that runs."""
    fleet, desk = Fleet(), Desk()
    async with (
        played(address, fleet, clock) as devices,
        running_gateway(folder, address, clock, fleet, desk, working=working) as made,
    ):
        yield Scene(made, devices, clock)
