"""The station's settings table. Masters and gateways read the same one; the sections they have make the difference."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from device_agent.protocol.messages import SiteId
from upstream.curve import is_key

Z85_KEY_PATTERN = r"^[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}$(?!\n)"
TCP_PATTERN = r"^tcp://[^\s/]+:[0-9*]{1,5}$(?!\n)"


class MasterEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One master above this station."""

    address: Annotated[
        str,
        Meta(
            pattern=TCP_PATTERN, description="where the master listens for sites", examples=["tcp://203.0.113.7:4510"]
        ),
    ]
    key: Annotated[
        str,
        Meta(
            pattern=Z85_KEY_PATTERN,
            description="the master's public key: `outstation keys list` shows it on the master",
        ),
    ]

    def __post_init__(self) -> None:
        """Some words of the right letters stand for no key, which no pattern can say."""
        if not is_key(self.key):
            raise ValueError(f"{self.key!r} is not a CURVE public key; `outstation keys list` on the master shows it")


class UplinkSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The link to the masters."""

    echo_seconds: Annotated[
        float, Meta(ge=0.1, le=300, description="seconds between two echoes; three without an answer lose the link")
    ] = 5.0


class SitesSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where sites connect to this station."""

    listen: Annotated[str, Meta(pattern=TCP_PATTERN, description="address for the gateways below")] = (
        "tcp://0.0.0.0:4510"
    )


class BrokerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The site's MQTT broker."""

    mode: Annotated[
        Literal["managed", "external", "embedded"],
        Meta(
            description="managed: run our own mosquitto; external: use the broker at host and port; "
            "embedded: a broker inside this process, for a machine without mosquitto, up to 200 devices"
        ),
    ] = "managed"
    host: Annotated[str, Meta(min_length=1, max_length=255, description="address of the broker")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=1, le=65535, description="port of the broker")] = 1884
    username: Annotated[str | None, Meta(description="external only: user of this station at the broker")] = None
    password: Annotated[str | None, Meta(description="external only: its password")] = None


class JobsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs kept on this station."""

    keep_hours: Annotated[
        float, Meta(ge=1, le=24 * 365, description="hours a closed job is kept, as Salt's keep_jobs")
    ] = 24.0


class StationSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a station can be told."""

    name: Annotated[
        SiteId, Meta(description="this station's name; a gateway's is the name of its site", examples=["lisbon"])
    ]
    state_dir: Annotated[str | None, Meta(description="keys and the store; default /var/lib/outstation/ROLE")] = None
    socket: Annotated[str | None, Meta(description="the API's unix socket; default /run/outstation/ROLE.sock")] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="least severe message that is logged")
    ] = "info"
    masters: Annotated[
        list[MasterEntry], Meta(max_length=16, description="masters above this station, best first")
    ] = []
    uplink: UplinkSettings = UplinkSettings()
    sites: SitesSettings | None = None
    broker: BrokerSettings | None = None
    jobs: JobsSettings = JobsSettings()
