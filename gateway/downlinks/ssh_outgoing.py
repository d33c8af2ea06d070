"""What is said in the stead of SSH devices, on its way to those who collect it: in order, and bounded.

What finds no room is dropped and counted: a return is said again until it is confirmed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from device_agent.errors import OutstationError, Refused
from device_agent.protocol.links import Returns
from device_agent.protocol.messages import Reseal, Return, Running, decode_upward
from gateway.downlinks.hearing import ResealPort
from gateway.metrics import Metrics

log = logging.getLogger(__name__)

WAITING: Final = 4096


class Outgoing:
    """One queue for all devices of the link."""

    def __init__(self, *, returns: Returns, reseal: ResealPort, metrics: Metrics, link: str = "ssh") -> None:
        self._link = link
        self._returns = returns
        self._reseal = reseal
        self._metrics = metrics
        self._waiting: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(WAITING)

    def say(self, device: str, body: bytes) -> None:
        """An encoded message of a device, by its name."""
        try:
            self._waiting.put_nowait((device, body))
        except asyncio.QueueFull:
            self._metrics.add(f"{self._link}_not_said")

    async def run(self) -> None:
        """Hand over what is said, for ever."""
        while True:
            device, body = await self._waiting.get()
            try:
                await self._hand_over(device, body)
            except Refused as refused:
                self._metrics.refused(self._link, refused.reason, device, refused.detail)
            except OutstationError as error:
                log.error("not handed over, it is said again device=%s error=%s", device, error)
            finally:
                self._waiting.task_done()

    async def settle(self) -> None:
        """Return when all that was said is handed over."""
        await self._waiting.join()

    async def _hand_over(self, device: str, body: bytes) -> None:
        message = decode_upward(body)
        match message:
            case Return():
                await self._returns.returned(device, message, len(body))
            case Running(jid=jid, away=away):
                self._returns.running(device, jid, away)
            case Reseal(jid=jid, reason=reason):
                await self._reseal(device, jid, reason)
            case _:
                # The group key is the station's own, and presence is told by those who look.
                self._metrics.add(f"{self._link}_not_said")
