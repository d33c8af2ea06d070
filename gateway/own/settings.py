"""What a station can be told of itself as a target."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from device_agent.own import GRAINS_FILE
from device_agent.trust.policy import DEFAULT_GRANTS


class OwnSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """This station as a device: it answers as NAME-station."""

    grains: Annotated[
        dict[str, Any], Meta(description="more facts of this station, which targets can match", examples=[{"floor": 3}])
    ] = {}
    grains_file: Annotated[
        str, Meta(min_length=1, pattern="^/", description="YAML file on this machine with more facts; those above win")
    ] = GRAINS_FILE
    grains_refresh_seconds: Annotated[
        float, Meta(ge=0, le=86_400.0, description="how often it looks at its machine again; 0: at the start alone")
    ] = 600.0
    grants: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=256)]],
        Meta(
            max_length=256,
            description="what jobs may call on this station, beside what their issuer may: classes and globs, as in "
            "`keys accept --grant`",
            examples=[["looks", "saltutil.*"]],
        ),
    ] = field(default_factory=lambda: list(DEFAULT_GRANTS))
    beacons: Annotated[
        dict[Annotated[str, Meta(min_length=1, max_length=64)], Any],
        Meta(
            max_length=65,
            description="what this station watches on its machine, in Salt's shapes; docs/beacons.md",
            examples=[{"diskusage": [{"/": "80%"}]}],
        ),
    ] = {}
