"""gateway/api/operation.py, through the framework that calls it and without a socket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, MutableMapping
from dataclasses import replace
from typing import Any

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
from gateway.api.operation import BODY_BYTES, Answer, Asked, Operation, failure, whole


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
    client: tuple[str, int] | None = ("alice", 1000),
) -> tuple[Response, bytes]:
    """One request, and what goes back over the wire."""
    scope: dict[str, Any] = {
        "type": "http",
        "method": operation.method,
        "path": operation.path,
        "path_params": path or {},
        "query_string": query.encode(),
        "headers": [],
        "client": client,
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


async def test_who_asks_is_who_holds_the_other_end() -> None:
    _, body = await served(ECHO, b'{"name": "x"}', client=None)
    assert json.loads(body)["user"] == "unknown"


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


async def test_a_body_is_not_read_past_its_bound() -> None:
    response, body = await served(ECHO, *[b" " * 65_536] * (BODY_BYTES // 65_536 + 1))
    assert response.status_code == 400
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
    return Asked(path={}, query=query, body=None, user="ops")


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


async def test_an_operation_without_a_body_does_not_read_one() -> None:
    response, body = await served(replace(ECHO, body=None), b"whatever")
    assert (response.status_code, json.loads(body)["body"]) == (201, None)
