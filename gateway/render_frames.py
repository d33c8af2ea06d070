"""What a station and its rendering processes say to each other. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct, field

from gateway.render_names import Names
from gateway.render_pillar import Rules
from gateway.render_sls import Problem

__all__ = ["Answer", "Asking", "Problem", "Read", "Ready", "Task", "Told", "Tree", "decode_upward", "encode"]


class Tree(Struct, frozen=True, tag="tree"):
    """Files by environment and path, under a digest that tasks name them by."""

    digest: str
    environments: dict[str, dict[str, bytes]]


class Task(Struct, frozen=True, tag="task"):
    """Compile a device's pillar, or, with a path, render this one file with the names in ``context``.

    A reactor's file without a context is only looked at.

    ``given`` is the pillar that is there before; ``env`` the one environment that is asked for.
    """

    tree: str
    device: str
    grains: dict[str, Any]
    rules: Rules = Rules()
    given: dict[Any, Any] = field(default_factory=dict)
    env: str | None = None
    path: str = ""
    sls: str = ""
    context: dict[str, Any] = field(default_factory=dict)
    reaction: bool = False
    """The file is one of the reactor's: it knows the context, which is an event, and nothing of the device."""
    site: str = ""
    names: Names = ""
    """What the one file is, which says which of its scalars are names (``render_names``)."""

    def __repr__(self) -> str:
        """Whose it is, and nothing of what is known of the device."""
        return f"Task({self.device})"


class Ready(Struct, frozen=True, tag="ready"):
    """The process has started, and waits for its first task."""


class Read(Struct, frozen=True, tag="read"):
    """The rendering has asked something of the device for the first time (``render_reads``)."""

    question: list[str]


class Asking(Struct, frozen=True, tag="asking"):
    """A reactor's file calls a function of the station, and waits for what it returns."""

    fun: str
    arg: list[Any]
    kwarg: dict[str, Any]


class Told(Struct, frozen=True, tag="told"):
    """What it returned as msgpack, or why there is nothing."""

    data: bytes = b""
    why: str = ""

    def __repr__(self) -> str:
        """Nothing of the data."""
        return f"Told({self.why or len(self.data)})"


class Answer(Struct, frozen=True, tag="answer", omit_defaults=True):
    """The end of a task: data as msgpack, or why there is none."""

    data: bytes = b""
    problems: list[Problem] = []
    refused: str = ""
    why: str = ""

    def __repr__(self) -> str:
        """Nothing of the data."""
        return f"Answer({self.refused or len(self.data)})"


_encoder: Final = msgspec.msgpack.Encoder()
_upward: Final = msgspec.msgpack.Decoder(Ready | Read | Asking | Answer)


def encode(message: Tree | Task | Ready | Read | Asking | Told | Answer) -> bytes:
    """A message as bytes."""
    return _encoder.encode(message)


def decode_upward(body: bytes) -> Ready | Read | Asking | Answer:
    """What a rendering process said. Raises ``msgspec.DecodeError``."""
    message: Ready | Read | Asking | Answer = _upward.decode(body)
    return message
