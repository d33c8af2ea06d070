"""Short words to single devices: that they are registered, and that a session is not known here."""

from __future__ import annotations

import asyncio
import logging

from device_agent.mqtt import NotConnected
from device_agent.protocol import topics
from device_agent.protocol.messages import Welcome, encode
from device_agent.protocol.questions import Answer
from gateway.devices.registry import Registry
from gateway.devices.sessions import Send, Sessions
from gateway.metrics import Metrics
from gateway.store.writer import StoreFailed

log = logging.getLogger(__name__)

WAITING = 1000
WELCOME_RETRY_SECONDS = 1.0


class Words:
    """Words that wait to be handed to the broker, bounded."""

    def __init__(self, *, site: str, sessions: Sessions, registry: Registry, send: Send, metrics: Metrics) -> None:
        self._site = site
        self._sessions = sessions
        self._registry = registry
        self._send = send
        self._metrics = metrics
        self._waiting: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(maxsize=WAITING)
        self._welcomes: dict[str, Welcome] = {}
        self._welcome_wake = asyncio.Event()

    def say_on_session(self, did: str, body: bytes) -> None:
        """A word about its session; one that has no room is said at the next occasion."""
        try:
            self._waiting.put_nowait((topics.device_sok(self._site, did), body))
        except asyncio.QueueFull:
            self._metrics.add("mqtt_not_sent")

    def welcome(self, did: str, welcome: Welcome) -> None:
        """The device said hello; the newest welcome counts."""
        self._welcomes[did] = welcome
        self._welcome_wake.set()

    async def answer(self, did: str, answer: Answer) -> None:
        """The answer to a question; one that is lost is asked for again."""
        try:
            await self._send(self._sessions.frames([did], encode(answer)))
        except NotConnected:
            self._metrics.add("mqtt_not_sent")

    async def run(self) -> None:
        """Say the words, for ever."""
        while True:
            word = await self._waiting.get()
            try:
                await self._send([word])
            except NotConnected:
                self._metrics.add("mqtt_not_sent")

    async def run_welcomes(self) -> None:
        """Tell devices that they are registered, only after it is on disk; for ever."""
        while True:
            await self._welcome_wake.wait()
            self._welcome_wake.clear()
            welcomes, self._welcomes = self._welcomes, {}
            try:
                await self._registry.flush()
                welcomed = await self._say(welcomes)
            except (StoreFailed, NotConnected) as error:
                log.warning("welcomes delayed devices=%d error=%s", len(welcomes), error.what)
                self._welcomes = {**welcomes, **self._welcomes}
                self._welcome_wake.set()
                await asyncio.sleep(WELCOME_RETRY_SECONDS)
                continue
            for name in welcomed:
                self._registry.welcomed(name)

    async def _say(self, welcomes: dict[str, Welcome]) -> list[str]:
        frames, welcomed = [], []
        for did, welcome in welcomes.items():
            live = self._sessions.find(did)
            # Who has another session by now says hello again in it.
            if live is not None and live.hello == welcome.session:
                frames += self._sessions.frames([did], encode(welcome))
                welcomed.append(live.device.name)
        await self._send(frames)
        return welcomed
