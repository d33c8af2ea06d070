"""What a station can be told of its reactions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Order = Literal["type", "file"]
Full = Literal["newest", "oldest"]
WrongId = Literal["alone", "event"]
Rules = Annotated[str, Meta(min_length=1, max_length=4096)] | Annotated[list[Any], Meta(max_length=10_000)]
"""As in Salt: a list of ``{tag glob: path or paths}``, or the path of a YAML file with such a list."""


class ReactionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How reactions are worked on."""

    order: Annotated[
        Order,
        Meta(description="order: type, as Salt: caller, cmd, local, runner, wheel; file: as it is written"),
    ] = "type"
    wrong_id: Annotated[
        WrongId,
        Meta(description="what an id that is wrong takes along: alone, nothing; event, as Salt: all of the event"),
    ] = "alone"
    nested_data: Annotated[
        bool, Meta(description="data['data'] is the data itself, of beacons and what no device sent; docs/reactor.md")
    ] = True
    waiting: Annotated[
        int, Meta(ge=1, le=1_000_000, description="most events that wait for their reactions, as reactor_worker_hwm")
    ] = 10_000
    when_full: Annotated[
        Full, Meta(description="which of them gives way when there are more; it is counted, and `reactor why` says so")
    ] = "newest"
    at_once: Annotated[
        int, Meta(ge=1, le=100, description="events that are worked on at the same time, as reactor_worker_threads")
    ] = 32
    depth: Annotated[
        int, Meta(ge=1, le=1000, description="longest chain of reactions to what reactions did; it stops there")
    ] = 8
    expires_seconds: Annotated[
        float, Meta(ge=1, le=30 * 86_400.0, description="so long the job of a reaction waits for a device that is away")
    ] = 300.0
    keep_hours: Annotated[float, Meta(ge=1, le=24 * 365, description="hours that is kept what an event set off")] = 24.0
