"""gateway/api/operation.py, through the framework that calls it and without a socket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, MutableMapping
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import Response

from device_agent.errors import (
    ConfigInvalid,
    NotFound,
    NotRunning,
    OutstationError,
    PolicyRefused,
    Refused,
    StationFailed,
    UsageInvalid,
)
from gateway.api.door import Door, TokenRefused, TooManyFailures
from gateway.api.operation import BODY_BYTES, Answer, Asked, Operation, failure, whole
from gateway.audit.book import AuditBook
from gateway.audit.deed import Deed
from gateway.audit.folding import RefusalFolding
from gateway.devices.policy import MAY, Need, Operator, Policy, without_file
from tests.peers.clock import HandClock

ALICE = Operator("alice", frozenset({"admin"}))


class Kept:
    """Stands for the audit book."""

    def __init__(self) -> None:
        self.deeds: list[Deed] = []
        self._folding = RefusalFolding(HandClock())

    async def refused(self, deed: Deed) -> None:
        if self._folding.take(deed):
            self.deeds.append(deed)

    async def write(self, deeds: list[Deed]) -> None:
        self.deeds += deeds


class Wish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A body."""

    name: str
    count: int = 1


async def echo(asked: Asked) -> Answer:
    """Says what it was asked."""
    body = msgspec.structs.asdict(asked.body) if asked.body is not None else None
    return {"path": dict(asked.path), "query": dict(asked.query), "body": body, "user": asked.user}


ECHO = Operation("POST", "/echo/{id}", "Say it again", echo, body=Wish, query={"limit": "how many"}, status=201)


async def served(
    operation: Operation,
    *chunks: bytes,
    query: str = "",
    path: Mapping[str, Any] | None = None,
    operator: Operator | None = ALICE,
    door: Door | None = None,
) -> tuple[Response, bytes]:
    """One request, and what goes back over the wire."""
    scope: dict[str, Any] = {
        "type": "http",
        "method": operation.method,
        "path": operation.path,
        "path_params": path or {},
        "query_string": query.encode(),
        "headers": [],
        "door": door,
        **({"operator": operator} if operator is not None else {}),
    }
    waiting = [
        {"type": "http.request", "body": chunk, "more_body": place < len(chunks) - 1}
        for place, chunk in enumerate(chunks)
    ] or [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> MutableMapping[str, Any]:
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    response = await operation.serve(Request(scope, receive))
    body = b""

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal body
        body += message.get("body", b"")

    await response({**scope, "asgi": {"spec_version": "2.4"}}, receive, send)
    return response, body


async def refused(operation: Operation, *chunks: bytes, query: str = "") -> dict[str, Any]:
    """The error with which a wrong request is answered."""
    response, body = await served(operation, *chunks, query=query)
    assert response.status_code == 400
    error: dict[str, Any] = json.loads(body)["error"]
    return error


async def test_a_request_is_decoded_and_the_answer_is_json() -> None:
    response, body = await served(ECHO, b'{"name": ', b'"x"}', query="limit=3", path={"id": "cam 1"})
    assert (response.status_code, response.media_type) == (201, "application/json")
    assert json.loads(body) == {
        "path": {"id": "cam 1"},
        "query": {"limit": "3"},
        "body": {"name": "x", "count": 1},
        "user": "alice",
    }


async def test_of_whom_nothing_is_known_nothing_is_done() -> None:
    response, body = await served(ECHO, b'{"name": "x"}', operator=None)
    assert response.status_code == 403
    assert json.loads(body)["error"]["what"] == "unknown may not administer this station"


@pytest.mark.parametrize(
    ("method", "needs", "need"),
    [
        ("GET", None, "view"),
        ("POST", None, "admin"),
        ("DELETE", None, "admin"),
        ("GET", "admin", "admin"),
        ("POST", "run", "run"),
    ],
)
async def test_what_is_not_said_to_need_less_needs_an_admin(method: str, needs: Need | None, need: Need) -> None:
    operation = replace(ECHO, method=method, needs=needs, body=None)
    assert operation.need == need
    for role, allowed in MAY.items():
        response, body = await served(operation, operator=Operator("bob", frozenset({role})))
        assert response.status_code == (201 if need in allowed else 403)
        if need not in allowed:
            error = json.loads(body)["error"]
            assert error["id"] == "policy.role"
            assert error["what"].startswith("bob may not ")
            assert error["found"] == f"{method} /echo/{{id}}: Say it again"
            assert error["allowed"].startswith(f"{role}: ")
            assert error["hint"]


async def test_what_was_done_and_what_was_refused_is_kept_under_its_action() -> None:
    kept = Kept()
    door = Door(lambda: without_file("root"), audit=cast("AuditBook", kept))
    accept = replace(ECHO, body=None, needs="keys", action="keys.accept")
    await served(accept, path={"id": "lisbon"}, door=door)
    bob = Operator("bob", frozenset({"operator"}), "api")
    await served(accept, path={"id": "lisbon"}, operator=bob, door=door)
    # The same again of the same user says nothing new.
    await served(accept, path={"id": "lisbon"}, operator=bob, door=door)
    # A handler that failed has done nothing, and one may keep a row of its own.
    await served(replace(accept, query={}), path={"id": "lisbon"}, query="x=1", door=door)
    await served(replace(accept, own_row=True), path={"id": "lisbon"}, door=door)
    assert kept.deeds == [
        Deed(user="alice", door="socket", action="keys.accept", subject="lisbon", verdict="allow"),
        Deed(
            user="bob",
            door="api",
            action="keys.accept",
            subject="lisbon",
            verdict="deny",
            why="bob may not decide on keys; operator: view, run",
        ),
    ]


async def test_a_refusal_of_policy_deeper_down_is_kept_too() -> None:
    async def refuse(asked: Asked) -> Answer:
        raise PolicyRefused("cmd.run is not granted to this site", error_id=next(ids), found="cmd.run")

    kept, ids = Kept(), iter(["policy.not_granted", "policy.rule", "jobs.busy"])
    door = Door(lambda: without_file("root"), audit=cast("AuditBook", kept))
    for _ in range(3):
        await served(Operation("POST", "/jobs", "Run", refuse, needs="run"), door=door)
    (deed,) = kept.deeds
    assert (deed.user, deed.action, deed.verdict) == ("alice", "POST /jobs", "deny")
    assert deed.why == "cmd.run is not granted to this site; cmd.run"


async def test_a_stream_ends_when_who_listens_may_no_longer() -> None:
    may = {"policy": without_file("alice")}
    closed = []

    async def lines() -> AsyncIterator[Mapping[str, Any] | None]:
        try:
            yield {"n": 1}
            may["policy"] = Policy({}, {})
            yield {"n": 2}
        finally:
            closed.append(True)

    async def stream(asked: Asked) -> Answer:
        return lines()

    door = Door(lambda: may["policy"])
    _, body = await served(Operation("GET", "/watch", "Watch", stream, stream=True), door=door)
    assert (body, closed) == (b'{"n":1}\n', [True])


async def test_an_unknown_query_parameter_is_named_with_those_that_exist() -> None:
    error = await refused(ECHO, b'{"name": "x"}', query="limt=3&foo=1")
    assert (error["found"], error["allowed"], error["where"]) == ("foo, limt", "limit", "/echo/{id}")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"name": 7}',
        b'{"name": "x", "more": 1}',
        b'{"name": "x", "count": 1.5}',
        b'{"name": "\xff"}',
        b'{"name": "\\ud800"}',
        b'{"name": "x"',
        b"[" * 100_000,
    ],
    ids=lambda body: repr(body[:30]),
)
async def test_a_body_that_is_not_what_it_takes_is_refused_with_where_to_look(body: bytes) -> None:
    error = await refused(ECHO, body)
    assert "openapi.json" in error["allowed"]
    assert error["found"]


async def test_a_field_that_does_not_fit_is_named_with_what_it_has_and_what_it_takes() -> None:
    error = await refused(ECHO, b'{"name": "x", "count": "many"}')
    assert (error["where"], error["found"]) == ("count", "'many'")
    assert error["allowed"].startswith("int; ")
    assert (await refused(ECHO, b'{"name": "x", "count": "1", "count": 1}'))["where"] == "count"


async def test_a_body_is_not_read_past_its_bound() -> None:
    response, body = await served(ECHO, *[b" " * 65_536] * (BODY_BYTES // 65_536 + 1))
    assert response.status_code == 413
    assert "too large" in json.loads(body)["error"]["what"]


@given(st.binary(max_size=200))
async def test_any_body_is_an_answer(body: bytes) -> None:
    response, _ = await served(ECHO, body)
    assert response.status_code in {201, 400}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotFound("no such thing"), 404),
        (UsageInvalid("wrong"), 400),
        (PolicyRefused("no"), 403),
        (TokenRefused("who?"), 401),
        (TooManyFailures("stop"), 429),
        (NotRunning("nobody"), 503),
        (StationFailed("full"), 500),
        (ConfigInvalid("bad"), 500),
        (Refused("malformed"), 500),
    ],
)
async def test_an_error_keeps_its_facts_and_gets_the_fitting_status(error: OutstationError, status: int) -> None:
    async def fail(asked: Asked) -> Answer:
        raise error

    response, body = await served(Operation("GET", "/", "Fail", fail))
    assert response.status_code == status
    assert response.media_type == "application/json"
    assert json.loads(body) == {"error": error.fields()}
    assert bytes(failure(error).body) == body


async def test_text_is_answered_as_prometheus_reads_it() -> None:
    async def text(asked: Asked) -> Answer:
        return "outstation_devices 3\n"

    response, body = await served(Operation("GET", "/metrics", "Counters", text, text=True))
    assert body == b"outstation_devices 3\n"
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


async def test_a_stream_is_one_object_a_line_and_an_empty_line_to_keep_it_alive() -> None:
    async def lines() -> AsyncIterator[Mapping[str, Any] | None]:
        yield {"a": "one\ntwo"}
        yield None
        yield {"b": None}

    async def stream(asked: Asked) -> Answer:
        return lines()

    response, body = await served(Operation("GET", "/watch", "Watch", stream, stream=True))
    assert response.media_type == "application/x-ndjson"
    assert body == b'{"a":"one\\ntwo"}\n\n{"b":null}\n'


def asked(**query: str) -> Asked:
    return Asked(path={}, query=query, body=None, operator=ALICE)


@pytest.mark.parametrize(("query", "value"), [({}, 50), ({"n": "0"}, 0), ({"n": "100"}, 100), ({"n": "007"}, 7)])
def test_a_whole_number_in_range_is_taken(query: dict[str, str], value: int) -> None:
    assert whole(asked(**query), "n", 50, 100) == value


@pytest.mark.parametrize("text", ["101", "-1", "1.0", "", "x", " 1", "1_0", "٣", "²", "9" * 5000])
def test_any_other_is_refused_with_the_range(text: str) -> None:
    with pytest.raises(UsageInvalid) as error:
        whole(asked(n=text), "n", 50, 100)
    assert (error.value.where, error.value.allowed) == ("n", "0 to 100")
    assert len(str(error.value.found)) <= 40


@given(st.text(max_size=30))
def test_any_text_is_a_number_in_range_or_refused(text: str) -> None:
    try:
        number = whole(asked(n=text), "n", 50, 1000)
    except UsageInvalid:
        assert not (text.isascii() and text.isdigit() and int(text) <= 1000)
    else:
        assert 0 <= number <= 1000


@pytest.mark.parametrize("sent", [b"", b"{}"])
async def test_an_operation_without_a_body_has_none(sent: bytes) -> None:
    response, body = await served(replace(ECHO, body=None), sent)
    assert (response.status_code, json.loads(body)["body"]) == (201, None)


@pytest.mark.parametrize("sent", [b"whatever", b"\n", b"{", b'{"a": 1}'])
async def test_an_operation_without_a_body_refuses_one(sent: bytes) -> None:
    response, body = await served(replace(ECHO, body=None), sent)
    error = json.loads(body)["error"]
    assert (response.status_code, error["allowed"]) == (400, "nothing, or {}")
