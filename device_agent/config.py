"""The agent's settings table: what can be written in its file, with type, default, unit and meaning."""

from __future__ import annotations

import re
import socket
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from device_agent.errors import ConfigInvalid
from device_agent.protocol.messages import DEVICE_ID_PATTERN, DeviceId, SiteId

DRAIN_MAX_SECONDS = 20.0
"""What the unit's stop timeout leaves room for."""


class BrokerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The site's MQTT broker, as this device reaches it."""

    host: Annotated[
        str, Meta(min_length=1, max_length=255, description="address of the broker", examples=["192.0.2.10"])
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=1, le=65535, description="port of the broker")] = 1884
    unix_socket: Annotated[str | None, Meta(description="a broker's unix socket, instead of host and port")] = None
    username: Annotated[str | None, Meta(description="user of this device at the broker")] = None
    password: Annotated[str | None, Meta(description="its password")] = None


class AgentSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything an agent can be told."""

    site: Annotated[SiteId, Meta(description="the site this device belongs to", examples=["lisbon"])]
    id: Annotated[
        DeviceId | None, Meta(description="this device's id; default: the machine's host name", examples=["cam-007"])
    ] = None
    broker: BrokerSettings = BrokerSettings()
    state_dir: Annotated[str, Meta(min_length=1, description="where the agent remembers its jobs")] = (
        "/var/lib/outstation-agent"
    )
    grains: Annotated[
        dict[str, Any], Meta(description="more facts of this device, which targets can match", examples=[{"floor": 3}])
    ] = {}
    drain_seconds: Annotated[
        float,
        Meta(
            ge=0, le=DRAIN_MAX_SECONDS, description="seconds a running job may take to finish when the agent is stopped"
        ),
    ] = 10.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="least severe message that is logged")
    ] = "info"

    def device_id(self) -> str:
        """The id in force. Raises ``ConfigInvalid`` when the host name cannot be one."""
        name = self.id if self.id is not None else socket.gethostname()
        if re.match(DEVICE_ID_PATTERN, name) is None:
            raise ConfigInvalid(
                "this machine's host name cannot be a device's id",
                where="id",
                found=repr(name),
                allowed="1 to 128 of letters, digits and _ . : @ - (not first: . : @ -)",
                hint="set id: in the settings",
            )
        return name
