"""The API of a live station: it is what its own document says, and no request gets more than a refusal out of it."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway.cli.client import UnixConnection
from tests.peers.system import SECONDS, System, one_site

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 3
OPERATIONS = {
    "GET /station",
    "GET /check",
    "POST /check",
    "GET /metrics",
    "GET /openapi.json",
    "GET /nodegroups",
    "GET /files",
    "GET /files/find",
    "GET /files/cache",
    "GET /mine/{id}",
    "POST /mine",
    "GET /schedule",
    "GET /schedule/{name}",
    "POST /schedule/{name}/run",
    "POST /schedule/{name}/enable",
    "POST /schedule/{name}/disable",
    "POST /schedule/enable",
    "POST /schedule/disable",
    "GET /calls",
    "POST /calls",
    "GET /calls/functions",
    "GET /calls/{jid}",
    "GET /calls/{jid}/watch",
    "GET /reactor",
    "GET /reactor/check",
    "POST /reactor/test",
    "POST /reactor/replay",
    "GET /reactor/why",
    "GET /engines",
    "GET /returners",
    "POST /engines/{name}/restart",
    "GET /spool",
    "GET /spool/verify",
    "POST /spool/acknowledge",
    "POST /spool/drill",
    "POST /spool/drill/end",
    "POST /events",
    "POST /sites/{site}/unfence",
    "GET /jobs",
    "POST /jobs",
    "GET /jobs/{jid}",
    "POST /jobs/{jid}/cancel",
    "POST /jobs/{jid}/release",
    "GET /jobs/{jid}/outcomes",
    "GET /jobs/{jid}/watch",
    "GET /devices",
    "GET /devices/{id}",
    "GET /devices/{id}/pillar",
    "POST /match",
    "GET /ssh-devices",
    "POST /ssh-devices",
    "GET /ssh-devices/{name}",
    "POST /ssh-devices/scan",
    "POST /ssh-devices/{name}/key",
    "POST /ssh-devices/{name}/remove",
    "GET /sites",
    "GET /sites/{site}",
    "POST /sites/{site}/revoke",
    "GET /keys",
    "POST /keys/{name}/accept",
    "POST /keys/{name}/reject",
    "POST /keys/{name}/revoke",
    "GET /keys/matching",
    "POST /keys/matching",
    "GET /keys/expected",
    "POST /keys/expected",
    "GET /keys/window",
    "POST /keys/window/open",
    "POST /keys/window/close",
    "GET /keys/tokens",
    "POST /keys/tokens",
    "POST /keys/tokens/{id}/revoke",
    "GET /fleet",
    "GET /fleet/token",
    "POST /fleet",
    "POST /join",
    "POST /reload",
    "GET /events",
    "GET /operators/me",
    "GET /operators/tokens",
    "POST /operators/tokens",
    "POST /operators/tokens/{id}/revoke",
    "GET /audit",
    "GET /audit/export",
}
WITHOUT_BODY = {
    "POST /reload",
    "POST /check",
    "POST /spool/acknowledge",
    "POST /spool/drill/end",
    "POST /sites/{site}/unfence",
    "POST /jobs/{jid}/cancel",
    "POST /jobs/{jid}/release",
    "POST /keys/window/close",
    "POST /keys/tokens/{id}/revoke",
    "POST /operators/tokens/{id}/revoke",
    "POST /engines/{name}/restart",
    "POST /schedule/{name}/run",
    "POST /schedule/{name}/enable",
    "POST /schedule/{name}/disable",
    "POST /schedule/enable",
    "POST /schedule/disable",
}
DONE = {200, 201}
REFUSED = {400, 403, 404, 413}


@pytest.fixture(scope="module")
def live() -> Iterator[System]:
    with one_site(DEVICES) as system:
        yield system
        (summary,) = system.command("run", "*", "test.ping", "--json", status=0).json("summary")
        assert summary["counts"] == {"ok": DEVICES}
        assert "Traceback" not in system.log("central") + system.log("lisbon")


def ask(
    live: System, method: str, target: str, body: bytes | None = None, station: str = "central"
) -> tuple[int, bytes]:
    """Status and answer; of a stream only the first line, since it may go on for ever."""
    with closing(UnixConnection(live.socket_of(station), SECONDS)) as connection:
        connection.request(method, target, body=body)
        with connection.getresponse() as response:
            if response.headers.get_content_type() == "application/x-ndjson":
                return response.status, response.readline()
            return response.status, response.read()


def assert_refused(status: int, body: bytes) -> dict[str, str]:
    """A refusal that says what is wrong."""
    assert status in REFUSED, (status, body)
    error: dict[str, str] = json.loads(body)["error"]
    assert error["id"]
    assert error["what"]
    return error


@pytest.mark.parametrize("station", ["central", "lisbon"])
def test_the_document_lists_every_operation_and_only_those_there_are(live: System, station: str) -> None:
    document = live.view(station, "/openapi.json")
    listed = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    assert listed == OPERATIONS
    for operation in listed:
        method, path = operation.split()
        status, body = ask(live, method, re.sub(r"{\w+}", "none", path), b"{}" if method == "POST" else None, station)
        assert status in DONE or assert_refused(status, body)["id"] != "api.unknown"


def test_every_parameter_and_body_of_an_operation_is_in_the_document(live: System) -> None:
    document = live.view("central", "/openapi.json")
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            in_path = {each["name"] for each in described["parameters"] if each["in"] == "path"}
            assert in_path == set(re.findall(r"{(\w+)}", path))
            assert "400" in described["responses"]
            assert ("requestBody" in described) == (method == "post" and f"POST {path}" not in WITHOUT_BODY)
            if "requestBody" in described:
                schema = described["requestBody"]["content"]["application/json"]["schema"]
                assert schema["$ref"].rpartition("/")[2] in document["components"]["schemas"]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "NONSENSE"])
def test_a_method_that_is_not_there_is_refused(live: System, method: str) -> None:
    for target in ("/jobs", "/station", "/"):
        assert assert_refused(*ask(live, method, target))["id"] == "api.unknown"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'"' + b"x" * 100 + b'"',
        b"[" * 100_000,
        b'{"tgt": "*"}',
        b'{"tgt": 1, "fun": "test.ping"}',
        b'{"tgt": "*", "fun": "test.ping", "fun2": 1}',
        b'{"tgt": "*", "fun": "TEST.ping"}',
        b'{"tgt": "*", "fun": "test.ping\\n"}',
        b'{"tgt": "", "fun": "test.ping"}',
        b'{"tgt": "*", "fun": "test.ping", "arg": {}}',
        b'{"tgt": "*", "fun": "test.ping", "arg": ' + b"[" * 40 + b"]" * 40 + b"}",
        b'{"tgt": "*", "fun": "test.ping", "expires_seconds": 0}',
        b'{"tgt": "*", "fun": "test.ping", "expires_seconds": -1}',
        b'{"tgt": "*", "fun": "test.ping", "expires_seconds": 1e300}',
        b'{"tgt": "*", "fun": "test.ping", "expires_seconds": NaN}',
        b'{"tgt": "*", "fun": "test.ping", "run_limit": 0}',
        b'{"tgt": "*", "fun": "test.ping", "late": "never"}',
        b'{"tgt": "(", "tgt_type": "pcre", "fun": "test.ping"}',
        b'{"tgt": "G@a:b and", "tgt_type": "compound", "fun": "test.ping"}',
        b'{"tgt": "*", "tgt_type": "range", "fun": "test.ping"}',
        b'{"tgt": "*", "fun": "test.echo", "arg": ["' + b"x" * 300_000 + b'"]}',
        b"x" * 2_000_000,
    ],
    ids=lambda body: body[:60].decode(errors="replace"),
)
def test_a_job_that_is_none_is_refused_and_leaves_nothing(live: System, body: bytes) -> None:
    before = len(live.stations["central"].jobs(1000))
    assert_refused(*ask(live, "POST", "/jobs", body))
    assert len(live.stations["central"].jobs(1000)) == before


@pytest.mark.parametrize(
    "jid", ["1", "0" * 20, "9" * 20, "0" * 21, "x" * 5000, "%00", "..%2f..", "'--", "%F0%9F%92%A5", "%20"]
)
def test_a_jid_that_is_not_there_is_not_found(live: System, jid: str) -> None:
    for method, target in (
        ("GET", f"/jobs/{jid}"),
        ("POST", f"/jobs/{jid}/cancel"),
        ("GET", f"/jobs/{jid}/outcomes"),
        ("GET", f"/jobs/{jid}/watch"),
    ):
        status, body = ask(live, method, target)
        assert_refused(status, body)
        assert status == 404


NUMBERS = st.sampled_from(
    ["-1", "0", "1", "1000", "1001", "9" * 18, "9" * 40, "1.5", "1e3", "", " 1", "\u0663", "NaN", "0x1"]
)
WORDS = st.text(max_size=60) | st.sampled_from(
    ["*", "[", "(", "(?", "a" * 3000, "\0", "open", "closed", "true", "*" * 500]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)
JOBS = st.fixed_dictionaries(
    {"tgt": WORDS | VALUES, "fun": st.sampled_from(["test.ping", "test.echo", "no.such", "test.fail"]) | VALUES},
    optional={
        "tgt_type": st.sampled_from(["glob", "list", "pcre", "grain", "compound"]) | VALUES,
        "arg": st.lists(VALUES, max_size=3) | VALUES,
        "kwarg": st.dictionaries(st.text(max_size=5), VALUES, max_size=3) | VALUES,
        "late": st.sampled_from(["drop", "run"]) | VALUES,
        "expires_seconds": st.floats() | VALUES,
        "run_limit": st.floats() | VALUES,
        "user": WORDS | VALUES,
        "more": VALUES,
    },
)
BODIES = (
    st.none()
    | st.binary(max_size=200)
    | (VALUES | JOBS | st.fixed_dictionaries({}, optional={"fingerprint": VALUES})).map(
        lambda value: json.dumps(value).encode()
    )
)
FILTERS = ["limit", "after", "before", "state", "outcome", "tgt", "tgt_type", "site", "tag", "history", "follow"]
FILTERS += ["name", "kind", "serial", "address", "since", "until", "verdict", "more"]
QUERIES = st.dictionaries(st.sampled_from(FILTERS), NUMBERS | WORDS, max_size=4)


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, bytes | None]:
    """A method, a target and a body: near what an operation takes, or far from it."""
    method, path = draw(st.sampled_from(sorted(OPERATIONS))).split()
    words = WORDS | st.sampled_from(["lisbon", "cam-00001", "nowhere"])
    target = re.sub(r"{\w+}", lambda _: quote(draw(words), safe=""), path)
    # Half of the queries are of this very operation, so that they get past the first door.
    query = draw(QUERIES)
    if query:
        target = f"{target}?{urlencode(query)}"
    method = draw(st.sampled_from([method, method, method, "GET", "POST", "PUT"]))
    return method, target, draw(BODIES)


# Putting out the one accepted key, or a device, is a proper request, and would end the rest of the module.
KEEP_KEY = re.compile(r"^/(keys|sites)/(lisbon|cam-00001)/(reject|revoke)")


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(request=requests(), station=st.sampled_from(["central", "lisbon"]))
@example(request=("GET", "/devices?tgt=" + quote("(a+)+$") + "&tgt_type=pcre", None), station="central")
@example(request=("GET", "/events?follow=false&history=10000&tag=" + "*a" * 200, None), station="central")
@example(request=("GET", "/jobs/x/outcomes?after=" + "9" * 30, None), station="central")
def test_no_request_gets_more_than_a_refusal(
    live: System, request: tuple[str, str, bytes | None], station: str
) -> None:
    method, target, body = request
    if KEEP_KEY.match(target):
        return
    status, answer = ask(live, method, target, body, station)
    if status in DONE:
        return
    assert_refused(status, answer)


@settings(max_examples=60)
@given(raw=st.binary(max_size=400) | st.sampled_from([b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 10_000, b"\0" * 100_000]))
@example(raw=b"POST /jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{")
@example(raw=b"POST /jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
@example(raw=b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n")
@example(raw=b"GET /jobs?limit=%FF%FE HTTP/1.1\r\nHost: x\r\n\r\n")
@example(raw=b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
def test_bytes_that_are_no_request_leave_the_station_as_it_was(live: System, raw: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(SECONDS)
        connection.connect(str(live.socket_of("central")))
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)
        try:
            answer = b"".join(iter(lambda: connection.recv(65_536), b""))
        except ConnectionError:
            answer = b""
    assert b" 500 " not in answer.partition(b"\r\n")[0]
    assert ask(live, "GET", "/station")[0] == 200


def test_a_reader_that_goes_away_in_the_middle_of_a_stream_is_forgotten(live: System) -> None:
    jid = live.issue("central", "*", "test.sleep", 1)
    for _ in range(20):
        for target in (f"/jobs/{jid}/watch", "/events?follow=true"):
            ask(live, "GET", target)
    assert live.ended("central", jid).job.counts == {"ok": DEVICES}


def test_many_at_once_are_answered_or_told_to_come_again(live: System) -> None:
    connections = [UnixConnection(live.socket_of("central"), SECONDS) for _ in range(200)]
    try:
        for connection in connections:
            connection.request("GET", "/station")
        statuses = []
        for connection in connections:
            try:
                with connection.getresponse() as response:
                    statuses.append(response.status)
                    response.read()
            except (ConnectionError, HTTPException):
                statuses.append(0)
        assert set(statuses) == {200}
    finally:
        for connection in connections:
            connection.close()


def test_what_is_asked_for_is_bounded(live: System) -> None:
    answer: dict[str, Any] = live.view("central", "/devices?limit=2")
    assert len(answer["devices"]) == 2
    rest = live.view("central", f"/devices?limit=2&after={quote(answer['next'])}")
    assert len(rest["devices"]) == 1
    assert rest["next"] is None
