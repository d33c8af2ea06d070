"""What the station's API says, as types: the client's side of the contract.

Only what a command cannot do without is required; the rest has a default, so that a station of another release can
still be talked to. Times are seconds since 1970 UTC, durations are seconds.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from gateway.cli.ssh_views import SshView


class SiteProgress(Struct, frozen=True):
    """How far one site is with a job; ``state`` is waiting, answering, closed or dark."""

    site: str
    state: str
    expected: int = 0
    done: int = 0
    connected: bool = False
    last_seen: float | None = None


class JobView(Struct, frozen=True):
    """A job as its station sees it."""

    jid: str
    fun: str
    state: str
    tgt: str = ""
    tgt_type: str = "glob"
    typed: str = ""
    typed_type: str = ""
    """What was asked for, where the target that was signed is another."""
    arg: list[Any] = []
    kwarg: dict[str, Any] = {}
    user: str | None = None
    origin: str | None = None
    issued: float | None = None
    expires: float | None = None
    late: str = "drop"
    run_limit: float | None = None
    cancelled: bool = False
    held: bool = False
    why: str = ""
    sealed: bool = False
    """Its arguments are for its devices alone, and are not here."""
    commits: str = ""
    """The git commits of the files that its arguments name, each behind its environment."""
    accepted: float | None = None
    """When this station took it; ``issued`` is by the clock of whoever made it."""
    closed: float | None = None
    last_outcome: float | None = None
    expected: int = 0
    counts: dict[str, int] = {}
    waiting: dict[str, int] = {}
    sites: list[SiteProgress] = []
    missing: list[str] = []
    """Names in a list target that no site knows."""


class OutcomeView(Struct, frozen=True, tag_field="type", tag="outcome"):
    """How a job ended on one device, with what it returned."""

    id: str
    outcome: str
    site: str | None = None
    retcode: int | None = 0
    value: Any = None
    why: str | None = ""
    seen: float | None = None
    ended: float | None = None
    duration: float | None = None
    executions: int | None = 0


class JobSeen(Struct, frozen=True, tag_field="type", tag="job"):
    """The first line of a watched job."""

    job: JobView


class Progress(Struct, frozen=True, tag_field="type", tag="progress"):
    """Where a watched job stands."""

    expected: int = 0
    counts: dict[str, int] = {}
    waiting: dict[str, int] = {}
    sites: list[SiteProgress] = []


class JobClosed(Struct, frozen=True, tag_field="type", tag="close"):
    """The last line of a watched job."""

    job: JobView


Watched = JobSeen | OutcomeView | Progress | JobClosed


class ProblemView(Struct, frozen=True):
    """What is wrong with a file of pillar."""

    file: str
    line: int
    kind: str
    what: str
    text: str
    rendered: bool = False


class PillarView(Struct, frozen=True):
    """The pillar of a device."""

    id: str
    site: str
    source: str
    age: float
    pillar: dict[str, Any]
    problems: list[ProblemView]


class PillarPage(Struct, frozen=True):
    """The pillars of the devices of one id."""

    pillars: list[PillarView]


class DeviceView(Struct, frozen=True):
    """A device in a station's registry."""

    id: str
    site: str | None = None
    link: str | None = None
    present: bool = False
    last_seen: float | None = None
    first_seen: float | None = None
    agent: str | None = None
    grains: dict[str, Any] | None = None
    # Only of a device that was enrolled.
    did: str | UnsetType = UNSET
    fingerprint: str | UnsetType = UNSET
    state: str | UnsetType = UNSET
    serial: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    proof: str | UnsetType = UNSET
    unproven: bool | UnsetType = UNSET
    accepted_by: str | UnsetType = UNSET
    accepted_at: float | UnsetType | None = UNSET
    confirmed_at: float | UnsetType | None = UNSET
    ssh: SshView | UnsetType = UNSET
    """Only of a device that is reached over SSH."""
    refused: dict[str, int] | UnsetType = UNSET
    """What its station refused of it since the start, by reason; only where one device is shown."""
    refused_there: dict[str, int] | UnsetType = UNSET
    """What the device says that it refused since it started, by reason."""


class Twin(Struct, frozen=True):
    """A second gateway with a copy of a site's store, which is fenced."""

    address: str = ""
    seen: float | None = None
    count: int = 0


class Fault(Struct, frozen=True):
    """What keeps a site from taking jobs."""

    reason: str
    since: float = 0.0
    words: str = ""


class SiteView(Struct, frozen=True):
    """A site under a master; ``role`` is active when this master gets its spool, or standby."""

    site: str
    connected: bool = False
    role: str = ""
    since: float | None = None
    last_seen: float | None = None
    devices: int | None = None
    present: int | None = None
    version: str | None = None
    fingerprint: str | None = None
    address: str | None = None
    confirmed: dict[str, int] = {}
    twin: Twin | None = None
    faults: list[Fault] = []


class Revoked(Struct, frozen=True):
    """A site about which something was decided."""

    site: str
    state: str


class EventView(Struct, frozen=True):
    """Something that happened; ``stamp`` is Salt's, ISO 8601 in UTC."""

    tag: str
    data: dict[str, Any] = {}
    stamp: str = field(default="", name="_stamp")
    site: str | None = None
    origin: str | UnsetType = UNSET
    """The identity of an event that came from a site, the same on every master."""


class FiredList(Struct, frozen=True):
    """Events that were accepted."""

    events: list[EventView]


class Finding(Struct, frozen=True):
    """What one check found; ``severity`` is ok, info, warning or error."""

    check: str
    severity: str
    finding: str
    meaning: str | None = ""
    fix: str | None = ""
    about: str | None = ""


class LinkView(Struct, frozen=True):
    """A gateway's link to one master; ``role`` is active, standby, or empty while the link is down."""

    address: str
    state: str = "unknown"
    role: str = ""
    since: float | None = None
    last_error: str | None = None
    next_attempt: float | None = None


class UplinkView(Struct, frozen=True):
    """A gateway's uplink: the link to the active master, and all of them."""

    state: str = "unknown"
    master: str | None = None
    since: float | None = None
    last_error: str | None = None
    links: list[LinkView] = []


class StationView(Struct, frozen=True):
    """The station that was asked; ``listen`` is where its sites connect to."""

    role: str
    name: str
    version: str = ""
    started: float | None = None
    public_key: str = ""
    fingerprint: str = ""
    listen: str | None = None
    broker: dict[str, Any] | None = None
    uplink: UplinkView | None = None
    devices: int = 0
    present: int = 0
    sites: int = 0
    jobs_open: int = 0
    spool_pending: int = 0


class JobPage(Struct, frozen=True):
    """Jobs, newest first."""

    jobs: list[JobView]


class OutcomePage(Struct, frozen=True):
    """A page of outcomes; ``next`` is where the following one starts."""

    outcomes: list[OutcomeView]
    next: str | int | None = None


class DevicePage(Struct, frozen=True):
    """A page of devices; ``next`` is where the following one starts."""

    devices: list[DeviceView]
    next: str | int | None = None


class SiteList(Struct, frozen=True):
    """All sites."""

    sites: list[SiteView]


class CheckNews(Struct, frozen=True):
    """A check of which something changed: how bad the worst it finds is now, and was before."""

    check: str
    severity: str
    was: str
    findings: list[Finding] = []


class FindingList(Struct, frozen=True):
    """What all checks found, and what of it was made events now."""

    findings: list[Finding]
    news: list[CheckNews] = []


class AuditRow(Struct, frozen=True):
    """Who asked for what, and what was answered; in an export also how it ended on one device."""

    at: float
    user: str
    action: str
    verdict: str
    site: str = ""
    door: str = ""
    subject: str = ""
    why: str = ""
    jid: str = ""
    fun: str = ""
    arguments: str = ""
    device: str = ""
    device_site: str = ""
    outcome: str = ""
    retcode: int | None = None
    outcome_why: str = ""
    ended: float | None = None
    times: int = 1
    """How many equal refusals this one row stands for."""


class AuditPage(Struct, frozen=True):
    """A page of audit rows; ``next`` is the cursor of the following one."""

    rows: list[AuditRow]
    next: int | None = None


class OperatorView(Struct, frozen=True):
    """Who asks, as the station sees it."""

    name: str
    door: str = ""
    roles: list[str] = []
    groups: list[str] = []
    may: list[str] = []
    policy: str | None = None


class TokenView(Struct, frozen=True):
    """A token of the API; ``token`` is its text, said once, when it is made."""

    id: str
    user: str
    state: str = "valid"
    role: str | None = None
    made_by: str = ""
    made: float | None = None
    expires: float | None = None
    used: float | None = None
    revoked: float | None = None
    token: str = ""


class TokenList(Struct, frozen=True):
    """All tokens."""

    tokens: list[TokenView]


class ErrorFacts(Struct, frozen=True):
    """The facts of an error, as ``OutstationError.fields`` gives them."""

    what: str
    id: str | None = None
    where: str | None = None
    found: str | None = None
    allowed: str | None = None
    hint: str | None = None


class ErrorAnswer(Struct, frozen=True):
    """The body of an answer that is an error."""

    error: ErrorFacts
