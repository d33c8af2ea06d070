"""Carries what a master is asked over one connection after another.

Whoever asks lives longer than a connection. He never touches its socket: he leaves his question here, and a task of
the connection sends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from device_agent.protocol.questions import Question
from device_agent.questions import Questions, Unanswered
from upstream.item_sender import Send

QUEUED: Final = 32
"""Questions that wait for the line. One that finds no room is asked again in a few seconds by whoever asks."""


class QuestionSender:
    """The questions to one master. ``up`` tells whether its link is up: nobody can be asked when it is not."""

    def __init__(self, up: Callable[[], bool]) -> None:
        self._up = up
        self._waiting: asyncio.Queue[Question] = asyncio.Queue(maxsize=QUEUED)
        self.questions = Questions(self._offer)

    async def run(self, send: Send) -> None:
        """Send what is asked until cancelled. Raises ``LinkLost``."""
        while True:
            await send(await self._waiting.get())

    def lost(self, why: str) -> None:
        """The connection is gone: every open question ends as ``Unanswered``, and what waited is not sent later."""
        while not self._waiting.empty():
            self._waiting.get_nowait()
        self.questions.lost(why)

    async def _offer(self, question: Question) -> None:
        if not self._up():
            raise Unanswered("the link to this master is down")
        if not self._waiting.full():
            self._waiting.put_nowait(question)
