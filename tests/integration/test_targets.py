"""Targets at a station: a nodegroup is signed as what it stands for; a preview says whom a target means, and why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from device_agent.protocol.messages import Gone, Hello
from gateway.api.server import ApiServer
from gateway.jobs.nodegroups import Definition
from gateway.rooms import Rooms
from tests.peers.central import a_master, a_record
from tests.peers.clock import HandClock
from tests.peers.database import opened_rooms
from tests.peers.station import Heard, ask

GROUPS: dict[str, Definition] = {"dock": "cam-1 or G@os:Debian", "names": ["cam-1", "cam-2"]}
FIRST, SECOND = "1" * 16, "2" * 16


@asynccontextmanager
async def asked(rooms: Rooms, folder: Path) -> AsyncIterator[Any]:
    stopping = asyncio.Event()
    path = folder / "api.sock"
    rooms.nodegroups.use(GROUPS)
    async with ApiServer(path, rooms.operations(stopping), on_stop=stopping.set):

        async def to(where: str, **body: Any) -> Heard:
            return await ask(path, "POST", where, body)

        yield to


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Any]:
    async with AsyncExitStack() as stack:
        rooms = await stack.enter_async_context(opened_rooms(tmp_path / "state", clock=HandClock(), working=True))
        rooms.registry.hello("mqtt", "cam-1", Hello(FIRST, "0", {"os": "Alpine", "ipv4": ["10.0.0.1", "192.0.2.7"]}))
        rooms.registry.hello("mqtt", "cam-2", Hello(SECOND, "0", {"os": "Debian", "note": "x" * 5000}))
        rooms.registry.gone("cam-2", Gone(SECOND))
        yield await stack.enter_async_context(asked(rooms, tmp_path))


async def test_a_job_for_a_nodegroup_is_signed_as_what_it_stands_for_and_shows_both(gateway: Any) -> None:
    view = (await gateway("/jobs", tgt="dock", tgt_type="nodegroup", fun="test.ping")).json()
    assert (view["tgt"], view["tgt_type"]) == ("cam-1 or G@os:Debian", "compound")
    assert (view["typed"], view["typed_type"]) == ("dock", "nodegroup")
    assert view["expected"] == 2
    plain = (await gateway("/jobs", tgt="cam-1", fun="test.ping")).json()
    assert (plain["tgt"], plain["typed"], plain["typed_type"]) == ("cam-1", "", "")


@pytest.mark.parametrize(
    ("body", "matched"),
    [
        ({"tgt": "*"}, ["cam-1", "cam-2"]),
        ({"tgt": "N@names and not N@dock", "tgt_type": "compound"}, []),
        ({"tgt": "os:deb", "tgt_type": "grain_pcre"}, ["cam-2"]),
        ({"tgt": "192.0.2.0/24", "tgt_type": "ipcidr"}, ["cam-1"]),
        ({"tgt": "%names,-cam-1", "tgt_type": "range"}, ["cam-2"]),
        ({"tgt": "os|Alpine", "tgt_type": "grain", "delimiter": "|"}, ["cam-1"]),
        ({"tgt": "*", "site": "porto"}, []),
    ],
)
async def test_every_kind_of_target_is_previewed(gateway: Any, body: dict[str, Any], matched: list[str]) -> None:
    told = (await gateway("/match", **body)).json()
    assert [device["id"] for device in told["devices"]] == matched
    assert told["matched"] == len(matched)


async def test_the_preview_says_why_each_is_meant_and_who_is_away(gateway: Any) -> None:
    told = (await gateway("/match", tgt="N@dock and not G@note:y", tgt_type="compound")).json()
    assert (told["tgt"], told["tgt_type"]) == ("( cam-1 or G@os:Debian ) and not G@note:y", "compound")
    assert (told["known"], told["matched"], told["present"]) == (2, 2, 1)
    first, second = told["devices"]
    assert first["why"] == [{"term": "cam-1", "value": "cam-1"}, {"term": "not G@note:y", "value": None}]
    assert (first["present"], second["present"]) == (True, False)
    assert second["why"][0] == {"term": "G@os:Debian", "value": "Debian"}
    assert len(second["why"][1]["value"]) < 1000


async def test_the_preview_comes_in_pages_with_the_whole_number_in_each(gateway: Any) -> None:
    page = (await gateway("/match", tgt="*", limit=1)).json()
    assert ([device["id"] for device in page["devices"]], page["matched"]) == (["cam-1"], 2)
    page = (await gateway("/match", tgt="*", limit=1, after=page["next"])).json()
    assert ([device["id"] for device in page["devices"]], page["matched"], page["next"]) == (["cam-2"], 2, None)


@pytest.mark.parametrize(
    ("where", "body", "found"),
    [
        ("/match", {"tgt": "N@dok", "tgt_type": "compound"}, "dok"),
        ("/match", {"tgt": "(", "tgt_type": "pcre"}, "("),
        ("/match", {"tgt": "x", "tgt_type": "pillar"}, "x"),
        ("/jobs", {"tgt": "dok", "tgt_type": "nodegroup", "fun": "test.ping"}, "dok"),
        ("/jobs", {"tgt": "role", "tgt_type": "pillar", "fun": "test.ping"}, "role"),
    ],
)
async def test_what_is_wrong_with_a_target_is_said(gateway: Any, where: str, body: dict[str, Any], found: str) -> None:
    heard = await gateway(where, **body)
    assert heard.status == 400
    assert found in str(heard.error)


async def test_a_master_previews_the_devices_of_its_sites(tmp_path: Path) -> None:
    async with a_master(tmp_path, "lisbon") as rooms, asked(rooms, tmp_path) as to:
        await rooms.inbox.commit_records("lisbon", "0" * 16, [a_record("cam-1", "lisbon", 1)])
        told = (await to("/match", tgt="site:lis*", tgt_type="grain")).json()
        (device,) = told["devices"]
        assert (device["id"], device["site"]) == ("cam-1", "lisbon")
        assert device["why"] == [{"term": "G@site:lis*", "value": "lisbon"}]
        # The site is dark: nobody knows whether the device is there.
        assert (told["matched"], told["present"]) == (1, 0)
