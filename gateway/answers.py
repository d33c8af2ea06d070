"""Whoever is asked: finds out what a question is about, lets that room answer, and says so when it cannot.

A station has one of these for its devices and one for its sites. Askers are many and not to be trusted: each has a few
questions under way at once, all together not more than a loop can hold, and what is too much is answered with ``busy``.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import ClassVar, Final

from device_agent.errors import NotFound, OutstationError, Refused
from device_agent.parts import Part
from device_agent.protocol import limits
from device_agent.protocol.questions import ANSWER_BYTES, Answer, Question
from device_agent.questions import PATIENCE_SECONDS
from gateway.metrics import Metrics

log = logging.getLogger(__name__)

EACH_AT_ONCE: Final = 16
ALL_AT_ONCE: Final = 4096

Answerer = Callable[[str, bytes], Awaitable[bytes]]
"""Answers the asker (a device's or a site's name) who sent this body. What it raises is told: ``NotFound`` for what is
not there, and ``Refused``, which is counted as well."""

Reply = Callable[[Answer], Awaitable[None]]
"""Sends an answer to whoever asked; it does not raise when the asker is gone."""


class Answers(Part):
    """Answers questions; ``link`` is the name refusals are counted under."""

    name: ClassVar[str] = "answers"

    def __init__(self, link: str, metrics: Metrics) -> None:
        self._link = link
        self._metrics = metrics
        self._answerers: dict[str, Answerer] = {}
        self._under_way: Counter[str] = Counter()

    def about(self, subject: str, answerer: Answerer) -> None:
        """Questions about this are answered so from now on."""
        self._answerers[subject] = answerer

    def offer(self, asker: str, question: Question, reply: Reply) -> None:
        """A question came. It is answered when it is its turn, or with ``busy`` at once."""
        self.spawn(self._respond(asker, question, reply), f"{question.about}/{asker}")

    async def ask(self, asker: str, about: str, body: bytes = b"") -> bytes:
        """Answer one who asks from within this process. Raises ``Refused``."""
        answer = await self._answer(asker, Question(0, about, body))
        if answer.refused:
            raise Refused(answer.refused, answer.why)
        return answer.body

    async def _respond(self, asker: str, question: Question, reply: Reply) -> None:
        each = self._under_way[asker] >= EACH_AT_ONCE
        if each or self._under_way.total() >= ALL_AT_ONCE:
            self._metrics.refused(self._link, "too_many_questions" if each else "busy", asker, question.about)
            await reply(Answer(question.number, refused="busy", why="too many questions are under way; ask again"))
            return
        self._under_way[asker] += 1
        try:
            await reply(await self._answer(asker, question))
        finally:
            self._under_way[asker] -= 1
            if not self._under_way[asker]:
                del self._under_way[asker]

    async def _answer(self, asker: str, question: Question) -> Answer:
        answerer = self._answerers.get(question.about)
        try:
            if answerer is None:
                raise Refused("unknown_question", f"nothing here answers {question.about}")
            body = await answerer(asker, question.body)
            if len(body) > ANSWER_BYTES:
                raise NotFound(f"the answer to {question.about} has {len(body)} bytes, at most {ANSWER_BYTES}")
        except Refused as refusal:
            self._metrics.refused(self._link, refusal.reason, asker, refusal.detail)
            return Answer(question.number, refused=refusal.reason[:64], why=refusal.detail[: limits.WHY_CHARACTERS])
        except NotFound as error:
            return Answer(question.number, refused="not_found", why=error.what[: limits.WHY_CHARACTERS])
        except OSError as error:
            # A disk that fails under an answer is no reason for all the others to go unanswered.
            log.error("question not answered asker=%s about=%s error=%s", asker, question.about, error)
            return Answer(question.number, refused="failed", why=f"the station's disk: {error.strerror or error}"[:500])
        except OutstationError as error:
            log.error("question not answered asker=%s about=%s error=%s", asker, question.about, error)
            return Answer(question.number, refused="failed", why=error.what[: limits.WHY_CHARACTERS])
        self._metrics.add(f"{self._link}_answered")
        return Answer(question.number, body)


class Within:
    """The station as a device asks it that the gateway stands in for: in this process, by the device's name."""

    def __init__(self, answers: Answers, asker: str) -> None:
        self._answers = answers
        self._asker = asker

    async def ask(self, about: str, body: bytes = b"", *, patience: float = PATIENCE_SECONDS) -> bytes:  # noqa: ARG002 - the signature is its port's; nothing is lost on this way
        """The body of the answer. Raises ``Refused``."""
        return await self._answers.ask(self._asker, about, body)
