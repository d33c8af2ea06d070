"""The agent's settings table: what can be written in its file, with type, default, unit and meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from device_agent import settings
from device_agent.places import AGENT_CONFIG
from device_agent.protocol.messages import SiteId

DRAIN_MAX_SECONDS = 20.0
"""What the unit's stop timeout leaves room for."""

ROOT_PATTERN = r"^[0-9a-f]{32}$(?!\n)"

Root = Annotated[str, Meta(pattern=ROOT_PATTERN)]
Host = Annotated[str, Meta(min_length=1, max_length=255)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Word = Annotated[str, Meta(min_length=1, max_length=64)]


class BrokerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The site's MQTT broker, as this device reaches it."""

    host: Annotated[
        Host | None, Meta(description="address of the broker; default: the one in the token", examples=["192.0.2.10"])
    ] = None
    port: Annotated[
        Port | None, Meta(description="port at which devices join; default: the one in the token", examples=[1883])
    ] = None
    tls: Annotated[bool, Meta(description="use TLS where the broker has it, with the authority named at joining")] = (
        False
    )


class AgentSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything an agent can be told."""

    site: Annotated[
        SiteId | None,
        Meta(description="the site this device belongs to; default: the one in the token", examples=["lisbon"]),
    ] = None
    broker: BrokerSettings = BrokerSettings()
    token_file: Annotated[
        str | None, Meta(description="file with the token to join with; default: token in state_dir, if it is there")
    ] = None
    root: Annotated[
        Root | None,
        Meta(description="fingerprint of the fleet's root keys, for a device that joins without a token"),
    ] = None
    trust_on_first_use: Annotated[
        bool, Meta(description="without token and root: believe whoever answers first; for a network you trust")
    ] = False
    serial: Annotated[
        Word | None, Meta(description="serial number shown when it joins; default: the machine's own, or its host name")
    ] = None
    model: Annotated[Word | None, Meta(description="model shown when it joins; default: the machine's own")] = None
    state_dir: Annotated[str, Meta(min_length=1, description="where the agent keeps its keys and its jobs")] = (
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


def load(path: Path) -> AgentSettings:
    """The settings in a file. Only the usual file may be missing: a token has all that a device needs.

    Raises ``ConfigInvalid``.
    """
    if path == AGENT_CONFIG and not path.exists():
        return AgentSettings()
    return settings.load(AgentSettings, path)
