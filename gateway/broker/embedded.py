"""Mode ``embedded``: a small broker inside this process (amqtt), for a machine without mosquitto.

Its cost grows with the subscriptions, so above ``COMFORTABLE_DEVICES`` it warns; it is for a first look.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from device_agent.errors import ConfigInvalid
from gateway.broker.mosquitto import refuse_open_address
from gateway.broker.part import BrokerPart

log = logging.getLogger(__name__)

COMFORTABLE_DEVICES = 200
STOP_SECONDS = 5.0
LOOK_SECONDS = 5.0


class EmbeddedBroker(BrokerPart):
    """amqtt on loopback."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self._broker: Any = None
        self._devices: Callable[[], int] = int

    def count_devices(self, devices: Callable[[], int]) -> None:
        """Tell how many devices there are, so that it can warn."""
        self._devices = devices

    async def open(self) -> None:
        """Start it. Raises ``ConfigInvalid`` when amqtt is missing or the port is taken."""
        refuse_open_address(self.host)
        try:
            # Imported here: only this mode needs it, and it is an extra.
            from amqtt.broker import Broker  # noqa: PLC0415 - optional dependency
            from amqtt.errors import BrokerError  # noqa: PLC0415 - optional dependency
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
        self._broker = Broker(
            {
                "listeners": {"default": {"type": "tcp", "bind": f"{self.host}:{self.port}"}},
                "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
            }
        )
        try:
            await self._broker.start()
        except (BrokerError, OSError) as error:
            self._broker = None
            raise ConfigInvalid(
                "the embedded broker did not start",
                where=f"broker.port {self.port}",
                found=str(error),
                allowed="a free port on this machine",
                hint=f"see what uses it: ss -ltnp 'sport = :{self.port}'",
            ) from None
        log.info("embedded broker running, fine for up to %d devices", COMFORTABLE_DEVICES)
        self.spawn(self._watch_load(), "load")

    async def _watch_load(self) -> None:
        warned = False
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            crowded = self._devices() > COMFORTABLE_DEVICES
            if crowded and not warned:
                log.warning(
                    "%d devices on the embedded broker, fine for %d: apt install mosquitto, then broker.mode: managed",
                    self._devices(),
                    COMFORTABLE_DEVICES,
                )
            warned = crowded

    async def close(self) -> None:
        """Stop it."""
        if self._broker is not None:
            async with asyncio.timeout(STOP_SECONDS):
                await self._broker.shutdown()

    def status(self) -> Mapping[str, Any]:
        """As the API shows it."""
        return {"mode": "embedded", "host": self.host, "port": self.port}
