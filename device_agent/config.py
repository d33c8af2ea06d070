"""The agent's settings table: what can be written in its file, with type, default, unit and meaning."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from device_agent import settings
from device_agent.errors import Refused
from device_agent.own import GRAINS_FILE
from device_agent.places import AGENT_CONFIG
from device_agent.protocol.messages import SiteId
from device_agent.protocol.mine import ENTRIES, calls
from device_agent.schedule.settings import refuse_wrong

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
    grains_file: Annotated[
        str, Meta(min_length=1, pattern="^/", description="YAML file on the device with more facts; those above win")
    ] = GRAINS_FILE
    grains_refresh_seconds: Annotated[
        float,
        Meta(
            ge=0, le=86_400.0, description="how often the device looks at itself again and tells what changed; 0: never"
        ),
    ] = 600.0
    mine_functions: Annotated[
        dict[Annotated[str, Meta(min_length=1, max_length=128)], Any],
        Meta(
            max_length=ENTRIES,
            description="what the device keeps in the mine, in Salt's shapes; docs/mine.md",
            examples=[{"network.ip_addrs": []}],
        ),
    ] = {}
    mine_interval: Annotated[
        float,
        Meta(ge=0, le=10_080.0, description="minutes between two refreshes of the mine; 0: at the start alone"),
    ] = 60.0
    schedule: Annotated[
        dict[Annotated[str, Meta(min_length=1, max_length=128)], Any],
        Meta(
            max_length=260,
            description="what the device runs by itself, as Salt has it; docs/schedules.md",
            examples=[{"nightly": {"function": "test.ping", "cron": "30 4 * * *"}}],
        ),
    ] = {}
    timezone: Annotated[
        Word | None,
        Meta(
            description="zone of the times in its schedule; default: the machine's own",
            examples=["Europe/Lisbon"],
        ),
    ] = None
    beacons: Annotated[
        dict[Annotated[str, Meta(min_length=1, max_length=64)], Any],
        Meta(
            max_length=65,
            description="what the device watches on itself, in Salt's shapes; docs/beacons.md",
            examples=[{"diskusage": [{"/": "80%"}]}],
        ),
    ] = {}
    beacons_from_pillar: Annotated[
        Literal["none", "looks", "all"],
        Meta(
            description="which beacons the pillar may configure: none (it is not asked for them), those that tell what "
            "anybody on the device may know, or all"
        ),
    ] = "looks"
    sealing_key_days: Annotated[
        int,
        Meta(
            ge=0,
            le=3650,
            description="days after which the device changes the key that jobs for it alone are sealed to; at least 31 "
            "days lie between two changes; 0: never",
        ),
    ] = 365
    drain_seconds: Annotated[
        float,
        Meta(
            ge=0, le=DRAIN_MAX_SECONDS, description="seconds a running job may take to finish when the agent is stopped"
        ),
    ] = 10.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="least severe message that is logged")
    ] = "info"

    def __post_init__(self) -> None:
        """What is in the mine can be called, and what is in the schedule means something."""
        try:
            calls(self.mine_functions)
        except Refused as refusal:
            raise ValueError(f"mine_functions: {refusal.detail}") from None
        refuse_wrong(self.schedule, self.timezone)


_kept_back = re.compile("token|password|secret|passphrase|^schedule$")


def readable(table: AgentSettings) -> dict[str, Any]:
    """The settings that functions may show: all but what lets somebody in, and where that is kept.

    What is in the schedule is shown to those who may call ``schedule.list``.
    """
    shown: dict[str, Any] = msgspec.to_builtins(table)
    return {name: value for name, value in shown.items() if not _kept_back.search(name)}


def load(path: Path) -> AgentSettings:
    """The settings in a file. Only the usual file may be missing: a token has all that a device needs.

    Raises ``ConfigInvalid``.
    """
    if path == AGENT_CONFIG and not path.exists():
        return AgentSettings()
    return settings.load(AgentSettings, path)
