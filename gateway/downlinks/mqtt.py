"""The MQTT downlink: one connection to the site's broker, what is said on it, and whom the devices there may believe.

One broadcast with a bitmap when most of the site is meant, else one message for each device. QoS 0 both ways: what
proves arrival is a device's own word, and what is not answered is sent again by ``jobs.deliver``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Protocol

from device_agent.clock import Clock
from device_agent.errors import Refused
from device_agent.mqtt import BrokerAddress, MqttLink, NotConnected
from device_agent.parts import Part
from device_agent.protocol import bitmap, topics
from device_agent.protocol.links import Answered, Parcel, Returns
from device_agent.protocol.messages import Confirm, encode
from device_agent.trust.time_beacon import EVERY_SECONDS, TimeBeacon
from gateway.answers import Answers
from gateway.broker.rules import NOTICES
from gateway.devices.authority import Authority
from gateway.devices.enrolled import Enrolled
from gateway.devices.epochs import Epochs
from gateway.devices.openings import Openings
from gateway.devices.prekeys import Prekeys
from gateway.devices.recertify import Recertification
from gateway.devices.registry import Registry
from gateway.devices.sessions import Sessions
from gateway.downlinks.confirmations import confirmations
from gateway.downlinks.hearing import Hearing, Reception, ResealPort
from gateway.downlinks.sealing import Sealing
from gateway.downlinks.words import Words
from gateway.metrics import Metrics

log = logging.getLogger(__name__)

INCOMING_MESSAGES = 65_536
MOST = 0.5
"""A broadcast costs every device of the site a look; above this share of them it costs less than single messages."""

CONNECT_SECONDS = 15.0
BUNDLE_SECONDS = 3600.0
"""How often devices are told whom to believe although nothing has changed."""

BEACON_SHARE = 0.75
"""Of several masters each signs the time once an hour; devices get the newest, once in about that time."""

_Routed = Callable[[bytes | None], bytes]
"""A payload, given the bitmap that routes it or None for a single device."""


class Desk(Reception, Protocol):
    """Who is a device here (``gateway.devices.enrollment.Enrollment``)."""

    def by_name(self, name: str) -> Enrolled | None:
        """The device that has this name."""

    def respond_with(self, respond: Callable[[str, bytes], Awaitable[object]]) -> None:
        """Answer those who want to join (dids as text) through this."""


class MqttDownlink(Part):
    """Implements ``Downlink`` for devices with an agent."""

    name: ClassVar[str] = "mqtt"

    def __init__(
        self,
        *,
        site: str,
        address: BrokerAddress,
        authority: Authority,
        enrollment: Desk,
        prekeys: Prekeys,
        sessions: Sessions,
        openings: Openings,
        epochs: Epochs,
        recertification: Recertification,
        registry: Registry,
        returns: Returns,
        reseal: ResealPort,
        answers: Answers,
        metrics: Metrics,
        clock: Clock,
        notices: Callable[[str], object] | None = None,
    ) -> None:
        self._site = site
        self._by_name = enrollment.by_name
        self._prekeys = prekeys
        self._sessions = sessions
        self._registry = registry
        self._returns = returns
        self._metrics = metrics
        self._sealing = Sealing(site=site, authority=authority, prekeys=prekeys)
        self._words = Words(site=site, sessions=sessions, registry=registry, send=self._send, metrics=metrics)
        hearing = Hearing(
            site=site,
            link=self.name,
            sessions=sessions,
            openings=openings,
            epochs=epochs,
            recertification=recertification,
            enrollment=enrollment,
            words=self._words,
            answers=answers,
            registry=registry,
            returns=returns,
            reseal=reseal,
            metrics=metrics,
            clock=clock,
        )
        self.beacon: Callable[[], TimeBeacon | None] = _no_beacon
        self._beacon_said = 0
        self._bundle_wake = asyncio.Event()
        self._ready = asyncio.Event()
        self._seen_lost = False
        self._hearing = hearing
        self._notices = notices
        self._link = MqttLink(
            address,
            client_id=f"station-{site}",
            subscriptions=[
                topics.station_filter(site),
                topics.enrol_request(site),
                *([] if notices is None else [NOTICES]),
            ],
            on_message=hearing.receive if notices is None else self._hear,
            on_connected=self._connected,
            on_lost=self._lost,
            count=metrics.add,
            incoming=INCOMING_MESSAGES,
            name="mqtt",
            clock=clock,
        )
        sessions.on_drop(hearing.lost)
        openings.send_with(self._send)
        recertification.send_with(self._send)
        epochs.tell_with(present=sessions.dids, may_know=sessions.may_open, send=self._send)
        enrollment.respond_with(self._respond)
        authority.on_change(self._trust_changed)
        prekeys.on_change(self._bundle_wake.set)

    async def open(self) -> None:
        """Connect; a broker that is away does not keep the station from starting."""
        self.spawn(self._link.run(), "link")
        self.spawn(self._words.run(), "words")
        self.spawn(self._words.run_welcomes(), "welcome")
        self.spawn(self._renew_bundle(), "trust")
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._ready.wait()
        except TimeoutError:
            log.warning("started without the broker broker=%s", self._link.address)

    async def drain(self) -> None:
        """Tell the devices what is on disk, while there is a link to tell them by."""
        await self._returns.settle()

    def status(self) -> dict[str, Any]:
        """The link to the broker, as the API shows it."""
        state = self._link.state
        return {
            "connected": state.connected,
            "since": state.since,
            "last_error": state.last_error,
            "next_attempt": state.next_attempt,
        }

    @property
    def connected(self) -> bool:
        """Whether there is a connection to the broker."""
        return self._link.state.connected

    def heard_since(self) -> float:
        """Since when all that arrives is taken without delay: before that, an answer may still wait here unread."""
        return self._link.backlog.clear_since()

    async def stuck(self) -> str | None:
        """Why the link does not work any more; None while it does, or is on its way to a broker."""
        return await self._link.stuck()

    def _hear(self, topic: str, payload: bytes) -> Awaitable[None] | None:
        if topic == NOTICES:
            if self._notices is not None:
                self._notices(payload.decode("utf-8", "replace").strip())
            return None
        return self._hearing.receive(topic, payload)

    # --- down ------------------------------------------------------------------------------------------------------

    async def deliver(self, parcel: Parcel, remaining: float, names: Sequence[str]) -> None:
        """Send a job to these devices, as it was sealed for this site: for all of them, or for each."""
        group, single = self._sealing.choose(parcel)
        if single:
            bodies = {name: self._sealing.job(single[name], remaining, None) for name in names if name in single}
            await self._publish_each(bodies)
            names = [name for name in names if name not in single]
        if group is not None and names:
            body = group
            await self._spread(names, lambda bits: self._sealing.job(body, remaining, bits))
        elif names:
            self._metrics.add("mqtt_not_sealed", len(names))

    async def cancel(self, jid: str, names: Sequence[str]) -> None:
        """Tell these devices not to start a job."""
        await self._spread(names, lambda bits: self._sealing.cancel(jid, bits))

    async def confirm(self, answered: Answered) -> None:
        """Tell devices that their returns are on disk: most of the site at once, each other one in a single message."""
        broadcasts, single = confirmations(answered, self._is_most)
        for jids, names in broadcasts:
            await self._publish(topics.group_ack(self._site), self._sealing.ack(jids, self._bits(names)))
            self._metrics.add("mqtt_broadcasts")
        # Without a session the device says it again when it has one.
        frames: list[tuple[str, bytes]] = []
        for jids, names in single:
            dids = (device.did for device in self._devices(names))
            frames += self._sessions.frames(dids, encode(Confirm(jids)))
        await self._publish_all(frames)

    async def _spread(self, names: Sequence[str], payload: _Routed) -> None:
        """One broadcast when most of the site is meant, else one message for each."""
        if self._is_most(names):
            await self._publish(topics.group_job(self._site), payload(self._bits(names)))
            self._metrics.add("mqtt_broadcasts")
        else:
            await self._publish_each(dict.fromkeys(names, payload(None)))

    def _is_most(self, names: Sequence[str]) -> bool:
        return len(names) > 1 and len(names) > self._registry.present() * MOST

    def _devices(self, names: Iterable[str]) -> list[Enrolled]:
        found = map(self._by_name, names)
        return [device for device in found if device is not None]

    def _bits(self, names: Iterable[str]) -> bytes:
        return bitmap.pack(device.place for device in self._devices(names) if device.place >= 0)

    async def _publish_each(self, bodies: dict[str, bytes]) -> None:
        await self._publish_all(
            [(topics.device_job(self._site, device.did), bodies[device.name]) for device in self._devices(bodies)]
        )

    async def _publish_all(self, messages: list[tuple[str, bytes]]) -> None:
        try:
            await self._link.publish_many(messages)
            self._metrics.add("mqtt_unicasts", len(messages))
        except NotConnected as error:
            # Nothing is lost: whoever did not answer is sent it again.
            log.warning("not sent, it is sent again later devices=%d error=%s", len(messages), error.what)

    async def _publish(self, topic: str, payload: bytes) -> None:
        try:
            await self._link.publish(topic, payload)
        except NotConnected as error:
            log.warning("not sent, it is sent again later topic=%s error=%s", topic, error.what)

    async def _send(self, messages: Iterable[tuple[str, bytes]]) -> None:
        await self._link.publish_many(messages)

    async def _respond(self, did: str, payload: bytes) -> None:
        await self._publish(topics.enrol_response(self._site, did), payload)

    # --- the link --------------------------------------------------------------------------------------------------

    async def _connected(self) -> None:
        if self._seen_lost:
            self._registry.unheard(self.name)
            # Last words may have been missed: everybody opens another session, and says hello in it.
            self._prekeys.renew_instance()
        await self._publish_bundle()
        self._beacon_said = 0
        await self._publish_beacon()
        self._ready.set()

    def _lost(self) -> None:
        # Last wills may have been missed while the link was away: nobody is known to be here until heard again.
        self._seen_lost = True
        self._registry.unheard(self.name)

    async def _publish_bundle(self) -> None:
        try:
            body = self._sealing.bundle()
        except Refused as refusal:
            log.error("devices cannot be told whom to believe: %s", refusal)
            return
        if body is not None:
            await self._link.publish(topics.trust(self._site), body, retain=True)

    async def beacon_changed(self) -> None:
        """There is a newer time beacon."""
        try:
            await self._publish_beacon()
        except NotConnected:
            # It is published with every connection.
            self._metrics.add("mqtt_not_sent")

    async def _publish_beacon(self) -> None:
        """One broadcast for the whole site, kept by the broker for devices that come later."""
        newest = self.beacon()
        if newest is not None and newest.issued >= self._beacon_said + EVERY_SECONDS * BEACON_SHARE:
            await self._link.publish(topics.group_time(self._site), newest.body, retain=True)
            self._beacon_said = newest.issued

    async def _trust_changed(self) -> None:
        self._bundle_wake.set()

    async def _renew_bundle(self) -> None:
        while True:
            # The broker may have lost or replaced the retained message without a sign of it here.
            with suppress(TimeoutError):
                async with asyncio.timeout(BUNDLE_SECONDS):
                    await self._bundle_wake.wait()
            self._bundle_wake.clear()
            try:
                await self._publish_bundle()
            except NotConnected:
                # It is published with every connection.
                self._metrics.add("mqtt_not_sent")


def _no_beacon() -> None:
    """Until a station has time beacons."""
