"""How much a rendering may use."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class RenderSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The processes that templates are rendered in."""

    workers: Annotated[int, Meta(ge=1, le=64, description="processes that render, each one template at a time")] = 2
    seconds: Annotated[float, Meta(ge=0.1, le=600, description="after which a rendering is stopped and refused")] = 20.0
    cpu_seconds: Annotated[int, Meta(ge=1, le=600, description="of work after which it is stopped as well")] = 10
    memory_megabytes: Annotated[
        int, Meta(ge=128, le=65_536, description="most memory that one of these processes may have")
    ] = 512
