"""Mode ``embedded``: a small broker inside this process (amqtt), for a machine without mosquitto.

Its cost grows with the subscriptions, so above ``COMFORTABLE_DEVICES`` it warns; it is for a first look. It keeps the
same rules as the managed one, and serves only this machine.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from device_agent.errors import ConfigInvalid
from device_agent.mqtt import BrokerAddress
from device_agent.start_errors import start_error
from gateway.broker.part import BrokerPart
from gateway.broker.passwords import hash_password, new_password
from gateway.broker.rules import Role

if TYPE_CHECKING:
    from gateway.broker.embedded_doors import Door, InnerBroker, Wall

log = logging.getLogger(__name__)

COMFORTABLE_DEVICES = 200
STOP_SECONDS = 5.0
LOOK_SECONDS = 5.0


class EmbeddedBroker(BrokerPart):
    """amqtt on loopback, behind doors of ours."""

    def __init__(self, *, site: str, host: str, port: int, enroll_port: int) -> None:
        super().__init__(site=site, host=host, port=port, enroll_port=enroll_port)
        self._station_user = f"station-{os.urandom(8).hex()}"
        self._station_password = new_password()
        self._station = {self._station_user: hash_password(self._station_password)}
        self._inner: InnerBroker | None = None
        self._wall: Wall | None = None
        self._doors: list[Door] = []
        self._count_devices: Callable[[], int] = int

    def count_devices(self, devices: Callable[[], int]) -> None:
        """Tell how many devices there are, so that it can warn."""
        self._count_devices = devices

    def station_address(self) -> BrokerAddress:
        """The devices' port, and a user made for this run."""
        return BrokerAddress(
            host=self.host, port=self.port, username=self._station_user, password=self._station_password
        )

    async def open(self) -> None:
        """Start it. Raises ``ConfigInvalid`` when amqtt is missing or a port is taken."""
        await super().open()
        refuse_open_address(self.host)
        try:
            # Imported here: only this mode needs it, and it is an extra.
            from gateway.broker.embedded_doors import Door, InnerBroker, Wall  # noqa: PLC0415 - optional dependency
        except ImportError:
            raise ConfigInvalid(
                "the embedded broker is not installed",
                where="broker.mode",
                found="embedded",
                allowed="managed or external; or embedded with the extra of that name",
                hint="pip install 'outstation[embedded]', or apt install mosquitto and use managed",
            ) from None
        logging.getLogger("amqtt").setLevel(logging.ERROR)
        logging.getLogger("transitions").setLevel(logging.ERROR)
        self._wall = Wall(self.site, self._users(self._station))
        inner = InnerBroker(self._wall)
        await inner.start()
        self._inner = inner
        devices = Door(Role.DEVICE, self._wall, inner)
        enrollment = Door(Role.ENROLLING, self._wall, inner, devices)
        self._doors = [devices, enrollment]
        await self._listen(devices, "broker.port", self.port)
        await self._listen(enrollment, "broker.enroll_port", self.enroll_port)
        log.info("embedded broker running, fine for up to %d devices", COMFORTABLE_DEVICES)
        self.spawn(self._watch_load(), "load")
        self._start_applying()

    async def close(self) -> None:
        """Stop it."""
        for door in self._doors:
            door.close()
        if self._inner is not None:
            async with asyncio.timeout(STOP_SECONDS):
                await self._inner.shutdown()

    def status(self) -> Mapping[str, Any]:
        """As the API shows it."""
        return self._status("embedded")

    async def _apply(self) -> None:
        assert self._wall is not None
        self._wall.users = self._users(self._station)
        for door in self._doors:
            door.judge_again()

    async def _listen(self, door: Door, key: str, port: int) -> None:
        try:
            await door.open(self.host, port)
        except OSError as error:
            raise start_error(
                error,
                "the embedded broker did not start",
                where=f"{key} {port}",
                found=str(error),
                allowed="a free port on this machine",
                hint=f"see what uses it: ss -ltnp 'sport = :{port}'",
            ) from None

    async def _watch_load(self) -> None:
        warned = False
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            crowded = self._count_devices() > COMFORTABLE_DEVICES
            if crowded and not warned:
                log.warning(
                    "%d devices on the embedded broker, fine for %d: apt install mosquitto, then broker.mode: managed",
                    self._count_devices(),
                    COMFORTABLE_DEVICES,
                )
            warned = crowded


def refuse_open_address(host: str) -> None:
    """Raise ``ConfigInvalid`` unless the address is loopback."""
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise ConfigInvalid(
            "the embedded broker serves only this machine",
            where="broker.host",
            found=host,
            allowed="127.0.0.1, ::1 or localhost",
            hint="apt install mosquitto, then broker.mode: managed",
        )
