"""The station's settings table. Masters and gateways read the same one; the sections they have make the difference."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.protocol.messages import SiteId
from device_agent.protocol.mine import ENTRIES, calls
from gateway.calls.settings import CallSettings
from gateway.devices.pillar_settings import PillarSettings, Roots
from gateway.files.settings import FileRoots, FilesSettings, Pattern, check_patterns
from gateway.mine.settings import MineSettings
from gateway.outlet_settings import OutletSettings
from gateway.own.settings import OwnSettings
from gateway.reactor import settings as reactor_settings
from gateway.reactor.settings import ReactionSettings
from gateway.reactor.throttle import Throttle
from gateway.render_settings import RenderSettings
from gateway.salt.settings import UpstreamSettings
from gateway.schedule.settings import Entries, TimeZone
from gateway.schedule.settings import check as check_schedule
from gateway.spool.streams import STATE, TELEMETRY, URGENT
from upstream.curve import is_key

Z85_KEY_PATTERN = r"^[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}$(?!\n)"
HIGHEST_PORT = 65535
LISTEN_PATTERN = r"^[^\s/]+:[0-9]{1,5}$(?!\n)"
NODEGROUP_PATTERN = r"^[^\s,]{1,128}$(?!\n)"
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
    max_bytes_per_second: Annotated[
        int, Meta(ge=0, le=10**10, description="bytes of returns, events and audit sent up in a second; 0: no limit")
    ] = 0


class SitesSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where sites connect to this station."""

    require_proof: Annotated[bool, Meta(description="refuse what a site behind a relay did not sign")] = False
    unproven: Annotated[list[SiteId], Meta(max_length=1000, description="sites behind relays that need not sign")] = []
    listen: Annotated[
        str,
        Meta(pattern=TCP_PATTERN, description="address for the gateways below; `tcp://[::]:4510` takes IPv4 and IPv6"),
    ] = "tcp://0.0.0.0:4510"


class BrokerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The site's MQTT broker."""

    mode: Annotated[
        Literal["managed", "service", "external", "embedded"],
        Meta(
            description="managed: run our own mosquitto; service: that of outstation-broker.service, as the package "
            "has it; external: use the broker at host and port; "
            "embedded: a broker inside this process, for a machine without mosquitto, up to 200 devices"
        ),
    ] = "managed"
    host: Annotated[
        Annotated[str, Meta(min_length=1, max_length=255)] | None,
        Meta(
            description="managed, service: where it listens, default 0.0.0.0, every IPv4 address of this machine; "
            "external: where it is, default 127.0.0.1; embedded: 127.0.0.1 and nothing else"
        ),
    ] = None
    port: Annotated[int, Meta(ge=1, le=65535, description="port of the broker for accepted devices")] = 1884
    enroll_port: Annotated[
        Annotated[int, Meta(ge=1, le=65535)] | None,
        Meta(description="port of the broker for devices that ask to join; default: port + 1"),
    ] = None
    tls_port: Annotated[
        Annotated[int, Meta(ge=1, le=65535)] | None,
        Meta(description="port of the broker for accepted devices over TLS, beside port; default: none"),
    ] = None
    username: Annotated[str | None, Meta(description="external only: user of this station at the broker")] = None
    password: Annotated[str | None, Meta(description="external only: its password")] = None
    rules_dir: Annotated[
        str | None,
        Meta(
            description="external, service: folder for the broker's users and rules; default: external: broker in "
            "state_dir; service: /var/lib/outstation/broker"
        ),
    ] = None
    pid_file: Annotated[
        str | None,
        Meta(
            description="external: file with the broker's process id, to tell it of changed rules; service: the same, "
            "its socket is beside it; default there: /run/outstation-broker/mosquitto.pid"
        ),
    ] = None

    def __post_init__(self) -> None:
        """Each door needs a port of its own."""
        if self.mode == "embedded" and self.tls_port is not None:
            raise ValueError("tls_port is for the other modes: the embedded broker has no TLS")
        if self.enroll_port is None and self.port == HIGHEST_PORT:
            raise ValueError(f"enroll_port is needed beside port {self.port}: there is no port above it")
        ports = [port for port in (self.port, self.enrollment_port, self.tls_port) if port is not None]
        if len(set(ports)) < len(ports):
            raise ValueError(f"port, enroll_port and tls_port must differ, these are {', '.join(map(str, ports))}")

    @property
    def enrollment_port(self) -> int:
        """Where devices ask to join."""
        return self.enroll_port if self.enroll_port is not None else self.port + 1


class SshSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Devices without an agent, which this gateway reaches over SSH."""

    connect_seconds: Annotated[
        float, Meta(ge=1, le=120, description="most that connecting may take, and most that logging in may take")
    ] = 10.0
    idle_seconds: Annotated[
        float, Meta(ge=1, le=86_400, description="a connection that nobody used for so long is closed")
    ] = 300.0
    connections: Annotated[
        int,
        Meta(ge=1, le=20_000, description="most connections that are open at once; the one used longest ago gives way"),
    ] = 1000
    width: Annotated[
        int, Meta(ge=1, le=1000, description="most logins at once; how many there are follows what the site bears")
    ] = 64
    keepalive_seconds: Annotated[
        float,
        Meta(
            ge=1, le=3600, description="how often a device is asked whether it is there while it works; three in vain"
        ),
    ] = 15.0
    facts_seconds: Annotated[
        float, Meta(ge=1, le=3600, description="most that a device may take to tell its grains")
    ] = 30.0
    agent_socket: Annotated[
        str | None,
        Meta(
            description="socket of the SSH agent for devices with login agent; default: SSH_AUTH_SOCK of the gateway",
            examples=["/run/outstation/ssh-agent.sock"],
        ),
    ] = None
    mine_functions: Annotated[
        dict[Annotated[str, Meta(min_length=1, max_length=128)], Any],
        Meta(
            max_length=ENTRIES,
            description="what each SSH device keeps in the mine, in Salt's shapes; docs/mine.md",
            examples=[{"network.ip_addrs": []}],
        ),
    ] = {}
    mine_interval: Annotated[
        float,
        Meta(ge=0, le=10_080.0, description="minutes between two refreshes of the mine; 0: at the start alone"),
    ] = 60.0

    def __post_init__(self) -> None:
        """What is in the mine can be called."""
        try:
            calls(self.mine_functions)
        except Refused as refusal:
            raise ValueError(f"mine_functions: {refusal.detail}") from None


class JobsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs kept on this station."""

    keep_hours: Annotated[
        float, Meta(ge=1, le=24 * 365, description="hours a closed job is kept, as Salt's keep_jobs")
    ] = 24.0


class ApiSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the API listens beside its socket, for operators with tokens."""

    listen: Annotated[
        str,
        Meta(
            pattern=LISTEN_PATTERN,
            description="address and port; without a certificate only a loopback address is taken",
            examples=["0.0.0.0:4512"],
        ),
    ]
    certificate: Annotated[str | None, Meta(description="PEM file with the TLS certificate and its chain")] = None
    key: Annotated[str | None, Meta(description="PEM file with the certificate's key, without a password")] = None

    def __post_init__(self) -> None:
        """One of the two is of no use."""
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key go together, one of them is missing")


class AuditSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The audit kept on this station."""

    keep_days: Annotated[
        float, Meta(ge=1, le=3660, description="days that is kept who did what, on which device, with what outcome")
    ] = 400.0


class EventsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Events for other processes of this machine."""

    publish: Annotated[
        bool, Meta(description="publish events on a ZeroMQ socket, for all who may open its file; docs/events.md")
    ] = True
    socket: Annotated[
        str | None,
        Meta(
            description="that socket; default: beside the API's, ROLE-events.sock beside ROLE.sock",
            examples=["/run/outstation/gateway-events.sock"],
        ),
    ] = None
    queue: Annotated[
        int, Meta(ge=10, le=1_000_000, description="most events that wait for a reader of it; then it misses some")
    ] = 10_000
    syndic_tags: Annotated[
        bool, Meta(description="keep what comes up from a site a second time under syndic/SITE/TAG, as behind a syndic")
    ] = False


Globs = Annotated[list[Annotated[str, Meta(min_length=1, max_length=256)]], Meta(max_length=256)]


class SpoolSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What waits on this disk for a master."""

    returns_megabytes: Annotated[
        int, Meta(ge=1, le=1_000_000, description="most that waits of jobs and answers; more is refused, not dropped")
    ] = 1024
    events_megabytes: Annotated[
        int, Meta(ge=1, le=1_000_000, description="most that waits of events; beyond it the oldest give way")
    ] = 512
    audit_megabytes: Annotated[
        int, Meta(ge=1, le=1_000_000, description="most that waits of the audit; more is refused, not dropped")
    ] = 256
    telemetry_megabytes: Annotated[
        int, Meta(ge=1, le=1_000_000, description="most that waits of telemetry; beyond it the oldest gives way")
    ] = 128
    urgent: Annotated[Globs, Meta(description="tags of events that go up before all others")] = field(
        default_factory=lambda: list(URGENT)
    )
    state: Annotated[
        Globs, Meta(description="tags of events of which only the newest counts while they wait, each tag for itself")
    ] = field(default_factory=lambda: list(STATE))
    telemetry: Annotated[
        Globs, Meta(description="tags of events that are telemetry: they go up last, and give way first")
    ] = field(default_factory=lambda: list(TELEMETRY))


class StationSettings(OutletSettings, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    master_type: Annotated[
        Literal["str", "failover", "hot"],
        Meta(
            description="which of several masters gets the spool; hot, as str with a list: the first that is up; "
            "failover: the first that answers, until it is lost; all of them may order"
        ),
    ] = "str"
    master_alive_interval: Annotated[
        Annotated[float, Meta(ge=0, le=3600)] | None,
        Meta(
            description="seconds that a master may say nothing before its link is lost; 0: three echoes; "
            "default: 30 with failover, else 0"
        ),
    ] = None
    master_failback: Annotated[
        bool, Meta(description="failover: go back to a master that stands before the active one when it is up again")
    ] = False
    master_failback_interval: Annotated[
        float,
        Meta(ge=0, le=86400, description="seconds that master must have been up without a break; 0: as soon as seen"),
    ] = 0.0
    master_shuffle: Annotated[
        bool, Meta(description="draw the order of the masters at the start, so that sites spread over them")
    ] = False
    random_reauth_delay: Annotated[
        float,
        Meta(ge=0, le=3600, description="a lost master is asked again after a random time up to so many seconds"),
    ] = 10.0
    uplink: UplinkSettings = UplinkSettings()
    upstream: UpstreamSettings = UpstreamSettings()
    sites: SitesSettings | None = None
    broker: BrokerSettings | None = None
    ssh: SshSettings = SshSettings()
    jobs: JobsSettings = JobsSettings()
    nodegroups: Annotated[
        dict[
            Annotated[str, Meta(pattern=NODEGROUP_PATTERN)],
            Annotated[str, Meta(min_length=1, max_length=limits.TARGET_CHARACTERS)]
            | Annotated[list[Annotated[str, Meta(min_length=1, max_length=1024)]], Meta(max_length=20_000)],
        ],
        Meta(
            max_length=1000,
            description="names for targets, as in Salt: each a compound target, or a list of ids; docs/targets.md",
        ),
    ] = {}
    policy: Annotated[
        str | None,
        Meta(
            description="file that says who may do what; default: root and this user everything, others look only",
            examples=["/etc/outstation/policy.yaml"],
        ),
    ] = None
    api: ApiSettings | None = None
    audit: AuditSettings = AuditSettings()
    spool: SpoolSettings = SpoolSettings()
    events: EventsSettings = EventsSettings()
    enable_legacy_startup_events: Annotated[
        bool, Meta(description="tell of a device's start under minion_start as well, as in Salt")
    ] = True
    presence_events: Annotated[
        bool, Meta(description="tell who is here with salt/presence/present from time to time, as in Salt")
    ] = False
    loop_interval: Annotated[float, Meta(ge=1, le=86_400, description="seconds between two of these, as in Salt")] = (
        60.0
    )
    file_roots: FileRoots = {}
    file_ignore_glob: Annotated[
        list[Pattern], Meta(max_length=64, description="files and folders that match one of these are not served")
    ] = []
    file_ignore_regex: Annotated[
        list[Pattern], Meta(max_length=64, description="the same with regular expressions, which are searched for")
    ] = []
    files: FilesSettings = FilesSettings()

    mine: MineSettings = MineSettings()
    station: OwnSettings = OwnSettings()
    pillar_roots: Annotated[
        Roots, Meta(description="folders of each environment of pillar, best first, as in Salt; docs/pillar.md")
    ] = {}
    pillar: PillarSettings = PillarSettings()
    render: RenderSettings = RenderSettings()
    reactor: Annotated[
        reactor_settings.Rules,
        Meta(
            description="the rules, as in Salt: tag globs, each with a path or paths of its files; or the path of a "
            "YAML file with them, which is read again when it changes; docs/reactor.md",
            examples=[[{"site/door/*": "/etc/outstation/reactor/door.sls"}]],
        ),
    ] = []
    reactor_throttle: Annotated[
        dict[Annotated[str, Meta(min_length=1, max_length=4096)], Throttle],
        Meta(
            max_length=10_000,
            description="how often rules react: by a tag glob of reactor or by a file; docs/reactor.md",
            examples=[{"site/door/*": {"once_within": 60}}],
        ),
    ] = {}
    reactions: ReactionSettings = ReactionSettings()
    calls: CallSettings = CallSettings()
    schedule: Entries = {}
    timezone: TimeZone = None

    def __post_init__(self) -> None:
        """What no pattern of a setting can say."""
        super().__post_init__()
        check_patterns(self.file_ignore_regex)
        check_schedule(self.schedule, self.timezone)
