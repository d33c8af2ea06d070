"""Which stream an item goes up in, which class it counts for, and which tags make an event urgent, state or telemetry.

A stream has its own numbers, its own place on the way up and its own confirmation; a class has a budget and a row in
the ledger. All streams but those of events are a class of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from device_agent.protocol import tags
from device_agent.protocol.messages import AuditRecord, Event, Item, encode
from upstream.frames import STREAMS, Stream

Class = Literal["returns", "events", "audit", "telemetry"]

CLASSES: tuple[Class, ...] = ("returns", "events", "audit", "telemetry")

CLASS_OF: Mapping[Stream, Class] = {
    "returns": "returns",
    "urgent": "events",
    "state": "events",
    "events": "events",
    "audit": "audit",
    "telemetry": "telemetry",
}

GIVES_WAY: Mapping[Class, tuple[Stream, ...]] = {"events": ("events", "state", "urgent"), "telemetry": ("telemetry",)}
"""The classes that drop their oldest items when their budget is used up, and which of their streams first."""

URGENT = ("outstation/device/*/cloned", "outstation/station/*", "alarm/*", "*/alarm/*")
STATE = ("state/*",)
TELEMETRY = ("telemetry/*",)


class Row(NamedTuple):
    """An item on its way into the spool. ``key`` is only used in the stream ``state``."""

    stream: Stream
    key: str
    body: bytes


def streams_of(name: Class) -> list[Stream]:
    """The streams that count for a class, in the order in which they go up."""
    return [stream for stream in STREAMS if CLASS_OF[stream] == name]


class Rules:
    """Sorts items into streams. The first list that has a matching glob decides: telemetry, state, urgent."""

    def __init__(
        self,
        *,
        urgent: Sequence[str] = URGENT,
        state: Sequence[str] = STATE,
        telemetry: Sequence[str] = TELEMETRY,
    ) -> None:
        self._globs: list[tuple[Stream, Sequence[str]]] = [
            ("telemetry", telemetry),
            ("state", state),
            ("urgent", urgent),
        ]
        self._of_tag: Callable[[str], Stream] = lru_cache(maxsize=4096)(self._match)

    def row(self, item: Item, body: bytes | None = None) -> Row:
        """The row for an item; ``body`` are its bytes when it has them already."""
        encoded = encode(item) if body is None else body
        if isinstance(item, Event):
            stream = self._of_tag(item.tag)
            # Several sites can be behind a relay, and each has states of its own.
            return Row(stream, f"{item.site} {item.tag}" if stream == "state" else "", encoded)
        return Row("audit" if isinstance(item, AuditRecord) else "returns", "", encoded)

    def _match(self, tag: str) -> Stream:
        for stream, globs in self._globs:
            if any(tags.matches(glob, tag) for glob in globs):
                return stream
        return "events"
