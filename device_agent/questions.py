"""Whoever asks: numbers its questions, asks again until the answer is there, and gives up when nobody answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import ClassVar, Final, Protocol

from device_agent.errors import OutstationError, Refused
from device_agent.protocol.questions import QUESTION_BYTES, Answer, Question

PATIENCE_SECONDS: Final = 60.0
AGAIN_FIRST_SECONDS: Final = 5.0
AGAIN_CEILING_SECONDS: Final = 20.0
AT_ONCE: Final = 8
"""Questions that one asker has open; more wait for their turn."""


class Unanswered(OutstationError):
    """Nobody answered in time, or there is nobody to ask."""

    default_id: ClassVar[str] = "question.unanswered"


class Station(Protocol):
    """Whoever a device can ask: its station."""

    async def ask(self, about: str, body: bytes = b"", *, patience: float = PATIENCE_SECONDS) -> bytes:
        """The body of the answer. Raises ``Refused`` with the reason of whoever answers, and ``Unanswered``."""


class NoStation:
    """For a function that is called where there is no station."""

    async def ask(self, about: str, body: bytes = b"", *, patience: float = PATIENCE_SECONDS) -> bytes:  # noqa: ARG002 - the signature is its port's
        raise Unanswered(f"{about} cannot be asked: there is no station here")


class Questions:
    """The questions of one asker. ``send`` hands a question over; what gets lost on the way is sent again."""

    def __init__(self, send: Callable[[Question], Awaitable[None]]) -> None:
        self._send = send
        self._numbers = count()
        self._open: dict[int, asyncio.Future[Answer]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def ask(self, about: str, body: bytes = b"", *, patience: float = PATIENCE_SECONDS) -> bytes:
        """The body of the answer. Raises ``Refused`` with the reason of whoever answers, and ``Unanswered``."""
        if len(body) > QUESTION_BYTES:
            raise Refused("question_too_large", f"{about}: {len(body)} bytes, at most {QUESTION_BYTES}")
        try:
            async with asyncio.timeout(patience), self._turns:
                answer = await self._answer(Question(next(self._numbers), about, body))
        except TimeoutError:
            raise Unanswered(f"nobody answered {about} in {patience:g} s") from None
        if answer.refused:
            raise Refused(answer.refused, answer.why)
        return answer.body

    def answered(self, answer: Answer) -> None:
        """An answer came. One that nobody waits for (any more) is let go."""
        future = self._open.get(answer.number)
        if future is not None and not future.done():
            future.set_result(answer)

    def lost(self, why: str) -> None:
        """There is nobody to ask any more: every open question ends as ``Unanswered``."""
        for future in self._open.values():
            if not future.done():
                future.set_exception(Unanswered(why))

    async def _answer(self, question: Question) -> Answer:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open[question.number] = future
        wait = AGAIN_FIRST_SECONDS
        try:
            while True:
                await self._send(question)
                done, _ = await asyncio.wait({future}, timeout=wait)
                if done:
                    return future.result()
                wait = min(2.0 * wait, AGAIN_CEILING_SECONDS)
        finally:
            del self._open[question.number]
            if future.done() and not future.cancelled():
                # Looked at, so that one which came too late is not reported as forgotten.
                future.exception()
