"""The station's settings table. Masters and gateways read the same one; the sections they have make the difference."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from device_agent.protocol.messages import SiteId
from gateway.spool.streams import STATE, TELEMETRY, URGENT
from upstream.curve import is_key

Z85_KEY_PATTERN = r"^[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}$(?!\n)"
HIGHEST_PORT = 65535
LISTEN_PATTERN = r"^[^\s/]+:[0-9]{1,5}$(?!\n)"
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
    host: Annotated[
        Annotated[str, Meta(min_length=1, max_length=255)] | None,
        Meta(
            description="managed: where it listens, default 0.0.0.0, every IPv4 address of this machine; "
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
            description="external only: folder to write the broker's users and rules to; default: broker in state_dir"
        ),
    ] = None
    pid_file: Annotated[
        str | None,
        Meta(description="external only: file with the broker's process id, to tell it of changed rules"),
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
    sites: SitesSettings | None = None
    broker: BrokerSettings | None = None
    jobs: JobsSettings = JobsSettings()
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
