"""What a station can be told of the mine."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class MineSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Values that devices keep here for others to read."""

    megabytes: Annotated[
        int,
        Meta(ge=1, le=100_000, description="most that all values of this site are together, and of each site below"),
    ] = 64
    other_sites: Annotated[
        bool,
        Meta(
            description="whether values cross sites: on a gateway, whether its devices are answered with those of "
            "other sites as well; on a master or relay, whether it answers sites with those of others"
        ),
    ] = False
