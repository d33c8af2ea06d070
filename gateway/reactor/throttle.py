"""How often a rule may react: what ``reactor_throttle`` can say, and which of it a file of a rule has. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Final

from msgspec import Meta, Struct, field

from device_agent.protocol import tags
from device_agent.protocol.messages import Event

DAY_SECONDS: Final = 86_400.0
COLLECTED: Final = 10_000
"""Most events that one reaction stands for."""

KEY_CHARACTERS: Final = 200
NAMES: Final = 8
ALL: Final = ""
"""The key where every event counts alike."""

TAG: Final = "tag"
"""In ``by``, unless the data has such a name: the tag of the event."""

Seconds = Annotated[float, Meta(ge=0.1, le=30 * DAY_SECONDS)]


class Accumulate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One reaction for many events: when there are so many, or when so long has passed since the first."""

    count: Annotated[int, Meta(ge=2, le=COLLECTED)] | None = None
    seconds: Annotated[float, Meta(ge=0.1, le=DAY_SECONDS)] | None = None

    def __post_init__(self) -> None:
        """Without an end it would collect for ever."""
        if self.count is None and self.seconds is None:
            raise ValueError("accumulate takes count, seconds or both")


class Throttle(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bounds of a rule, for each key by itself."""

    once_within: Seconds | None = None
    once_after: Annotated[float, Meta(ge=0.1, le=DAY_SECONDS)] | None = None
    accumulate: Accumulate | None = None
    max_concurrent: Annotated[int, Meta(ge=1, le=1000)] | None = None
    max_per_day: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    by: Annotated[list[Annotated[str, Meta(min_length=1, max_length=128)]], Meta(max_length=NAMES)] = field(
        default_factory=lambda: ["id"]
    )

    def __post_init__(self) -> None:
        """Both of them wait for the end of something, and only one can say when that is."""
        if self.once_after is not None and self.accumulate is not None:
            raise ValueError("once_after and accumulate do not go together")

    @property
    def collects(self) -> bool:
        """Whether an event waits for others before anything comes of it."""
        return self.once_after is not None or self.accumulate is not None

    def words(self) -> str:
        """As it is said to people."""
        said = []
        if self.once_within is not None:
            said.append(f"once_within {self.once_within:g} s")
        if self.once_after is not None:
            said.append(f"once_after {self.once_after:g} s")
        if self.accumulate is not None:
            bounds = [f"{self.accumulate.count} events"] if self.accumulate.count is not None else []
            bounds += [f"{self.accumulate.seconds:g} s"] if self.accumulate.seconds is not None else []
            said.append(f"accumulate {' or '.join(bounds)}")
        if self.max_concurrent is not None:
            said.append(f"max_concurrent {self.max_concurrent}")
        if self.max_per_day is not None:
            said.append(f"max_per_day {self.max_per_day}")
        return f"{', '.join(said) or 'nothing'} by {', '.join(self.by) or 'nothing'}"


class Bounded(Struct, frozen=True):
    """A file of a rule that matches an event, and what bounds it."""

    glob: str
    file: str
    throttle: Throttle


Throttles = Mapping[str, Throttle]
"""By the tag glob of a rule, as it stands in the map; or by a file, which is a glob as well."""


def throttle_of(throttles: Throttles, glob: str, file: str) -> Throttle | None:
    """What bounds this file of this rule: what is said of the file counts before what is said of the rule."""
    for said, throttle in throttles.items():
        if said.startswith(("/", "salt://")) and tags.matches(said, file):
            return throttle
    return throttles.get(glob)


def key_of(event: Event, by: list[str]) -> str:
    """What this event is counted with. Names lead into the data with ``:``; what is not there counts as nothing."""
    said = [_found(event, name) for name in by]
    key = "\t".join(said) if said else ALL
    return key if len(key) <= KEY_CHARACTERS else f"sha256:{hashlib.sha256(key.encode(errors='replace')).hexdigest()}"


def _found(event: Event, name: str) -> str:
    value: Any = event.data
    for word in name.split(":"):
        if not isinstance(value, dict) or word not in value:
            return event.tag if name == TAG else ""
        value = value[word]
    return str(value)
