"""MasterLink: what a link to a master does whatever it speaks: it connects, and connects again, until it is left."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import zmq.asyncio

from device_agent.clock import Clock
from upstream.cutting import Cut
from upstream.link_terms import Spawn


@dataclass(frozen=True)
class Pause:
    """How long to wait before the next attempt, and what the link's state is meanwhile."""

    seconds: float
    state: str = "waiting"


class MasterLink(ABC):
    """The link to one master. ``changed`` is called when it is up or down (again)."""

    def __init__(
        self, address: str, cut: Cut, clock: Clock, spawn: Spawn, changed: Callable[[MasterLink], object]
    ) -> None:
        self.address = address
        self.state = "connecting"
        self.since = clock.wall()
        self.last_error = ""
        self.next_attempt: float | None = None
        self.up = False
        """Whether the master has let us in, and nothing has been lost since."""
        self.active = False
        self._cut = cut
        self._clock = clock
        self._spawn = spawn
        self._changed = changed
        self._left, self._hung_up = asyncio.Event(), asyncio.Event()
        self._why = ""

    @property
    @abstractmethod
    def key(self) -> str:
        """By which the master is known among all; it stays the same as long as the link."""

    async def run(self, context: zmq.asyncio.Context) -> None:
        """Connect, and connect again, until it is left."""
        while not self._left.is_set():
            if not self._cut.whole.is_set():
                self.next_attempt = self._cut.until
                self._set_state("cut")
                await self._cut.whole.wait()
                self.next_attempt = None
                continue
            # Each session is a task of its own. Until CPython 3.11.4 a task whose TaskGroup failed while it was being
            # left stays marked as cancelled, and the next asyncio.timeout in it then ends the task without a word.
            session = self._spawn(self._session(context), f"session/{self.key}")
            await asyncio.wait({session})
            self._set_state("disconnected")
            if self._left.is_set():
                return
            pause = self._lost(at_once=self._hung_up.is_set())
            self._changed(self)
            if pause is not None and not self._hung_up.is_set():
                await self._pause(pause)
            self._hung_up.clear()

    def leave(self) -> None:
        """This master is not in the list any more: end."""
        self._left.set()
        self.hang_up("the list of masters changed")

    def stop(self) -> None:
        """Do not connect again: the gateway stops."""
        self._left.set()

    def hang_up(self, why: str) -> None:
        """Connect anew, at once."""
        self._why = why
        self._hung_up.set()

    @abstractmethod
    def set_active(self, active: bool) -> None:
        """Whether this is the master that gets what is for any."""

    def status(self) -> dict[str, Any]:
        """Where this link stands."""
        return {
            "address": self.address,
            "state": self.state,
            "role": ("active" if self.active else "standby") if self.up else "",
            "since": self.since,
            "last_error": self.last_error,
            "next_attempt": self.next_attempt,
        }

    @abstractmethod
    async def _session(self, context: zmq.asyncio.Context) -> None:
        """One connection, until it is lost."""

    @abstractmethod
    def _lost(self, *, at_once: bool) -> Pause | None:
        """Say that a session has ended; how long to wait before the next, or None for not at all (``at_once``)."""

    def _late(self, why: str) -> None:
        """Nothing came of this attempt so far: no other master waits for it."""
        self.last_error = why
        self._changed(self)

    async def _pause(self, pause: Pause) -> None:
        self.next_attempt = self._clock.wall() + pause.seconds
        self._set_state(pause.state)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause.seconds):
                await self._hung_up.wait()
        self.next_attempt = None

    def _set_state(self, state: str) -> None:
        if state != self.state:
            self.state, self.since = state, self._clock.wall()
