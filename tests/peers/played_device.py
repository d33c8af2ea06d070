"""Devices that a test plays, with real keys: each judges what it hears as a device must, and says what the test says.

All of a site share one connection to the broker, so a test can also say things that a broker's rules would forbid.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from device_agent.errors import Refused
from device_agent.mqtt import BrokerAddress, MqttLink
from device_agent.protocol import bitmap, topics
from device_agent.protocol.messages import Certificate, Hello, Upward, Welcome, decode_downward, encode
from device_agent.trust import cose
from device_agent.trust.chain import Anchor, Issuer
from device_agent.trust.deliveries import CancelDelivery, read_delivery
from device_agent.trust.epochs import GroupKeys, open_epoch
from device_agent.trust.notices import Acknowledged, Bundle, Cancelled, open_ack, open_cancel, read_bundle
from device_agent.trust.sessions import (
    ROLL_CALL_TYP,
    Prekey,
    SessionOk,
    SessionOpening,
    open_prekey,
    open_roll_call,
    open_session,
    open_session_ok,
    sign_bye,
)
from device_agent.trust.signed_job import Order, SealedJob, open_group, open_single, read_job
from tests.peers import fleet
from tests.peers.waiting import until

FIRST, SECOND = "1" * 16, "2" * 16


class Job:
    """A job that a device could verify and open."""

    def __init__(self, sealed: SealedJob, order: Order, remaining: float, bits: bytes | None) -> None:
        self.jid = sealed.header.jid
        self.sealed = sealed
        self.order = order
        self.remaining = remaining
        self.bitmap = bits


class Camera:
    """One device: its keys, what it believes, its session."""

    def __init__(self, keys: fleet.PlayedDevice, pinned: bytes, clock: Any) -> None:
        self.keys = keys
        self.name, self.did = keys.name, keys.did
        self.certificate = keys.certificate
        self.site = fleet.SITE
        self.clock = clock
        self.anchor = Anchor(pinned)
        self.groups = GroupKeys()
        self.prekey: Prekey | None = None
        self.nonce = secrets.token_bytes(16)
        self.opening: SessionOpening | None = None
        self.ok: SessionOk | None = None
        self.roll_calls = 0
        self.marks: list[tuple[bytes, int]] = []
        self.place: int | None = None
        self.told: list[Any] = []
        self.refused: Counter[str] = Counter()

    # --- what it says ----------------------------------------------------------------------------------------------

    def open(self, **changed: Any) -> bytes:
        """Another opening, on the connection it has."""
        assert self.prekey is not None
        now = self.clock.monotonic()
        version = self.anchor.site_version(self.prekey.kid)
        fields = {"version": version, "epoch": self.groups.epoch, "marks": self.marks, **changed}
        self.ok = None
        self.opening = open_session(
            self.keys.key, self.prekey, nonce=self.nonce, secret=secrets.token_bytes(32), now=now, **fields
        )
        return self.opening.body

    def reconnect(self) -> None:
        """Forget the connection: the next opening belongs to another one."""
        self.nonce = secrets.token_bytes(16)
        self.opening = self.ok = None

    def frame(self, message: Upward | bytes, topic: str | None = None) -> bytes:
        """A frame of its session."""
        assert self.opening is not None
        body = message if isinstance(message, bytes) else encode(message)
        return self.opening.session.seal(body, topic or self.up("f"), self.clock.monotonic())

    def bye(self) -> bytes:
        """Its last will for this connection."""
        return sign_bye(self.keys.key, site=self.site, nonce=self.nonce)

    def up(self, kind: str) -> str:
        return topics.device_up(self.site, self.did, kind)

    # --- what it hears ---------------------------------------------------------------------------------------------

    def hear(self, topic: str, payload: bytes) -> None:
        try:
            kind = topic.rsplit("/", 1)[1]
            if topic == topics.trust(self.site):
                self.take_bundle(read_bundle(payload))
            elif topic == topics.group_ack(self.site):
                self._take_ack(payload)
            elif kind == "sok":
                self._take_word(payload)
            elif kind == "ep":
                self.take_epoch(payload)
            elif payload[:1] == b"\x01":
                self._take_frame(topic, payload)
            else:
                self._take_delivery(payload)
        except Refused as refusal:
            self.refused[refusal.reason] += 1

    def take_bundle(self, bundle: Bundle) -> None:
        """Whom to believe, as the site says it."""
        now = self.clock.wall()
        self.anchor.take_root_lists(bundle.root_lists)
        for body in bundle.site_certificates:
            self.anchor.take_site_certificate(body, now)
        for body in bundle.revocations:
            self.anchor.take_revocations(body)
        certificate = self.anchor.site_certificate(self.site)
        assert certificate is not None
        self.groups.start(certificate.kid)
        self.prekey = open_prekey(bundle.prekey, self._key, site=self.site, now=now)

    def _issuer(self, kid: bytes, role: str = "job") -> Issuer:
        return self.anchor.issuer(kid, role, self.site, self.clock.wall())

    def _key(self, kid: bytes) -> bytes:
        return self._issuer(kid).public

    def _take_word(self, payload: bytes) -> None:
        if self.opening is None:
            raise Refused("unknown_session", "it has opened none")
        if cose.kind(payload) == ROLL_CALL_TYP:
            sid = self.opening.session.sid
            open_roll_call(payload, self._key, device=self.did, site=self.site, sid=sid)
            self.roll_calls += 1
        else:
            self.ok = open_session_ok(payload, self._key, device=self.did, site=self.site, nonce=self.nonce)
            self.place = self.ok.index

    def take_epoch(self, payload: bytes) -> None:
        """A group key."""
        opened = open_epoch(
            payload, lambda kid: self._issuer(kid, "epoch"), self.keys.kem, device=self.did, site=self.site
        )
        self.groups.take(opened, self.clock.monotonic())

    def _take_frame(self, topic: str, payload: bytes) -> None:
        assert self.opening is not None
        message = decode_downward(self.opening.session.open(payload, topic, self.clock.monotonic()))
        if isinstance(message, Certificate):
            certificate = self.anchor.open_device_certificate(message.body, self.clock.wall())
            assert (certificate.did_text, certificate.name) == (self.did, self.name)
            self.certificate = message.body
        self.told.append(message)

    def _take_delivery(self, payload: bytes) -> None:
        delivery = read_delivery(payload)
        if delivery.bitmap is not None and (self.place is None or not bitmap.has(delivery.bitmap, self.place)):
            return
        if isinstance(delivery, CancelDelivery):
            self.told.append(open_cancel(delivery.cancel, self._key, site=self.site))
            return
        read = read_job(delivery.job)
        sealed = read.verified(self._key(read.kid))
        if sealed.header.epoch is None:
            order = open_single(sealed, self.keys.kem)
        else:
            order = open_group(sealed, self.groups.key(sealed.header.epoch, self.clock.monotonic()))
        self.told.append(Job(sealed, order, delivery.remaining, delivery.bitmap))

    def _take_ack(self, payload: bytes) -> None:
        ack = open_ack(payload, self._key, site=self.site)
        if self.place is not None and bitmap.has(ack.bitmap, self.place):
            self.told.append(ack)


class Cameras:
    """Every device of a site, on one connection."""

    def __init__(self, address: BrokerAddress, made: fleet.Fleet | None, clock: Any) -> None:
        self._fleet = made
        self.clock = clock
        self.by_name: dict[str, Camera] = {}
        self.published: dict[str, list[bytes]] = defaultdict(list)
        """Everything the station said, by topic."""
        self._by_did: dict[str, Camera] = {}
        site = fleet.SITE
        self.link = MqttLink(
            address,
            "played-devices",
            subscriptions=[
                topics.trust(site),
                *(f"os/{site}/d/+/{kind}" for kind in ("job", "sok", "ep")),
                topics.group_job(site),
                topics.group_ack(site),
                f"os/{site}/enr/rsp/+",
            ],
            on_message=self._hear,
            on_connected=self._nothing,
            on_lost=lambda: None,
            count=lambda _: None,
            incoming=65_536,
        )

    @property
    def fleet(self) -> fleet.Fleet:
        """Where devices made here come from."""
        assert self._fleet is not None, "these devices come from elsewhere"
        return self._fleet

    def __getitem__(self, name: str) -> Camera:
        return self.by_name[name]

    def make(self, name: str, **certified: Any) -> Camera:
        """A device with a certificate, which nobody has let in yet."""
        camera = Camera(self.fleet.device(name, **certified), self.fleet.fingerprint, self.clock)
        self.take(camera)
        return camera

    def take(self, camera: Camera) -> None:
        """One more device on this connection."""
        self.by_name[camera.name] = self._by_did[camera.did] = camera

    def _hear(self, topic: str, payload: bytes) -> None:
        self.published[topic].append(payload)
        levels = topic.split("/")
        if levels[2] == "d":
            camera = self._by_did.get(levels[3])
            if camera is not None:
                camera.hear(topic, payload)
        elif levels[2] != "enr":
            for camera in self.by_name.values():
                camera.hear(topic, payload)

    async def _nothing(self) -> None:
        return

    async def publish(self, topic: str, payload: bytes) -> None:
        """Say bytes on a topic, whoever may."""
        await self.link.publish(topic, payload)

    async def say(self, name: str, *messages: Upward | bytes) -> None:
        """A device says something in its session; bytes are sealed as they are."""
        camera = self[name]
        for message in messages:
            await self.publish(camera.up("f"), camera.frame(message))

    async def open(self, *names: str, **changed: Any) -> None:
        """Devices open sessions, and the station agrees."""
        await self.trusted(names)
        for name in names:
            await self.publish(self[name].up("ses"), self[name].open(**changed))
        await until(lambda: all(self[name].ok for name in names), what=f"the sessions of {names}")

    async def trusted(self, names: Iterable[str]) -> None:
        """Wait until devices know whom to believe; one made late hears what the others heard."""
        trust = topics.trust(fleet.SITE)
        await until(lambda: self.published[trust], what="the site's retained message")
        for name in names:
            if self[name].prekey is None:
                self[name].hear(trust, self.published[trust][-1])

    async def join(self, *names: str, session: str = FIRST) -> None:
        """Devices open sessions, say hello and are welcome."""
        await self.open(*names)
        for name in names:
            await self.say(name, Hello(session, "0.1.0", {"name": name}))
        await until(lambda: all(self.welcomed(name, session) for name in names), what=f"the welcome of {names}")

    def welcomed(self, name: str, session: str = FIRST) -> bool:
        """Whether a device is welcome in the session that it called so."""
        return any(isinstance(told, Welcome) and told.session == session for told in self[name].told)

    def of(self, kind: type[Any], *names: str) -> list[Any]:
        """What these devices were told of one kind, and could verify and open."""
        return [message for name in names for message in self[name].told if isinstance(message, kind)]


__all__ = ["FIRST", "SECOND", "Acknowledged", "Camera", "Cameras", "Cancelled", "Job", "played"]


@asynccontextmanager
async def played(address: BrokerAddress, made: fleet.Fleet | None, clock: Any) -> AsyncIterator[Cameras]:
    """Devices on a broker, for as long as the block lasts."""
    cameras = Cameras(address, made, clock)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(cameras.link.run())
        try:
            await until(lambda: cameras.link.state.connected, what="the devices' connection")
            yield cameras
        finally:
            running.cancel()
