"""The API over a real unix socket: what it answers, and how it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from device_agent.protocol import limits
from device_agent.protocol.messages import Gone, Hello
from gateway.api.keys import KeysApi
from gateway.api.operation import Operation
from gateway.api.server import ApiServer
from gateway.rooms import Rooms
from tests.peers.clock import HandClock
from tests.peers.database import opened_rooms
from tests.peers.rope import new_keys
from tests.peers.station import Heard, ask
from tests.peers.waiting import until
from upstream.curve import fingerprint

FIRST = "1" * 16
ME = pwd.getpwuid(os.geteuid()).pw_name


class Api:
    """A gateway's rooms behind a socket."""

    def __init__(self, rooms: Rooms, path: Path, stopping: asyncio.Event) -> None:
        self.rooms = rooms
        self.path = path
        self.stopping = stopping

    async def ask(self, method: str, where: str, body: Any = None) -> Heard:
        return await ask(self.path, method, where, body)

    async def refused(self, status: int, method: str, where: str, body: Any = None) -> dict[str, Any]:
        """The error of a request that must be answered with this status."""
        heard = await self.ask(method, where, body)
        assert (heard.status, heard.headers["content-type"]) == (status, "application/json"), heard.body
        return heard.error


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    stopping = asyncio.Event()
    async with AsyncExitStack() as stack:
        rooms = await stack.enter_async_context(opened_rooms(tmp_path / "state", clock=HandClock(), working=True))
        path = tmp_path / "api.sock"
        await stack.enter_async_context(ApiServer(path, all_of(rooms, stopping), on_stop=stopping.set))
        yield Api(rooms, path, stopping)


async def test_a_job_is_issued_in_the_name_the_kernel_knows(api: Api) -> None:
    for claimed, user in ((None, ME), (ME, ME), ("alice", f"{ME} (alice)")):
        body = {"tgt": "nobody", "fun": "test.ping", **({"user": claimed} if claimed else {})}
        heard = await api.ask("POST", "/jobs", body)
        assert (heard.status, heard.json()["user"]) == (201, user)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"tgt": "*"}, "fun"),
        ({"tgt": "*", "fun": "ping"}, "ping"),
        ({"tgt": "*", "fun": "os.system; rm"}, "rm"),
        ({"tgt": "*", "fun": "test.ping", "tgt_type": "everything"}, "everything"),
        ({"tgt": "*", "fun": "test.ping", "run_limit": -1}, "run_limit"),
        ({"tgt": "*", "fun": "test.ping", "expires_seconds": 0}, "0 s"),
        ({"tgt": "*", "fun": "test.ping", "expires_seconds": 1e30}, "1e+30 s"),
        ({"tgt": "*", "fun": "test.echo", "arg": [2**70]}, ""),
        ({"tgt": "*", "fun": "test.echo", "arg": ["x" * limits.MESSAGE_BYTES]}, "oversized"),
        ({"tgt": "*", "fun": "test.echo", "arg": [0] * 300}, "arg"),
        ({"tgt": "(", "tgt_type": "pcre", "fun": "test.ping"}, ""),
        ({"tgt": "", "fun": "test.ping"}, ""),
        ({"tgt": "*", "fun": "test.ping", "Tgt": 1}, "Tgt"),
        (b'{"tgt": "*", "fun": "test.echo", "arg": [NaN]}', ""),
        (b'{"tgt": "*", "fun": "test.echo", "arg": ["\\ud800"]}', ""),
        (b"\xff", ""),
        (b"", ""),
    ],
    ids=lambda value: repr(value)[:60],
)
async def test_a_job_that_cannot_be_is_refused_with_what_is_wrong(body: Any, found: str, api: Api) -> None:
    error = await api.refused(400, "POST", "/jobs", body)
    assert found in f"{error.get('found', '')} {error.get('where', '')}"
    assert error["what"]
    assert len(api.rooms.open_jobs) == 0


async def test_a_job_goes_from_its_issue_to_its_close_before_whoever_watches(api: Api) -> None:
    registry = api.rooms.registry
    registry.hello("nowhere", "cam", Hello(FIRST, "0", {"os": "Debian"}))
    jid = (await api.ask("POST", "/jobs", {"tgt": "*", "fun": "test.ping"})).json()["jid"]
    lines: list[dict[str, Any]] = []
    reader, writer = await asyncio.open_unix_connection(str(api.path))
    writer.write(f"GET /jobs/{jid}/watch HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())

    async def watch() -> None:
        async for line in reader:
            with suppress(json.JSONDecodeError):
                found = json.loads(line)
                if isinstance(found, dict):
                    lines.append(found)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(watch())
        await until(lambda: [line["type"] for line in lines[:2]] == ["job", "progress"], what="the first lines")
        assert lines[1]["waiting"] == {"delivered": 1}
        from device_agent.protocol.messages import Return

        await api.rooms.collection.returned(
            "cam", Return(jid=jid, fun="test.ping", outcome="ok", value=True, executions=1), 100
        )
    writer.close()
    kinds = [line["type"] for line in lines]
    assert kinds[-1] == "close"
    (outcome,) = [line for line in lines if line["type"] == "outcome"]
    assert (outcome["id"], outcome["outcome"], outcome["value"]) == ("cam", "ok", True)
    assert lines[-1]["job"]["counts"] == {"ok": 1}
    assert (await api.ask("GET", f"/jobs/{jid}")).json()["state"] == "closed"
    error = await api.refused(400, "POST", f"/jobs/{jid}/cancel")
    assert error["id"] == "job.not_open"


async def test_outcomes_are_read_page_by_page(api: Api) -> None:
    for number in range(7):
        api.rooms.registry.hello("nowhere", f"cam-{number}", Hello(FIRST, "0", {}))
        api.rooms.registry.gone(f"cam-{number}", Gone(FIRST))
    jid = (await api.ask("POST", "/jobs", {"tgt": "*", "fun": "test.ping"})).json()["jid"]
    seen: list[str] = []
    after: int | None = 0
    while after is not None:
        page = (await api.ask("GET", f"/jobs/{jid}/outcomes?limit=3&after={after}")).json()
        seen += [entry["id"] for entry in page["outcomes"]]
        after = page["next"]
    assert sorted(seen) == [f"cam-{number}" for number in range(7)]
    assert (await api.ask("GET", f"/jobs/{jid}/outcomes?outcome=ok")).json()["outcomes"] == []
    assert len((await api.ask("GET", f"/jobs/{jid}/outcomes?outcome=unreachable")).json()["outcomes"]) == 7


async def test_devices_are_found_by_target_and_page_by_page(api: Api) -> None:
    for number in range(5):
        api.rooms.registry.hello("nowhere", f"cam-{number}", Hello(FIRST, "0", {"odd": bool(number % 2)}))
    pages: list[list[str]] = []
    after: str | None = ""
    while after is not None:
        page = (await api.ask("GET", f"/devices?tgt=cam-*&limit=2&after={after}")).json()
        pages.append([device["id"] for device in page["devices"]])
        after = page["next"]
    assert pages == [["cam-0", "cam-1"], ["cam-2", "cam-3"], ["cam-4"]]
    found = (await api.ask("GET", "/devices?tgt=odd:True&tgt_type=grain")).json()["devices"]
    assert [device["id"] for device in found] == ["cam-1", "cam-3"]
    (device,) = (await api.ask("GET", "/devices/cam-1?site=lisbon")).json()["devices"]
    assert (device["present"], device["grains"], device["site"]) == (True, {"odd": True}, "lisbon")


def all_of(rooms: Rooms, stopping: asyncio.Event) -> list[Operation]:
    """The operations of a station without devices of its own."""
    keys = KeysApi(
        site="lisbon",
        site_keys=rooms.site_keys,
        revoke_site=rooms.fleet_revocation.revoke_site,
        keys=rooms.keys,
        enrollment=None,
        audit=rooms.audit,
    )
    return [*rooms.operations(stopping), *keys.operations()]


async def test_a_key_is_accepted_and_rejected(api: Api) -> None:
    key = new_keys().public
    await api.rooms.site_keys.judge("porto", key, "192.0.2.1")
    (view,) = (await api.ask("GET", "/keys")).json()["keys"]
    assert (view["site"], view["state"], view["fingerprint"]) == ("porto", "pending", fingerprint(key))
    assert await api.refused(400, "POST", "/keys/porto/accept", {"fingerprint": 7})
    assert (await api.refused(400, "POST", "/keys/porto/accept", {"fingerprint": "aaaa-bbbb-cccc-dddd"}))["found"]
    heard = await api.ask("POST", "/keys/porto/accept", {})
    assert (heard.status, heard.json()["keys"][0]["state"]) == (200, "accepted")
    assert [site["site"] for site in (await api.ask("GET", "/sites")).json()["sites"]] == ["porto"]
    assert (await api.ask("GET", "/sites/porto")).json()["connected"] is False
    heard = await api.ask("POST", "/keys/porto/reject")
    assert heard.json()["keys"][0]["state"] == "rejected"
    assert (await api.ask("GET", "/sites")).json()["sites"] == []


@pytest.mark.parametrize(
    ("status", "method", "where"),
    [
        (404, "GET", "/"),
        (404, "GET", "/job"),
        (404, "GET", "/jobs/12345678901234567890"),
        (404, "GET", "/jobs/12345678901234567890/outcomes"),
        (404, "GET", "/jobs/12345678901234567890/watch"),
        (404, "POST", "/jobs/12345678901234567890/cancel"),
        (404, "GET", "/jobs/..%2f..%2fetc"),
        (404, "GET", "/devices/nobody"),
        (404, "GET", "/sites/nowhere"),
        (404, "POST", "/keys/nowhere/accept"),
        (404, "POST", "/keys/nowhere/reject"),
        (404, "DELETE", "/jobs"),
        (404, "PUT", "/keys"),
        (400, "GET", "/jobs?limit=x"),
        (400, "GET", "/jobs?limit=1001"),
        (400, "GET", "/jobs?limit=-1"),
        (400, "GET", "/jobs?state=halfway"),
        (400, "GET", "/jobs?stat=open"),
        (400, "GET", "/devices?tgt=%28&tgt_type=pcre"),
        (400, "GET", "/devices?tgt_type=nothing"),
        (400, "GET", "/devices?limit="),
        (400, "GET", "/events?follow=maybe"),
        (400, "GET", "/events?history=99999999999999999999"),
        (400, "GET", "/events?tag=" + "x" * 600),
        (400, "GET", "/station?verbose=1"),
    ],
)
async def test_a_wrong_request_gets_the_fitting_status_and_says_what_to_do(
    status: int, method: str, where: str, api: Api
) -> None:
    error = await api.refused(status, method, where)
    assert error["id"]
    assert error["what"]


async def test_events_are_heard_from_the_moment_the_listening_began(api: Api) -> None:
    bus = api.rooms.bus
    await bus.fire([bus.event("test/before", {"n": number}) for number in range(3)])
    heard = await api.ask("GET", "/events?tag=test/*&history=2&follow=false")
    lines = [json.loads(line) for line in heard.body.splitlines() if line]
    assert [line["data"]["n"] for line in lines] == [1, 2]
    reader, writer = await asyncio.open_unix_connection(str(api.path))
    writer.write(b"GET /events?tag=test/* HTTP/1.0\r\n\r\n")
    async with asyncio.timeout(60):
        while (await reader.readline()).strip():
            pass
        await until(lambda: bus.listened, what="the listener")
        await bus.fire([bus.event("test/live", {"n": 9})])
        line = b""
        while not line.strip().startswith(b"{"):
            line = await reader.readline()
    assert json.loads(line)["tag"] == "test/live"
    writer.close()
    await writer.wait_closed()


async def test_a_listener_that_goes_away_is_forgotten(api: Api) -> None:
    _, writer = await asyncio.open_unix_connection(str(api.path))
    writer.write(b"GET /events?tag=* HTTP/1.0\r\n\r\n")
    await until(lambda: api.rooms.bus.listened, what="the listener")
    writer.close()
    await writer.wait_closed()
    await until(lambda: not api.rooms.bus.listened, what="it is forgotten")


async def test_metrics_and_checks_and_the_document_are_there(api: Api) -> None:
    api.rooms.metrics.refused("mqtt", "malformed", "mallory")
    text = (await api.ask("GET", "/metrics")).body.decode()
    assert 'outstation_refused_total{link="mqtt",reason="malformed"} 1\n' in text
    assert "outstation_devices 0\n" in text
    findings = (await api.ask("GET", "/check")).json()["findings"]
    assert any("mallory" in finding["finding"] for finding in findings)
    document = (await api.ask("GET", "/openapi.json")).json()
    assert {"/jobs", "/openapi.json", "/events"} <= set(document["paths"])


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00" * 100,
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"x" * 100_000,
        b"POST /jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{",
    ],
    ids=["zeros", "half a line", "an endless header", "half a body"],
)
async def test_what_is_no_request_ends_its_own_connection_and_no_other(sent: bytes, api: Api) -> None:
    _, writer = await asyncio.open_unix_connection(str(api.path))
    writer.write(sent)
    writer.write_eof()
    assert (await api.ask("GET", "/station")).status == 200
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def test_a_station_that_stops_ends_its_streams(tmp_path: Path) -> None:
    stopping = asyncio.Event()
    async with opened_rooms(tmp_path / "state") as rooms:
        path = tmp_path / "api.sock"
        async with ApiServer(path, all_of(rooms, stopping), on_stop=stopping.set):
            reader, writer = await asyncio.open_unix_connection(str(path))
            writer.write(b"GET /events?tag=* HTTP/1.0\r\n\r\n")
            await until(lambda: rooms.bus.listened, what="the listener")
        async with asyncio.timeout(60):
            await reader.read()
        assert stopping.is_set()
        assert not rooms.bus.listened
        writer.close()


async def test_a_station_that_stops_takes_no_more_jobs(api: Api) -> None:
    api.rooms.acceptance.draining = True
    error = await api.refused(403, "POST", "/jobs", {"tgt": "*", "fun": "test.ping"})
    assert error["id"] == "station.stopping"


async def test_a_station_with_too_many_open_jobs_says_so(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OPEN_JOBS", 2)
    api.rooms.registry.hello("nowhere", "cam", Hello(FIRST, "0", {}))
    for _ in range(2):
        assert (await api.ask("POST", "/jobs", {"tgt": "*", "fun": "test.ping"})).status == 201
    error = await api.refused(403, "POST", "/jobs", {"tgt": "*", "fun": "test.ping"})
    assert (error["id"], error["found"]) == ("jobs.busy", "2")
