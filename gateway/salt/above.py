"""What the rooms of a station ask above, answered with the help of a stock Salt master."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from device_agent.protocol.file_questions import CHUNK, FIND, HASHES, LIST
from device_agent.protocol.pillar import OF
from device_agent.questions import Unanswered
from gateway.salt.above_files import SaltFiles
from gateway.salt.above_pillar import SaltPillar
from upstream.salt.ports import SaltAbove

Answer = Callable[[SaltAbove, bytes, float], Awaitable[bytes]]


class SaltAnswers:
    """Files and pillar; what else stations ask each other, a Salt master does not know."""

    def __init__(self, files: SaltFiles, pillar: SaltPillar) -> None:
        self._answers: Final[dict[str, Answer]] = {
            FIND: files.find,
            LIST: files.listed,
            HASHES: files.hashes,
            CHUNK: files.chunk,
            OF: pillar.of,
        }

    async def answer(self, above: SaltAbove, about: str, body: bytes, patience: float) -> bytes:
        """Answer a question. Raises ``Refused`` and ``Unanswered``."""
        answer = self._answers.get(about)
        if answer is None:
            raise Unanswered(f"a Salt master cannot be asked {about[:64]}")
        return await answer(above, body, patience)
