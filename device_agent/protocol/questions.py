"""Questions: what a device asks its station, or a site its master, and the one answer to each. Pure.

Whoever asks numbers its questions and asks again while no answer comes. So an answerer may hear the same question
twice, and whatever it does for one it must be able to do again. What a question is about, ``mine.get`` or
``file.chunk``, says which struct its body and its answer's body are.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from device_agent.protocol import limits

ABOUT_PATTERN: Final = r"^[a-z]{1,24}\.[a-z_]{1,24}$(?!\n)"

REASON_PATTERN: Final = r"^[a-z0-9_]{0,64}$(?!\n)"

QUESTION_BYTES: Final = 160 * 1024
"""Largest body of a question: a value that a device hands over goes up in one."""

ANSWER_BYTES: Final = limits.MESSAGE_BYTES - 8 * 1024
"""Largest body of an answer: a message of the device link less all that is around it."""

About = Annotated[str, Meta(pattern=ABOUT_PATTERN)]
Number = Annotated[int, Meta(ge=0, lt=2**53)]


class Question(Struct, frozen=True, tag="question"):
    """Something that is asked for. ``number`` is the asker's own, and comes back with the answer."""

    number: Number
    about: About
    body: Annotated[bytes, Meta(max_length=QUESTION_BYTES)] = b""


class Answer(Struct, frozen=True, tag="answer", omit_defaults=True):
    """The answer: a body, or why there is none. ``refused`` is the reason in one word, ``why`` says more."""

    number: Number
    body: Annotated[bytes, Meta(max_length=ANSWER_BYTES)] = b""
    refused: Annotated[str, Meta(pattern=REASON_PATTERN)] = ""
    why: Annotated[str, Meta(max_length=limits.WHY_CHARACTERS)] = ""
