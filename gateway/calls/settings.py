"""What a station can be told of its calls."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class CallSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How runners and wheels are called."""

    at_once: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="calls of reactions that run at the same time, as reactor_worker_threads; as many of operators",
        ),
    ] = 32
    waiting: Annotated[
        int, Meta(ge=1, le=100_000, description="most calls of each of the two that are open; more are refused")
    ] = 1000
    timeout_seconds: Annotated[
        float, Meta(ge=1, le=86_400.0, description="so long a call may run, where who asks says nothing else")
    ] = 600.0
    result_bytes: Annotated[
        int, Meta(ge=1024, le=64 * 1024 * 1024, description="most that a call may return, encoded as msgpack")
    ] = 4 * 1024 * 1024
    keep_hours: Annotated[float, Meta(ge=1, le=24 * 365, description="hours that is kept what a call returned")] = 24.0
