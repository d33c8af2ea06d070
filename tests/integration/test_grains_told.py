"""A change of grains on a device reaches its station before the return of the job that made the change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.devices.ssh_secrets import Secret
from gateway.downlinks.ssh_stead import Stead
from gateway.own.settings import OwnSettings
from gateway.own.target import StationTarget
from tests.peers.agent_process import NAME, agent_settings, joined
from tests.peers.broker import Broker
from tests.peers.played_station import PlayedStation, a_job, played_station
from tests.peers.ssh_played import PASSWORD, played_device
from tests.peers.ssh_site import ssh_site
from tests.peers.waiting import until

BEFORE = {"shelf": "a1", "roles": ["edge"], "location": {"room": "lobby"}}


@pytest.fixture
async def station(broker: Broker) -> AsyncIterator[PlayedStation]:
    async with played_station(broker.address) as made:
        yield made


@pytest.mark.parametrize(
    ("fun", "arg", "kwarg", "expected"),
    [
        ("grains.set", ["shelf", "b2"], {}, {"shelf": "b2"}),
        ("grains.set", ["location:room", "dock"], {}, {"location": {"room": "dock"}}),
        ("grains.setval", ["shelf", "b2"], {}, {"shelf": "b2"}),
        ("grains.setvals", [{"shelf": "b2", "wing": "north"}], {}, {"shelf": "b2", "wing": "north"}),
        ("grains.append", ["roles", "door"], {}, {"roles": ["edge", "door"]}),
        ("grains.remove", ["roles", "edge"], {}, {"roles": []}),
        ("grains.delval", ["shelf"], {}, {"shelf": None}),
        ("grains.delkey", ["shelf"], {}, {"shelf": "absent"}),
    ],
)
async def test_each_function_that_changes_grains_tells_the_station_before_it_returns(
    station: PlayedStation, tmp_path: Path, fun: str, arg: list[Any], kwarg: dict[str, Any], expected: dict[str, Any]
) -> None:
    (tmp_path / "own.grains").write_text(yaml.safe_dump(BEFORE))
    async with joined(station, agent_settings(station, tmp_path, grains_refresh_seconds=0)):
        await station.deliver(a_job(1, fun=fun, arg=arg, kwarg=kwarg))
        [told] = await station.returned(a_job(1).jid, NAME)
        assert told.outcome == "ok", told
        # Nothing is awaited here: the hello was published before the return.
        first, *later = station.hellos[NAME]
        assert {name: first.grains[name] for name in BEFORE} == BEFORE
        assert [{name: each.grains.get(name, "absent") for name in expected} for each in later] == [expected]
        await station.deliver(a_job(2, fun="saltutil.refresh_grains"))
        await station.returned(a_job(2).jid, NAME)
        assert len(station.hellos[NAME]) == 2, "a refresh without a change tells nothing"


async def test_the_later_of_two_refreshes_counts_when_the_earlier_one_is_slow(
    station: PlayedStation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with joined(station, agent_settings(station, tmp_path, grains_refresh_seconds=0)) as agent:
        began, go_on = asyncio.Event(), asyncio.Event()
        told = agent.custom.told

        async def slow(host: Any, grains: dict[str, Any]) -> dict[str, Any]:
            if not began.is_set():
                began.set()
                await go_on.wait()
            return await told(host, grains)

        monkeypatch.setattr(agent.custom, "told", slow)
        async with asyncio.TaskGroup() as group:
            group.create_task(agent.regrain())
            await began.wait()
            (tmp_path / "own.grains").write_text("shelf: b2\n")
            later = group.create_task(agent.regrain())
            # The later one gets every chance to end before the earlier one.
            await asyncio.wait({later}, timeout=1.0)
            go_on.set()
        assert agent._grains["shelf"] == "b2"
        await until(lambda: station.hellos[NAME][-1].grains.get("shelf") == "b2", what="the grain is told")


async def test_the_registry_keeps_a_copy_of_what_an_ssh_device_reports(tmp_path: Path) -> None:
    async with played_device() as camera, ssh_site(tmp_path) as site:
        await site.add("cam-1", camera.port, camera.host_keys, Secret(password=PASSWORD))
        await site.here("cam-1")
        stead: Stead = site.ssh._steads["cam-1"]
        before = list(site.device("cam-1").grains["ipv4"])
        stead.line.grains["ipv4"].append("changed in place")
        assert site.device("cam-1").grains["ipv4"] == before


async def test_changed_grains_of_a_station_are_an_event_and_its_start_is_none(tmp_path: Path) -> None:
    own = tmp_path / "own.grains"
    own.write_text("shelf: a1\n")
    settings = OwnSettings(grains_file=str(own), grains_refresh_seconds=0)
    (tmp_path / "state").mkdir()
    for start, shelf in enumerate(("b2", "c3")):
        async with ssh_site(tmp_path / "site", station=settings) as site:
            target: StationTarget = site.kept.station_target("gateway", tmp_path / "state")
            async with target:
                await target.regrain()
                own.write_text(f"shelf: {shelf}\n")
                await target.regrain()
                assert site.device(target._id).grains["shelf"] == shelf
                await until(lambda: len(site.events("outstation/device/*/grains")) > start, what="the event")  # noqa: B023 - awaited in the same turn
                told = site.events("outstation/device/*/grains")
                assert [event["changes"].get("shelf") for event in told] == [
                    {"old": "a1", "new": "b2"},
                    {"old": "b2", "new": "c3"},
                ][: start + 1]
