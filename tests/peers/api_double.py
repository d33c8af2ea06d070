"""A station's API with scripted answers, for what is hard to cause with a real station.

It speaks the contract over real HTTP on a real unix socket, from a thread of this process: a station that dies in the
middle of a stream, text that attacks a terminal, ten thousand outcomes, a watch that waits until the test lets it go.
"""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Mapping, Sequence
from enum import Enum
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.peers import keys_double

JID = "20261121031500000000"
ISSUED = 1_795_230_900.0
"""2026-11-21T03:15:00Z."""

HELD_SECONDS = 60.0
STOP_SECONDS = 60.0

Fields = dict[str, Any]


class Act(Enum):
    """What a stream does beside sending a line."""

    HOLD = "wait until the test calls release()"
    DIE = "close the connection in the middle of a chunk"
    KEEPALIVE = "send an empty line"


Script = Sequence[Fields | bytes | Act]


def job(**changed: Any) -> Fields:
    """A closed job of one ok device, as the API shows it, with changes."""
    return {
        "jid": JID,
        "fun": "test.ping",
        "arg": [],
        "kwarg": {},
        "tgt": "*",
        "tgt_type": "glob",
        "typed": "",
        "typed_type": "",
        "user": "alice",
        "origin": "master-1",
        "issued": ISSUED,
        "expires": ISSUED + 300,
        "late": "drop",
        "run_limit": 3600.0,
        "state": "closed",
        "cancelled": False,
        "held": False,
        "why": "",
        "sealed": False,
        "commits": "",
        "accepted": ISSUED,
        "closed": ISSUED + 2,
        "last_outcome": ISSUED + 1,
        "missing": [],
        "expected": 1,
        "counts": {"ok": 1},
        "waiting": {"queued": 0, "delivered": 0, "running": 0},
        "sites": [site_progress()],
        **changed,
    }


def site_progress(**changed: Any) -> Fields:
    """A site that has closed its part of a job, with changes."""
    return {
        "site": "lisbon",
        "state": "closed",
        "expected": 1,
        "done": 1,
        "connected": True,
        "last_seen": ISSUED,
        **changed,
    }


def outcome(device: str = "cam-0001", **changed: Any) -> Fields:
    """A device that is ok, with changes."""
    return {
        "id": device,
        "site": "lisbon",
        "outcome": "ok",
        "retcode": 0,
        "value": True,
        "why": "",
        "seen": None,
        "ended": ISSUED + 1,
        "duration": 0.01,
        "executions": 1,
        **changed,
    }


def unreachable(device: str, **changed: Any) -> Fields:
    """A device that was not there, with changes."""
    facts = {"outcome": "unreachable", "value": None, "why": "not present", "seen": ISSUED - 120, "executions": 0}
    return outcome(device, **{**facts, **changed})


def watched(outcomes: Sequence[Fields], **changed: Any) -> Script:
    """The stream of a job with these outcomes, from its first line to its close."""
    counts: dict[str, int] = {}
    for record in outcomes:
        counts[record["outcome"]] = counts.get(record["outcome"], 0) + 1
    closed = job(**{"expected": len(outcomes), "counts": counts, **changed})
    opened = {**closed, "state": "open", "counts": {}, "expected": 0}
    return [
        {"type": "job", "job": opened},
        *({"type": "outcome", **record} for record in outcomes),
        {"type": "progress", **{key: closed[key] for key in ("expected", "counts", "waiting", "sites")}},
        {"type": "close", "job": closed},
    ]


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 16
    api: ApiDouble


class ApiDouble:
    """The double: set what it knows, enter it, and point a client at ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.jobs: list[Fields] = [job()]
        self.outcomes: list[Fields] = [outcome()]
        self.stream: Script = watched([outcome()])
        self.devices: list[Fields] = []
        self.matched: Fields = {"pages": []}
        self.sites: list[Fields] = []
        self.keys: list[Fields] = []
        self.expected: list[Fields] = []
        self.waiting: dict[str, str] = {}
        self.window: Fields = {"window": None, "enrollment_open": False, "reasons": {}, "pending": 0}
        self.join_tokens: list[Fields] = []
        self.events: list[Fields] = []
        self.hold_events = False
        self.findings: list[Fields] = []
        self.news: list[Fields] = []
        self.audit: list[Fields] = []
        self.tokens: list[Fields] = []
        self.operator: Fields = {"name": "alice", "door": "socket", "roles": ["admin"], "may": ["view", "run"]}
        self.station: Fields = {"role": "master", "name": "master-1", "version": "0.1.0", "uplink": None}
        self.answers: dict[str, Fields] = {}
        """What is said at a path of which there is nothing else here to know."""
        self.refusals: dict[str, tuple[int, Fields | bytes]] = {}
        self.requests: list[tuple[str, str, dict[str, str], Fields | None]] = []
        self.held = threading.Event()
        self._release = threading.Event()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._server = _Server(str(self.path), _Request)
        self._server.api = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release.set()
        assert self._server is not None
        assert self._thread is not None
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(STOP_SECONDS)

    def release(self) -> None:
        """Let a stream go on that waits at ``Act.HOLD``."""
        self._release.set()

    def wait_released(self) -> None:
        """Hold a stream until ``release``."""
        self.held.set()
        assert self._release.wait(HELD_SECONDS), "nobody released the stream"

    def asked(self, method: str, path: str) -> list[tuple[dict[str, str], Fields | None]]:
        """The query and the body of every request of this method for this path."""
        return [(query, body) for verb, where, query, body in self.requests if (verb, where) == (method, path)]


class _Request(BaseHTTPRequestHandler):
    """One request to the double."""

    protocol_version = "HTTP/1.1"

    @property
    def api(self) -> ApiDouble:
        assert isinstance(self.server, _Server)
        return self.server.api

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        """Say nothing: the test reads ``requests``."""

    def do_GET(self) -> None:
        path, query, _ = self._received()
        if path in self.api.refusals:
            self._refuse(path)
            return
        if path in self.api.answers:
            self._answer(self.api.answers[path])
            return
        match path.strip("/").split("/"):
            case ["jobs", *rest]:
                self._get_jobs(rest, query)
            case ["devices"]:
                self._page("devices", [view for view in self.api.devices if _meant(view, query)], query)
            case ["devices", device]:
                there = [view for view in self.api.devices if view["id"] == device and _meant(view, query)]
                if there:
                    self._answer({"devices": there, "next": None})
                else:
                    self._one("device", [])
            case ["sites"]:
                self._answer({"sites": self.api.sites})
            case ["sites", site]:
                self._one("site", [view for view in self.api.sites if view["site"] == site])
            case ["keys", *rest]:
                self._maybe("page", keys_double.got(self.api, rest, query))
            case ["events"]:
                meant = [event for event in self.api.events if fnmatchcase(event["tag"], query["tag"])]
                self._stream([*meant, Act.HOLD] if self.api.hold_events else meant)
            case ["check"]:
                self._answer({"findings": self.api.findings})
            case ["station"]:
                self._answer(self.api.station)
            case rest:
                self._get_operators(rest, query)

    def _get_operators(self, rest: Sequence[str], query: Mapping[str, str]) -> None:
        match rest:
            case ["audit"]:
                self._answer({"rows": self.api.audit[: int(query["limit"])], "next": None})
            case ["audit", "export"]:
                self._stream(self.api.audit)
            case ["operators", "me"]:
                self._answer(self.api.operator)
            case ["operators", "tokens"]:
                self._answer({"tokens": self.api.tokens})
            case _:
                self._one("page", [])

    def _get_jobs(self, rest: Sequence[str], query: Mapping[str, str]) -> None:
        match rest:
            case []:
                wanted = [view for view in self.api.jobs if query.get("state") in {None, view["state"]}]
                self._answer({"jobs": wanted[: int(query["limit"])]})
            case [jid]:
                self._one("job", [view for view in self.api.jobs if view["jid"] == jid])
            case [_, "outcomes"]:
                wanted = [view for view in self.api.outcomes if query.get("outcome") in {None, view["outcome"]}]
                self._page("outcomes", wanted, query)
            case [_, "watch"]:
                self._stream(self.api.stream)
            case _:
                self._one("page", [])

    def do_POST(self) -> None:
        path, _, body = self._received()
        if path in self.api.refusals:
            self._refuse(path)
            return
        match path.strip("/").split("/"):
            case ["jobs"]:
                wanted = {key: value for key, value in (body or {}).items() if key in self.api.jobs[0]}
                self._answer({**self.api.jobs[0], "state": "open", **wanted, "run_limit": 3600.0}, 201)
            case ["jobs", jid, "cancel"]:
                self._one("job", [{**view, "cancelled": True} for view in self.api.jobs if view["jid"] == jid])
            case ["jobs", jid, "release"]:
                self._one("job", [{**view, "held": False} for view in self.api.jobs if view["jid"] == jid])
            case ["check"]:
                self._answer({"findings": self.api.findings, "news": self.api.news})
            case ["match"]:
                at = int((body or {}).get("after", 0))
                self._answer({**self.api.matched, **self.api.matched["pages"][at]})
            case ["events"]:
                fired = [{**event, "_stamp": "2026-11-21T03:15:00.000001"} for event in (body or {})["events"]]
                self._answer({"events": fired}, 201)
            case ["operators", "tokens"]:
                self._answer({"id": "3f2a91c07be4", "token": "os1_secret", "expires": ISSUED, **(body or {})}, 201)
            case ["operators", "tokens", token, "revoke"]:
                self._one("token", [{**view, "state": "revoked"} for view in self.api.tokens if view["id"] == token])
            case ["keys", *rest]:
                self._maybe("page", keys_double.posted(self.api, rest, body or {}))
            case _:
                self._one("page", [])

    def _received(self) -> tuple[str, dict[str, str], Fields | None]:
        parts = urlsplit(self.path)
        size = int(self.headers.get("Content-Length", 0))
        body: Fields | None = json.loads(self.rfile.read(size)) if size else None
        path, query = unquote(parts.path), dict(parse_qsl(parts.query))
        self.api.requests.append((self.command, path, query, body))
        return path, query, body

    def _refuse(self, path: str) -> None:
        status, body = self.api.refusals[path]
        self._send(status, body if isinstance(body, bytes) else json.dumps(body).encode())

    def _maybe(self, kind: str, found: Fields | None) -> None:
        self._one(kind, [] if found is None else [found])

    def _one(self, kind: str, found: list[Fields]) -> None:
        if found:
            self._answer(found[0])
        else:
            facts = {"id": f"usage.no_{kind}", "what": f"there is no such {kind}", "hint": "look again"}
            self._answer({"error": facts}, 404)

    def _page(self, name: str, views: list[Fields], query: Mapping[str, str]) -> None:
        start, size = int(query.get("after", 0)), int(query["limit"])
        following = start + size
        self._answer({name: views[start:following], "next": str(following) if following < len(views) else None})

    def _answer(self, body: Fields, status: int = 200) -> None:
        self._send(status, json.dumps(body).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, script: Script) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for step in script:
                if step is Act.HOLD:
                    self.api.wait_released()
                elif step is Act.DIE:
                    self.wfile.write(b'400\r\n{"type":"outc')
                    return
                elif step is Act.KEEPALIVE:
                    self._chunk(b"\n")
                else:
                    self._chunk(step if isinstance(step, bytes) else json.dumps(step).encode() + b"\n")
            self._chunk(b"")
        except BrokenPipeError:
            # The client has seen enough; that is what some tests are about.
            self.api.held.set()

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))


def _meant(device: Fields, query: Mapping[str, str]) -> bool:
    """Globs only: how a target is read is tested with real stations."""
    return fnmatchcase(device["id"], query.get("tgt", "*")) and query.get("site") in {None, device["site"]}
