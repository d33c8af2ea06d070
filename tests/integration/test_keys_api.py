"""The noun ``keys`` over a real unix socket: devices on a gateway, sites on a master, both on a relay."""

from __future__ import annotations

import os
import pwd
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from device_agent.trust.join_answer import Accepted, NotYet
from device_agent.trust.token import JoinToken
from gateway.api.keys import KeysApi
from gateway.api.server import ApiServer
from gateway.audit.book import AuditBook
from gateway.devices.site_keys import SiteKeys
from gateway.spool.queue import Spool
from gateway.store.reader import Reader
from tests.peers.joining import JoinSite, a_device, opened_site
from tests.peers.rope import new_keys
from tests.peers.station import Heard, ask
from upstream.curve import fingerprint

ME = pwd.getpwuid(os.geteuid()).pw_name


class Api:
    """A station's keys behind a socket."""

    def __init__(self, path: Path, site: JoinSite, site_keys: SiteKeys) -> None:
        self.path = path
        self.site = site
        self.site_keys = site_keys
        self.revoked: list[tuple[str, ...]] = []

    async def ask(self, method: str, where: str, body: Any = None) -> Any:
        """The answer to what must be answered well."""
        heard = await ask(self.path, method, where, body)
        assert heard.status in (200, 201), heard.body
        return heard.json()

    async def refused(self, status: int, method: str, where: str, body: Any = None) -> dict[str, Any]:
        heard: Heard = await ask(self.path, method, where, body)
        assert heard.status == status, heard.body
        return heard.error

    async def knock(self, site: str) -> str:
        """A site's key that waits; its fingerprint."""
        key = new_keys().public
        await self.site_keys.judge(site, key, "192.0.2.1")
        return fingerprint(key)


@asynccontextmanager
async def opened_api(folder: Path, *, devices: bool = True) -> AsyncIterator[Api]:
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(opened_site(folder))
        reader = await stack.enter_async_context(Reader(site.path))
        spool = Spool(site.writer, reader, "0" * 16, enabled=False)
        site_keys = SiteKeys(
            station="lisbon",
            writer=site.writer,
            reader=reader,
            bus=site.bus,
            metrics=site.metrics,
            clock=site.clock,
        )
        await stack.enter_async_context(site_keys)
        api = Api(folder / "api.sock", site, site_keys)

        async def revoke_site(*said: str) -> None:
            api.revoked.append(said)

        keys = KeysApi(
            site="lisbon",
            site_keys=site_keys,
            revoke_site=revoke_site,
            refused_of=site.metrics.refused_of,
            keys=new_keys(),
            enrollment=site.enrollment if devices else None,
            audit=AuditBook(site="lisbon", writer=site.writer, spool=spool, clock=site.clock),
        )
        await stack.enter_async_context(ApiServer(api.path, keys.operations(), on_stop=lambda: None))
        yield api


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with opened_api(tmp_path) as opened:
        yield opened


async def test_a_device_joins_through_a_window_that_was_opened_here(api: Api) -> None:
    shown = await api.ask("POST", "/keys/window/open", {"seconds": 600, "max": 5, "model": "model-*"})
    assert (shown["window"]["open"], shown["window"]["max"], shown["enrollment_open"]) == (True, 5, True)
    assert (await api.refused(400, "POST", "/keys/window/open", {}))["id"] == "window.open"
    device = a_device()
    assert isinstance(await api.site.ask(device), NotYet)
    (view,) = (await api.ask("GET", "/keys?state=pending"))["keys"]
    assert (view["kind"], view["did"], view["fingerprint"]) == ("device", device.did, device.fingerprint)
    error = await api.refused(400, "POST", "/keys/cam-1/accept", {"fingerprint": "aaaa-bbbb-cccc-dddd"})
    assert device.fingerprint in error["found"]
    assert "aaaa-bbbb-cccc-dddd" in error["found"]
    body = {"fingerprint": device.fingerprint, "name": "gate"}
    (view,) = (await api.ask("POST", f"/keys/{device.did}/accept", body))["keys"]
    assert (view["name"], view["state"], view["accepted_by"]) == ("gate", "accepted", ME)
    assert isinstance(await api.site.ask(device), Accepted)
    shown = await api.ask("POST", "/keys/window/close")
    assert (shown["window"]["open"], shown["window"]["taken"]) == (False, 1)
    assert (ME, "keys.window.close", "allow") in api.site.deeds()
    (view,) = (await api.ask("POST", "/keys/gate/revoke", {"why": "stolen"}))["keys"]
    assert (view["state"], view["detail"]) == ("revoked", "stolen")
    assert (ME, "keys.revoke", "allow") in api.site.deeds()


async def test_tokens_are_said_once_and_listed_without_their_secrets(api: Api) -> None:
    made = (await api.ask("POST", "/keys/tokens", {"count": 2, "name": "cam-{number:03}", "seconds": 60}))["tokens"]
    tokens = [JoinToken.from_text(entry["text"]) for entry in made]
    listed = (await api.ask("GET", "/keys/tokens"))["tokens"]
    assert {entry["id"] for entry in listed} == {token.id.hex() for token in tokens}
    assert all("text" not in entry and "secret" not in entry for entry in listed)
    assert (await api.site.join(a_device(), tokens[0])).certificate.name == "cam-001"
    ended = await api.ask("POST", f"/keys/tokens/{tokens[1].id.hex()}/revoke")
    assert ended["state"] == "revoked"
    assert (await api.refused(400, "POST", f"/keys/tokens/{tokens[1].id.hex()}/revoke"))["id"] == "token.ended"
    assert (await api.refused(404, "POST", "/keys/tokens/00/revoke"))["id"] == "token.unknown"


async def test_a_device_that_was_refused_is_listed_with_the_reason(api: Api) -> None:
    await api.ask("POST", "/keys/window/open", {"max": 1})
    (made,) = (await api.ask("POST", "/keys/tokens", {}))["tokens"]
    good = JoinToken.from_text(made["text"])
    assert isinstance(await api.site.ask(a_device(), replace(good, secret=b"guessed at home.")), NotYet)
    (listed,) = (await api.ask("GET", "/keys"))["keys"]
    assert listed["refused"] == {"bad_tag": 1}


@pytest.mark.parametrize(
    ("where", "body"),
    [
        ("/keys/tokens", {"uses": 0}),
        ("/keys/tokens", {"count": 100_000}),
        ("/keys/tokens", {"seconds": -1}),
        ("/keys/tokens", {"name": "{nothing}"}),
        ("/keys/tokens", {"address": "no port"}),
        ("/keys/tokens", {"serial": "x" * 65}),
        ("/keys/window/open", {"seconds": 0}),
        ("/keys/window/open", {"max": 0}),
        ("/keys/window/open", {"subnet": "nowhere"}),
        ("/keys/window/close", None),
        ("/keys/expected", {"keys": []}),
        ("/keys/expected", {"keys": [{"key": "x"}]}),
        ("/keys/x/accept", {"kind": "neither"}),
    ],
    ids=repr,
)
async def test_what_cannot_be_is_refused_and_changes_nothing(where: str, body: Any, api: Api) -> None:
    heard = await ask(api.path, "POST", where, body)
    assert heard.status in (400, 403)
    assert heard.error["what"]
    assert api.site.deeds() == []


async def test_a_pattern_lets_in_whom_the_operator_has_seen(api: Api) -> None:
    assert (await api.refused(403, "GET", "/keys/matching?serial=*"))["id"] == "window.closed"
    await api.ask("POST", "/keys/window/open", {})
    for name in ("cam-1", "cam-2", "door"):
        await api.site.ask(a_device(name))
    seen = (await api.ask("GET", "/keys/matching?serial=cam-*"))["keys"]
    body = {"serial": "cam-*", "dids": [view["did"] for view in seen][:1]}
    (view,) = (await api.ask("POST", "/keys/matching", body))["keys"]
    assert (view["proof"], view["unproven"]) == ("pattern", True)


async def test_expected_keys_are_listed_until_they_come_or_are_expected_no_more(api: Api) -> None:
    first, second = a_device("cam-1"), a_device("cam-2")
    body = {"keys": [{"key": first.fingerprint, "name": "gate"}, {"key": second.did}]}
    assert (await api.ask("POST", "/keys/expected", body))["expected"] == 2
    await api.site.join(first)
    (entry,) = (await api.ask("GET", "/keys/expected"))["expected"]
    assert (entry["key"], entry["added_by"]) == (second.did, ME)
    assert (await api.ask("POST", f"/keys/{second.did}/reject", {}))["expected_no_more"] == [second.did]
    assert (await api.ask("GET", "/keys/expected"))["expected"] == []


async def test_keys_come_page_by_page_sites_first_and_then_who_waits(api: Api) -> None:
    await api.knock("porto")
    await api.site.join(a_device("cam-0"), await api.site.token())
    await api.site.window()
    for name in ("cam-1", "cam-2"):
        await api.site.ask(a_device(name))
    pages: list[list[tuple[str, str]]] = []
    after: str | None = ""
    while after is not None:
        page = await api.ask("GET", f"/keys?limit=2&after={after}")
        pages.append([(view["kind"], view["state"]) for view in page["keys"]])
        after = page["next"]
    assert pages == [[("site", "pending"), ("device", "pending")], [("device", "pending"), ("device", "accepted")]]
    assert len((await api.ask("GET", "/keys?kind=device"))["keys"]) == 3
    (view,) = (await api.ask("GET", "/keys?name=cam-0"))["keys"]
    assert view["name"] == "cam-0"
    assert await api.refused(400, "GET", "/keys?state=asleep")


async def test_a_name_that_is_a_site_and_a_device_must_be_said_exactly(api: Api) -> None:
    shown = await api.knock("gate")
    await api.site.join(a_device("cam-1"), await api.site.token(name="gate"))
    error = await api.refused(400, "POST", "/keys/gate/accept", {})
    assert (error["id"], "--site or --device" in error["allowed"]) == ("keys.site_or_device", True)
    (view,) = (await api.ask("POST", "/keys/gate/accept", {"kind": "site"}))["keys"]
    assert (view["kind"], view["fingerprint"], view["state"]) == ("site", shown, "accepted")
    await api.ask("POST", "/keys/gate/revoke", {"kind": "device"})
    assert api.site.enrollment.by_name("gate") is None


async def test_sites_are_accepted_rejected_and_revoked_as_before(tmp_path: Path) -> None:
    async with opened_api(tmp_path, devices=False) as api:
        await api.knock("porto")
        assert (await api.ask("POST", "/keys/porto/accept", {}))["keys"][0]["state"] == "accepted"
        assert (await api.ask("POST", "/keys/porto/reject", {}))["keys"][0]["state"] == "rejected"
        assert [action for _, action, _ in api.site.deeds()] == ["keys.accept", "keys.reject"]
        await api.ask("POST", "/keys/porto/revoke", {"why": "taken over"})
        assert api.revoked == [("porto", ME, "socket", "taken over")]
        assert (await api.refused(404, "POST", "/keys/tokens", {}))["id"] == "keys.no_devices"
        assert await api.refused(404, "POST", "/keys/nowhere/accept", {})


async def test_who_waits_without_a_fingerprint_is_not_accepted(api: Api) -> None:
    await api.site.window()
    await api.site.ask(a_device())
    assert (await api.refused(400, "POST", "/keys/cam-1/accept", {}))["id"] == "keys.fingerprint_needed"
    assert (await api.refused(404, "POST", "/keys/cam-9/accept", {"fingerprint": "x"}))["hint"]
    rejected = (await api.ask("POST", "/keys/cam-1/reject", {}))["keys"]
    assert [view["state"] for view in rejected] == ["rejected"]
    assert (await api.refused(404, "POST", "/keys/cam-9/reject", {}))["hint"]
    answer = await api.site.ask(a_device(), await api.site.token())
    assert isinstance(answer, NotYet)
    assert answer.state == "rejected"
