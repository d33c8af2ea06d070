"""The MQTT downlink: where a station's bytes become messages, and its messages bytes.

One broadcast with a bitmap when most of the site is meant, else one message for each device. QoS 0 both ways: what
proves arrival is a device's own word, and what is not answered is sent again by ``jobs.deliver``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from device_agent.clock import Clock
from device_agent.errors import Refused
from device_agent.mqtt import BrokerAddress, MqttLink, NotConnected
from device_agent.parts import Part
from device_agent.protocol import bitmap, limits, topics
from device_agent.protocol.links import Returns
from device_agent.protocol.messages import (
    Beat,
    Cancel,
    Confirm,
    Deliver,
    Downward,
    Gone,
    Hello,
    Return,
    RollCall,
    Running,
    Welcome,
    decode_upward,
    encode,
)
from gateway.devices.registry import Registry
from gateway.metrics import Metrics
from gateway.store.writer import StoreFailed

log = logging.getLogger(__name__)

INCOMING_MESSAGES = 65_536
MOST = 0.5
"""A broadcast costs every device of the site a look; above this share of them it costs less than single messages."""

WELCOME_RETRY_SECONDS = 1.0
CONNECT_SECONDS = 15.0

_Routed = Callable[[bytes | None], Downward]
"""A message, given the bitmap that routes it or None for a single device."""


class MqttDownlink(Part):
    """Implements ``Downlink`` for devices with an agent."""

    name: ClassVar[str] = "mqtt"

    def __init__(
        self,
        *,
        site: str,
        address: BrokerAddress,
        registry: Registry,
        returns: Returns,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._site = site
        self._registry = registry
        self._returns = returns
        self._metrics = metrics
        self._clock = clock
        self._welcomes: dict[str, Welcome] = {}
        self._welcome_wake = asyncio.Event()
        self._ready = asyncio.Event()
        self._seen_lost = False
        self._link = MqttLink(
            address,
            client_id=f"station-{site}",
            subscriptions=[topics.station_filter(site)],
            on_message=self._receive,
            on_connected=self._connected,
            on_lost=self._lost,
            count=metrics.add,
            incoming=INCOMING_MESSAGES,
            name="mqtt",
            clock=clock,
        )

    async def open(self) -> None:
        """Connect; a broker that is away does not keep the station from starting."""
        self.spawn(self._link.run(), "link")
        self.spawn(self._send_welcomes(), "welcome")
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

    async def deliver(self, job: bytes, remaining: float, names: Sequence[str]) -> None:
        """Send a job to these devices."""
        await self._spread(names, lambda bits: Deliver(job, remaining, bits), topics.group_job(self._site))

    async def cancel(self, jid: str, names: Sequence[str]) -> None:
        """Tell these devices not to start a job."""
        await self._spread(names, lambda bits: Cancel(jid, bits), topics.group_job(self._site))

    async def confirm(self, jid: str, names: Sequence[str]) -> None:
        """Tell these devices that their returns are on disk."""
        await self._spread(names, lambda bits: Confirm([jid], bits), topics.group_ack(self._site))

    async def _spread(self, names: Sequence[str], message: _Routed, group: str) -> None:
        """One broadcast when most of the site is meant, else one message for each."""
        present = self._registry.present()
        try:
            if len(names) > 1 and len(names) > present * MOST:
                places = (self._registry.own_device(name) for name in names)
                bits = bitmap.pack(device.place for device in places if device is not None and device.place is not None)
                await self._link.publish(group, encode(message(bits)))
                self._metrics.add("mqtt_broadcasts")
            else:
                body = encode(message(None))
                await self._link.publish_many((topics.device_job(self._site, name), body) for name in names)
                self._metrics.add("mqtt_unicasts", len(names))
        except NotConnected as error:
            # Nothing is lost: whoever did not answer is sent it again.
            log.warning("not sent, it is sent again later devices=%d error=%s", len(names), error.what)

    async def _receive(self, topic: str, payload: bytes) -> None:
        device = "a topic of no device"
        try:
            device = topics.sender(topic)
            message = decode_upward(payload)
            match message:
                case Return():
                    await self._returns.returned(device, message, len(payload))
                case Running(jid=jid):
                    self._returns.running(device, jid)
                case Beat():
                    if self._registry.beat(device, message):
                        for jid in message.running:
                            self._returns.running(device, jid)
                    else:
                        await self._say(device, RollCall())
                case Hello():
                    place = self._registry.hello(self.name, device, message)
                    self._welcomes[device] = Welcome(message.session, place, limits.BEAT_SECONDS)
                    self._welcome_wake.set()
                case Gone():
                    self._registry.gone(device, message)
        except Refused as refusal:
            self._metrics.refused("mqtt", refusal.reason, device, refusal.detail)

    async def _connected(self) -> None:
        if self._seen_lost:
            self._registry.unheard(self.name)
        await self._link.publish(topics.group_job(self._site), encode(RollCall()))
        self._ready.set()

    def _lost(self) -> None:
        # Last wills may have been missed while the link was away: nobody is known to be here until heard again.
        self._seen_lost = True
        self._registry.unheard(self.name)

    async def _say(self, device: str, message: Downward) -> None:
        try:
            await self._link.publish(topics.device_job(self._site, device), encode(message))
        except NotConnected:
            self._metrics.add("mqtt_not_sent")

    async def _send_welcomes(self) -> None:
        """Tell devices their place, only after it is on disk: no two may ever believe in the same one."""
        while True:
            await self._welcome_wake.wait()
            self._welcome_wake.clear()
            welcomes, self._welcomes = self._welcomes, {}
            try:
                await self._registry.flush()
                await self._link.publish_many(
                    (topics.device_job(self._site, device), encode(welcome)) for device, welcome in welcomes.items()
                )
            except (StoreFailed, NotConnected) as error:
                log.warning("welcomes delayed devices=%d error=%s", len(welcomes), error.what)
                self._welcomes = {**welcomes, **self._welcomes}
                self._welcome_wake.set()
                await asyncio.sleep(WELCOME_RETRY_SECONDS)
                continue
            for device in welcomes:
                self._registry.welcomed(device)
