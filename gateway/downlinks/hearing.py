"""What arrives from the broker: frames of sessions, openings, last wills, and knocks of those who want to join.

Everything is hostile until it proves itself: frames by their seal, openings and last wills by a signature. What proves
nothing is counted under the device on whose topic it came, and never ends a task.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from device_agent.clock import Clock
from device_agent.errors import OutstationError, Refused
from device_agent.protocol import limits, topics
from device_agent.protocol.links import Returns
from device_agent.protocol.messages import (
    Beat,
    EpochWanted,
    Gone,
    Hello,
    Reseal,
    Return,
    Running,
    Upward,
    Welcome,
    decode_upward,
)
from device_agent.protocol.questions import Question
from device_agent.trust.session_frames import frame_sid
from gateway.answers import Answers
from gateway.devices.epochs import Epochs
from gateway.devices.openings import Openings
from gateway.devices.recertify import Recertification
from gateway.devices.registry import Registry
from gateway.devices.sessions import Live, Sessions
from gateway.downlinks.words import Words
from gateway.metrics import Metrics

log = logging.getLogger(__name__)

EPOCH_AGAIN_SECONDS = 5.0
"""A device that asks for the group key again before this is not answered."""


class Reception(Protocol):
    """Where those knock that want to join (``gateway.devices.enrollment.Enrollment``)."""

    async def request(self, payload: bytes) -> None:
        """Somebody asks to join, or has taken the answer. Bounded there: what is too much is counted and dropped."""


ResealPort = Callable[[str, str, str], Awaitable[None]]
"""A device (its name) cannot take a job (its jid) as it is sealed, for this reason."""


class Hearing:
    """Takes messages of one link apart and tells whoever they are for."""

    def __init__(
        self,
        *,
        site: str,
        link: str,
        sessions: Sessions,
        openings: Openings,
        epochs: Epochs,
        recertification: Recertification,
        enrollment: Reception,
        words: Words,
        answers: Answers,
        registry: Registry,
        returns: Returns,
        reseal: ResealPort,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._link = link
        self._knock = topics.enrol_request(site)
        self._sessions = sessions
        self._openings = openings
        self._epochs = epochs
        self._recertification = recertification
        self._enrollment = enrollment
        self._words = words
        self._answers = answers
        self._registry = registry
        self._returns = returns
        self._reseal = reseal
        self._metrics = metrics
        self._clock = clock

    def receive(self, topic: str, payload: bytes) -> Awaitable[None] | None:
        """One message. What takes time is handed back to be awaited, so that nothing behind it runs ahead."""
        try:
            if topic.endswith("/up/f"):
                return self._frame(topic, payload)
            if topic == self._knock:
                return self._enrollment.request(payload)
            if topic.endswith("/up/ses"):
                self._openings.offer(topics.sender(topic), payload)
            elif topic.endswith("/up/bye"):
                self._bye(topics.sender(topic), payload)
            else:
                raise Refused("bad_topic", topic[:200])
        except Refused as refusal:
            self._metrics.refused("mqtt", refusal.reason, self._peer(topic), refusal.detail)
        return None

    def _frame(self, topic: str, payload: bytes) -> Awaitable[None] | None:
        live = self._sessions.of(payload)
        if live is None:
            self._unknown_session(topic, payload)
            return None
        plaintext = self._sessions.opened(live, topic, payload)
        message = decode_upward(plaintext)
        # The most frequent first.
        if isinstance(message, Return):
            return self._returns.returned(live.device.name, message, len(payload))
        if isinstance(message, Reseal):
            return self._ask_reseal(live.device.name, message)
        self._heard(live, message)
        return None

    def _heard(self, live: Live, message: Upward) -> None:
        device = live.device
        match message:
            case Running(jid=jid, away=away):
                self._returns.running(device.name, jid, away)
            case Beat():
                if self._registry.beat(device.name, message):
                    for jid in message.running:
                        self._returns.running(device.name, jid)
                else:
                    self._call(device.did, live.session.sid)
            case Hello():
                self._hello(live, message)
            case Gone():
                self._registry.gone(device.name, message)
                self._sessions.end(live)
            case EpochWanted():
                self._epoch_wanted(live)
            case Question():
                self._answers.offer(device.name, message, partial(self._words.answer, device.did))
            case Return() | Reseal():
                raise AssertionError("these have their own way")

    def _hello(self, live: Live, message: Hello) -> None:
        if live.superseded is not None:
            raise Refused("stale_hello", "of a session that has a successor")
        device = live.device = self._sessions.may_open(live.device.did)
        self._registry.hello(self._link, device.name, message)
        self._returns.hello(device.name, message)
        if not live.hello:
            self._recertification.look_at(device.did)
        live.hello = message.session
        self._words.welcome(device.did, Welcome(message.session, device.place, limits.BEAT_SECONDS))

    def _epoch_wanted(self, live: Live) -> None:
        now = self._clock.monotonic()
        if now - live.epoch_told < EPOCH_AGAIN_SECONDS:
            # It was told with the session, or asks all the time.
            self._metrics.add("epoch_keys_asked_again")
            return
        live.epoch_told = now
        self._epochs.owe([live.device.did])

    def _bye(self, did: str, payload: bytes) -> None:
        ended = self._sessions.bye(did, payload)
        if ended is not None:
            self.lost(ended.device.name)

    def lost(self, device: str) -> None:
        """The connection of a device (its name) ended, or is not heard any more."""
        known = self._registry.own_device(device)
        if known is not None:
            self._registry.gone(device, Gone(known.session, "lost"))

    def _unknown_session(self, topic: str, payload: bytes) -> None:
        did, sid = topics.sender(topic), frame_sid(payload)
        if self._openings.is_opening(sid):
            self._metrics.add("mqtt_early_frames")
            return
        self._call(did, sid)
        raise Refused("unknown_session", sid.hex())

    def _call(self, did: str, sid: bytes) -> None:
        body = self._sessions.roll_call(did, sid)
        if body is not None:
            self._words.say_on_session(did, body)

    async def _ask_reseal(self, device: str, message: Reseal) -> None:
        self._registry.heard(device)
        try:
            await self._reseal(device, message.jid, message.reason)
        except OutstationError as error:
            # The device says it again when the job comes again.
            log.error("no new seal asked for jid=%s device=%s error=%s", message.jid, device, error)

    def _peer(self, topic: str) -> str:
        try:
            return self._sessions.label(topics.sender(topic))
        except Refused:
            return "a topic of no device"
