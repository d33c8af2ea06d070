"""The client of a station's API: JSON over HTTP/1.1 on a unix socket, or over TLS to another machine.

It does not print and does not retry: what goes wrong is raised as the error of the exit status it ends in.
"""

from __future__ import annotations

import errno
import http.client
import json
import socket
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from device_agent.errors import NotFound, NotRunning, OutstationError, PolicyRefused, StationFailed, UsageInvalid
from gateway.cli import call_views, key_views, views
from gateway.cli.remote import Remote
from gateway.fleet.join_words import NO_NAME

RUN_DIRECTORY = Path("/run/outstation")
SOCKET_NAMES = ("gateway.sock", "master.sock")
ANSWER_SECONDS = 60.0
"""Longest wait for an answer, and for the next line of a stream; the station keeps an idle stream alive."""

LOOK_SECONDS = 5.0
"""For the question which of two stations is one."""

LINE_BYTES = 16 * 1024 * 1024
ANSWER_BYTES = 256 * 1024 * 1024
READ_BYTES = 64 * 1024
PAGE = 1000

View = TypeVar("View")


def find_socket(given: Path | None, directory: Path = RUN_DIRECTORY) -> Path:
    """The socket to talk to: the one given, else the only one on this machine.

    A gateway that has no name yet is not meant where a master runs. Raises ``UsageInvalid`` when a gateway and a master
    both run here, ``NotRunning`` when neither does.
    """
    if given is not None:
        return given
    try:
        there = [directory / name for name in SOCKET_NAMES if (directory / name).exists()]
    except PermissionError:
        raise may_not_use(directory) from None
    if len(there) > 1:
        # After an installation a gateway runs on every machine, also on one that is to be a master.
        there = [path for path in there if _is_a_station(path)] or there
    if len(there) == 1:
        return there[0]
    if there:
        raise UsageInvalid(
            "a gateway and a master both run on this machine, and either could be meant",
            error_id="usage.which_station",
            found=" and ".join(map(str, there)),
            hint=f"outstation --socket {there[0]} …   or   export OUTSTATION_SOCKET={there[0]}",
        )
    raise NotRunning(
        "no station runs on this machine",
        allowed=" or ".join(str(directory / name) for name in SOCKET_NAMES),
        hint="systemctl status 'outstation-*'   or   outstation --socket PATH …",
    )


def _is_a_station(path: Path) -> bool:
    """Whether one that has a name answers there, or might."""
    try:
        return StationClient(path, LOOK_SECONDS).station().name != NO_NAME
    except NotRunning:
        return False
    except OutstationError:
        return True


def may_not_use(path: Path) -> PolicyRefused:
    """The error for a socket that belongs to others."""
    return PolicyRefused(
        "you may not talk to this station",
        error_id="policy.socket",
        where=str(path),
        found="permission denied",
        hint="run it with sudo, or join the group that owns the socket",
    )


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path, timeout_seconds: float) -> None:
        super().__init__("outstation", timeout=timeout_seconds)
        self._path = path

    def connect(self) -> None:
        """Open the socket. Raises ``OSError``."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class StationClient:
    """One station's API. A connection per request."""

    def __init__(self, path: Path | Remote, timeout_seconds: float = ANSWER_SECONDS) -> None:
        self._path = path
        self._timeout_seconds = timeout_seconds

    def station(self) -> views.StationView:
        """Who answers at the socket."""
        return self._ask("GET", "/station", views.StationView)

    def create_job(self, job: Mapping[str, Any]) -> views.JobView:
        """Give the station a job; it is on the station's disk when this returns."""
        return self._ask("POST", "/jobs", views.JobView, body=job)

    def jobs(self, limit: int, state: str | None = None) -> list[views.JobView]:
        """Jobs, newest first."""
        return self._ask("GET", "/jobs", views.JobPage, query={"limit": limit, "state": state}).jobs

    def job(self, jid: str) -> views.JobView:
        """One job. Raises ``NotFound``."""
        return self._ask("GET", f"/jobs/{quote(jid, safe='')}", views.JobView)

    def cancel(self, jid: str) -> views.JobView:
        """Ask that devices which have not started a job do not start it."""
        return self._ask("POST", f"/jobs/{quote(jid, safe='')}/cancel", views.JobView, body={})

    def release(self, jid: str) -> views.JobView:
        """Let a held job go."""
        return self._ask("POST", f"/jobs/{quote(jid, safe='')}/release", views.JobView, body={})

    def outcomes(self, jid: str, outcome: str | None = None) -> Iterator[views.OutcomeView]:
        """Every recorded outcome of a job, page by page."""
        after: str | int | None = None
        while True:
            page = self._ask(
                "GET",
                f"/jobs/{quote(jid, safe='')}/outcomes",
                views.OutcomePage,
                query={"outcome": outcome, "limit": PAGE, "after": after},
            )
            yield from page.outcomes
            after = page.next
            if after is None:
                return

    def watch(self, jid: str) -> Generator[views.Watched, None, None]:
        """A job as it goes on, until its last line. Raises ``NotRunning`` when the station goes away before that."""
        decoder = msgspec.json.Decoder(views.Watched)
        for line in self._lines(f"/jobs/{quote(jid, safe='')}/watch", {}):
            yield _decoded(decoder, line)

    def called(self, jid: str) -> Generator[call_views.CallView, None, None]:
        """A call when it has ended; nothing when the station stops before that. Raises ``NotRunning``."""
        decoder = msgspec.json.Decoder(call_views.CallView)
        for line in self._lines(f"/calls/{quote(jid, safe='')}/watch", {}):
            yield _decoded(decoder, line)

    def devices(self, query: Mapping[str, Any], limit: int | None = None) -> Iterator[views.DeviceView]:
        """Devices, page by page, at most ``limit``."""
        after: str | int | None = None
        given = 0
        while limit is None or given < limit:
            size = PAGE if limit is None else min(PAGE, limit - given)
            page = self._ask("GET", "/devices", views.DevicePage, query={**query, "limit": size, "after": after})
            yield from page.devices
            given += len(page.devices)
            after = page.next
            if after is None:
                return

    def device(self, device: str, site: str | None) -> list[views.DeviceView]:
        """The device of this id; more than one when sites share the id. Raises ``NotFound``."""
        path = f"/devices/{quote(device, safe='')}"
        return self._ask("GET", path, views.DevicePage, query={"site": site}).devices

    def pillar(self, device: str, site: str | None, env: str | None) -> list[views.PillarView]:
        """The pillar of the device of this id; more than one when sites share the id. Raises ``NotFound``."""
        path = f"/devices/{quote(device, safe='')}/pillar"
        return self._ask("GET", path, views.PillarPage, query={"site": site, "env": env}).pillars

    def sites(self) -> list[views.SiteView]:
        """Every site."""
        return self._ask("GET", "/sites", views.SiteList).sites

    def site(self, site: str) -> views.SiteView:
        """One site. Raises ``NotFound``."""
        return self._ask("GET", f"/sites/{quote(site, safe='')}", views.SiteView)

    def revoke_site(self, site: str, why: str) -> views.Revoked:
        """Put a site's gateway out for good. Raises ``NotFound``."""
        return self._ask("POST", f"/sites/{quote(site, safe='')}/revoke", views.Revoked, body={"why": why})

    def unfence_site(self, site: str) -> views.Revoked:
        """Let in the gateway of a site that is fenced. Raises ``NotFound``."""
        return self._ask("POST", f"/sites/{quote(site, safe='')}/unfence", views.Revoked)

    def keys(self) -> key_views.KeyPage:
        """The keys of sites and devices, and the station's own; one page. ``key_client`` asks for more."""
        return self._ask("GET", "/keys", key_views.KeyPage)

    def decide_key(self, site: str, verdict: str, fingerprint: str | None) -> list[key_views.KeyView]:
        """``accept`` or ``reject`` the key of a site; the keys that changed."""
        path = f"/keys/{quote(site, safe='')}/{verdict}"
        return self._ask("POST", path, key_views.KeyPage, body={"fingerprint": fingerprint}).keys

    def ask(
        self,
        method: str,
        path: str,
        answer: type[View],
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> View:
        """One request, for a noun that has a client of its own."""
        return self._ask(method, path, answer, query=query, body=body)

    def events(self, tag: str, history: int, follow: bool) -> Iterator[views.EventView]:
        """Events whose tag matches, ``history`` past ones first. Raises ``NotRunning`` when the station goes away."""
        decoder = msgspec.json.Decoder(views.EventView)
        query = {"tag": tag, "history": history, "follow": "true" if follow else "false"}
        for line in self._lines("/events", query):
            yield _decoded(decoder, line)

    def fire(self, tag: str, data: Mapping[str, Any]) -> views.EventView:
        """Fire an event; it is on the station's disk when this returns."""
        body = {"events": [{"tag": tag, "data": data}]}
        (fired,) = self._ask("POST", "/events", views.FiredList, body=body).events
        return fired

    def findings(self) -> list[views.Finding]:
        """What every check of the station finds now."""
        return self._ask("GET", "/check", views.FindingList).findings

    def tell(self) -> views.FindingList:
        """The same, with events of what has changed since this was asked last."""
        return self._ask("POST", "/check", views.FindingList, body={})

    def audit(self, query: Mapping[str, Any], limit: int) -> Iterator[views.AuditRow]:
        """Audit rows, newest first, at most ``limit``."""
        before: int | None = None
        while limit > 0:
            page = self._ask(
                "GET", "/audit", views.AuditPage, query={**query, "limit": min(PAGE, limit), "before": before}
            )
            yield from page.rows
            limit, before = limit - len(page.rows), page.next
            if before is None:
                return

    def audit_export(self, query: Mapping[str, Any]) -> Iterator[views.AuditRow]:
        """Audit rows, oldest first, each about a job once for each device."""
        decoder = msgspec.json.Decoder(views.AuditRow)
        for line in self._lines("/audit/export", query):
            yield _decoded(decoder, line)

    def operator(self) -> views.OperatorView:
        """Who asks, as the station sees it."""
        return self._ask("GET", "/operators/me", views.OperatorView)

    def tokens(self) -> list[views.TokenView]:
        """Tokens of the API."""
        return self._ask("GET", "/operators/tokens", views.TokenList).tokens

    def new_token(self, user: str, role: str | None, seconds: float) -> views.TokenView:
        """Make a token for a user."""
        body = {"user": user, "role": role, "seconds": seconds}
        return self._ask("POST", "/operators/tokens", views.TokenView, body=body)

    def revoke_token(self, token: str) -> views.TokenView:
        """End a token."""
        return self._ask("POST", f"/operators/tokens/{quote(token, safe='')}/revoke", views.TokenView, body={})

    def _ask(
        self,
        method: str,
        path: str,
        answer: type[View],
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> View:
        with self._answer(method, path, query or {}, body) as response:
            content = response.read(ANSWER_BYTES)
        return _decoded(msgspec.json.Decoder(answer), content)

    def _lines(self, path: str, query: Mapping[str, Any]) -> Iterator[bytes]:
        """The lines of a stream; empty ones only say that the station is still there."""
        with self._answer("GET", path, query, None) as response:
            rest = b""
            while piece := response.read1(READ_BYTES):
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield line
                if len(rest) > LINE_BYTES:
                    raise StationFailed("the station sent a line without an end", found=f"{len(rest)} bytes")
            if rest.strip():
                raise NotRunning("the station stopped in the middle of a line", error_id="station.gone")

    @contextmanager
    def _answer(
        self, method: str, path: str, query: Mapping[str, Any], body: Mapping[str, Any] | None
    ) -> Iterator[http.client.HTTPResponse]:
        pairs = {key: value for key, value in query.items() if value is not None}
        target = f"{path}?{urlencode(pairs)}" if pairs else path
        headers = {"Accept": "application/json", **(self._path.headers() if isinstance(self._path, Remote) else {})}
        content = None
        if body is not None:
            content = json.dumps(body, allow_nan=False, ensure_ascii=False).encode()
            headers["Content-Type"] = "application/json"
        with closing(self._connection()) as connection:
            try:
                connection.connect()
            except OSError as error:
                raise self._unreachable(error) from None
            try:
                connection.request(method, target, body=content, headers=headers)
                with connection.getresponse() as response:
                    if not 200 <= response.status < 300:
                        raise refusal(response.status, response.read(ANSWER_BYTES))
                    yield response
            except TimeoutError:
                raise StationFailed(
                    f"the station said nothing for {self._timeout_seconds:.0f} seconds",
                    error_id="station.silent",
                    where=str(self._path),
                    hint="outstation check",
                ) from None
            except (ConnectionError, http.client.HTTPException):
                raise NotRunning(
                    "the station closed the connection before it had answered",
                    error_id="station.gone",
                    where=str(self._path),
                    hint="systemctl status 'outstation-*'",
                ) from None

    def _connection(self) -> http.client.HTTPConnection:
        if isinstance(self._path, Remote):
            return self._path.connection(self._timeout_seconds)
        return UnixConnection(self._path, self._timeout_seconds)

    def _unreachable(self, error: OSError) -> OutstationError:
        if isinstance(self._path, Remote):
            return self._path.unreachable(error)
        if error.errno in (errno.EACCES, errno.EPERM):
            return may_not_use(self._path)
        if error.errno is None:
            # The socket module itself refuses a path longer than the 107 bytes a socket address holds.
            return UsageInvalid("this path cannot be a socket", where="--socket", found=f"{self._path}: {error}")
        return NotRunning(
            "no station answers at this socket",
            where=str(self._path),
            found=(error.strerror or str(error)).lower(),
            hint="systemctl status 'outstation-*'   or   outstation --socket PATH …",
        )


def refusal(status: int, content: bytes) -> OutstationError:
    """The error a station answered with, as the error of the exit status it stands for."""
    kinds: dict[int, type[OutstationError]] = {
        400: UsageInvalid,
        401: PolicyRefused,
        403: PolicyRefused,
        404: NotFound,
        413: UsageInvalid,
        422: UsageInvalid,
        429: PolicyRefused,
    }
    kind = kinds.get(status, StationFailed)
    try:
        facts = msgspec.json.decode(content, type=views.ErrorAnswer).error
    except msgspec.DecodeError:
        return kind(f"the station answered with HTTP status {status}", found=content[:200].decode(errors="replace"))
    return kind(
        facts.what,
        error_id=facts.id,
        where=facts.where,
        found=facts.found,
        allowed=facts.allowed,
        hint=facts.hint,
    )


def _decoded(decoder: msgspec.json.Decoder[View], content: bytes) -> View:
    try:
        return decoder.decode(content)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise StationFailed(
            "the station's answer cannot be read: is it of another release?",
            error_id="station.not_understood",
            found=f"{error}: {content[:120].decode(errors='replace')}",
        ) from None
