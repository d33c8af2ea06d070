"""A device whose clock or facts are nonsense is a device like any other, and breaks neither lists nor targets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiomqtt
import msgspec
import pytest

from device_agent.agent import Agent
from device_agent.clock import Clock
from device_agent.config import AgentSettings, BrokerSettings
from device_agent.protocol import topics
from tests.peers.system import System, assert_exactly_once, one_site
from tests.peers.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

DEVICES = 5
IDS = [f"cam-{number:05d}" for number in range(DEVICES)]
SESSION = "1" * 16


@pytest.fixture(scope="module")
def site() -> Iterator[System]:
    with one_site(DEVICES) as system:
        yield system


class FixedWall(Clock):
    """A device that lost its battery: every boot is this moment."""

    def __init__(self, wall: float) -> None:
        self._wall = wall

    def wall(self) -> float:
        return self._wall


@asynccontextmanager
async def agent(site: System, name: str, clock: Clock, folder: Path) -> AsyncIterator[Agent]:
    """A real agent inside this process, welcomed by its station."""
    broker = BrokerSettings(port=site.ports["lisbon"])
    table = AgentSettings(site="lisbon", id=name, broker=broker, state_dir=str(folder), drain_seconds=0.5)
    async with Agent(table, clock) as running:
        await until(lambda: is_present(site, name), 30, f"{name} is here")
        yield running
    await until(lambda: not is_present(site, name), 30, f"{name} has left")


def is_present(site: System, name: str) -> bool:
    return any(each["id"] == name and each["present"] for each in site.view("central", "/devices")["devices"])


@pytest.mark.parametrize("wall", [0.0, -1e9, 4e9, 1e11, 1e18], ids=["1970", "1938", "2096", "5138", "never"])
async def test_a_device_whose_clock_is_wrong_runs_its_jobs(site: System, wall: float, tmp_path: Path) -> None:
    async with agent(site, "camera-of-yore", FixedWall(wall), tmp_path):
        jid = site.issue("central", "*-of-yore", "test.echo", "still here", expires_seconds=60)
        await until(lambda: site.job("central", jid).state == "closed", 30, "the job has ended")
        (outcome,) = site.stations["central"].outcomes(jid)
        assert (outcome.outcome, outcome.value, outcome.executions) == ("ok", "still here", 1)
        # When it was is the station's business, whose clock is right.
        assert outcome.ended is not None
        accepted = site.job("central", jid).accepted
        assert accepted is not None
        assert abs(outcome.ended - accepted) < 600
        listed = site.command("devices", "show", "camera-of-yore", "--json", status=0).json("device")
        assert abs(listed[0]["last_seen"] - accepted) < 600


def deep(levels: int) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = {"below": value}
    return value


NONSENSE: dict[str, dict[str, Any]] = {
    "a-list": {"os": [1, {"a": [None, True]}], "kind": {"lens": "camera"}},
    "deep": {"os": deep(14), "number": [[[[1]]]]},
    "unicode": {"os": "L\u0131nux \U0001f4a5 \u202e", "\u00fc": "\u00fc", "": {"": ""}},
    "control": {"os": "\x1b[2J\x07\r\n", "\x1b]0;owned\x07": "\x00"},
    "numbers": {"os": 2**63, "number": -(2**63), "f": float("nan"), "i": float("inf"), "small": 5e-324},
    "bytes": {"os": b"\xff\xfe", "kind": b""},
    "none": {"os": None, "kind": False},
    "empty": {},
    "large": {"os": "x" * 30_000},
    "many": {f"g{number}": number for number in range(1500)},
    "lies": {"id": "cam-00001", "site": "elsewhere", "os": "Linux:Linux", "kind": "*", "model": "[a-"},
}


def introduce(site: System, grains: dict[str, dict[str, Any]]) -> None:
    """Say hello for devices that are not there beyond that."""

    async def send() -> None:
        async with aiomqtt.Client("127.0.0.1", site.ports["lisbon"], identifier="many") as client:
            for name, facts in grains.items():
                hello = {"type": "hello", "session": SESSION, "agent": "\x1b[31m", "grains": facts}
                await client.publish(topics.device_up("lisbon", name, "hello"), msgspec.msgpack.encode(hello), qos=1)

    asyncio.run(send())


def take_leave(site: System, names: list[str]) -> None:
    async def send() -> None:
        async with aiomqtt.Client("127.0.0.1", site.ports["lisbon"], identifier="many") as client:
            for name in names:
                gone = msgspec.msgpack.encode({"type": "gone", "session": SESSION, "why": "stopped"})
                await client.publish(topics.device_up("lisbon", name, "gone"), gone, qos=1)

    asyncio.run(send())


@pytest.fixture(scope="module")
def odd() -> Iterator[System]:
    with one_site(DEVICES) as system:
        names = {f"odd-{name}": grains for name, grains in NONSENSE.items()}
        introduce(system, names)
        system.present(DEVICES + len(NONSENSE))
        yield system
        take_leave(system, list(names))
        system.present(DEVICES)


@pytest.mark.parametrize("station", ["central", "lisbon"])
def test_every_device_is_listed_whatever_it_says_of_itself(odd: System, station: str) -> None:
    plain = odd.command("devices", "list", station=station, status=0)
    assert plain.out.count("odd-") >= len(NONSENSE)
    listed = odd.command("devices", "list", "--json", station=station, status=0)
    assert {device["id"] for device in listed.json("device")} == {*IDS, *(f"odd-{name}" for name in NONSENSE)}
    assert "\x1b" not in plain.out + listed.out


@pytest.mark.parametrize("name", list(NONSENSE))
def test_every_device_is_shown(odd: System, name: str) -> None:
    plain = odd.command("devices", "show", f"odd-{name}", status=0)
    assert "\x1b" not in plain.out
    assert "\x07" not in plain.out
    (shown,) = odd.view("central", f"/devices/odd-{name}")["devices"]
    assert set(shown["grains"]) == set(NONSENSE[name])


@pytest.mark.parametrize(
    ("kind", "tgt", "found"),
    [
        ("grain", "os:Linux", {*IDS}),
        ("grain", "kind:camera", {*IDS}),
        ("grain", "kind:lens:camera", {"odd-a-list"}),
        ("grain", "number:3", {"cam-00003"}),
        ("compound", "G@kind:camera and not cam-00001", {*IDS} - {"cam-00001"}),
        ("compound", "G@model:* and not G@model:[[]*", {*IDS}),
        ("grain", "os:\U0001f4a5", set()),
        ("grain", "g1499:1499", {"odd-many"}),
        ("pcre", "odd-(none|empty)$", {"odd-none", "odd-empty"}),
    ],
)
def test_targets_by_grain_find_those_they_mean(odd: System, kind: str, tgt: str, found: set[str]) -> None:
    for station in ("central", "lisbon"):
        listed = odd.view(station, f"/devices?{urlencode({'tgt': tgt, 'tgt_type': kind})}")["devices"]
        assert {device["id"] for device in listed} == found


def test_a_job_by_grain_ends_beside_them(odd: System) -> None:
    jid = odd.issue("central", "kind:camera", "grains.get", "number", tgt_type="grain")
    ended = odd.ended("central", jid)
    assert_exactly_once(ended, IDS)
    assert sorted(outcome.value for outcome in ended.outcomes) == list(range(DEVICES))


def test_the_views_and_the_metrics_are_whole(odd: System) -> None:
    for station in ("central", "lisbon"):
        assert json.loads(odd.ask(station, "GET", "/devices")[1])["next"] is None
        assert odd.view(station)["present"] == DEVICES + len(NONSENSE)
        assert odd.ask(station, "GET", "/metrics")[0] == 200
        assert odd.command("check", station=station, status=0).out
