"""What the API says of calls, as types."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class CallView(Struct, frozen=True, kw_only=True):
    """A call. ``state`` is open until it has ended, and then ok, failed, timed_out or interrupted."""

    jid: str
    kind: str
    fun: str
    arg: list[Any] = []
    kwarg: dict[str, Any] = {}
    user: str = ""
    why: str = ""
    parent: str = ""
    accepted: float = 0.0
    state: str = "open"
    value: Any = None
    retcode: int = 0
    ended: float | None = None
    progress: dict[str, Any] | None = None
    """What has just come to its end within it: a step under ``ret``, and of how many under ``len``."""


class FunctionView(Struct, frozen=True, kw_only=True):
    """A function of the station."""

    kind: str
    fun: str
    arguments: str = ""
    needs: str = ""
    refused: str = ""
    doc: str = ""


class FunctionPage(Struct, frozen=True):
    """All of them."""

    functions: list[FunctionView]
