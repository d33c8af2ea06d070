"""A device whose clock, facts or words are nonsense is one device among others, and breaks neither lists nor targets.

It was let in as any other, and everything it says is sealed and signed as it should be.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from device_agent.agent import Agent
from device_agent.clock import Clock
from device_agent.config import AgentSettings
from device_agent.protocol import limits, topics
from device_agent.protocol.messages import Beat, EpochWanted, Gone, Hello, Reseal, Return, Running, Upward, encode
from gateway.rehearsal import join_token
from tests.peers.forgeries import JID, SESSION, nested, rubbish
from tests.peers.played_device import Cameras, Job
from tests.peers.rogue import rogues
from tests.peers.stranger import Message, dids, refused_from, stranger
from tests.peers.system import System, assert_exactly_once, assert_executed_once, whole_system
from tests.peers.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 5
IDS = [f"cam-{number:05d}" for number in range(DEVICES)]
pack = msgspec.msgpack.encode


@contextmanager
def open_site() -> Iterator[System]:
    """Devices come over a broker without rules, where a test can speak for many of them."""
    with whole_system() as system:
        system.add_master()
        system.add_gateway("lisbon", "central", broker=system.add_broker())
        system.join("lisbon")
        system.add_swarm(DEVICES, "lisbon")
        system.present(DEVICES)
        yield system


@pytest.fixture(scope="module")
def site() -> Iterator[System]:
    with open_site() as system:
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
    token = folder / "its-token"
    token.write_text(join_token(site.stations["lisbon"], uses=1))
    table = AgentSettings(
        serial=name,
        token_file=str(token),
        state_dir=str(folder / "state"),
        grains_file=str(folder / "own.grains"),
        drain_seconds=0.5,
    )
    async with Agent(table, clock) as running:
        await until(lambda: site.is_here(name), 60, f"{name} is here")
        yield running
    await until(lambda: not site.is_here(name), 60, f"{name} has left")


@pytest.mark.parametrize(
    ("wall", "year"), [(0.0, "1970"), (-1e9, "1938"), (4e9, "2096"), (1e11, "5138"), (1e18, "never")]
)
async def test_a_device_whose_clock_is_wrong_joins_and_runs_its_jobs(
    site: System, wall: float, year: str, tmp_path: Path
) -> None:
    name = f"camera-of-{year}"
    async with agent(site, name, FixedWall(wall), tmp_path):
        jid = site.issue("central", name, "test.echo", "still here", expires_seconds=600)
        await until(lambda: site.job("central", jid).state == "closed", 60, "the job has ended")
        (outcome,) = site.stations["central"].outcomes(jid)
        assert (outcome.outcome, outcome.value, outcome.executions) == ("ok", "still here", 1)
        # When it was is the station's business, whose clock is right.
        assert outcome.ended is not None
        accepted = site.job("central", jid).accepted
        assert accepted is not None
        assert abs(outcome.ended - accepted) < 600
        listed = site.command("devices", "show", name, "--json", status=0).json("device")
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


def hello(grains: object) -> bytes:
    """A hello as an encoder of ours would not make it."""
    return pack({"type": "hello", "session": SESSION, "agent": "\x1b[31m", "grains": grains})


async def introduced(site: System) -> Cameras:
    """Devices that said hello in their sessions, and say nothing beyond that."""
    names = {f"odd-{name}": grains for name, grains in NONSENSE.items()}
    async with rogues(site, "lisbon", list(names)) as cameras:
        for name, grains in names.items():
            await cameras.say(name, hello(grains))
        await until(lambda: all(cameras.welcomed(name, SESSION) for name in names), what="all are welcome")
    return cameras


async def all_say(site: System, cameras: Cameras, message: Upward) -> None:
    """Each of them says this."""
    async with stranger(site, "lisbon") as somebody:
        await somebody.say([(camera.up("f"), camera.frame(encode(message))) for camera in cameras.by_name.values()])


@pytest.fixture(scope="module")
def introductions() -> Iterator[tuple[System, Cameras]]:
    with open_site() as system:
        cameras = asyncio.run(introduced(system))
        yield system, cameras
        asyncio.run(all_say(system, cameras, Gone(SESSION, "stopped")))
        system.present(DEVICES)


@pytest.fixture
def odd(introductions: tuple[System, Cameras]) -> System:
    """All are here, however long the tests before took: who says nothing for long is not."""
    system, cameras = introductions
    asyncio.run(all_say(system, cameras, Beat(SESSION)))
    system.present(DEVICES + len(NONSENSE))
    return system


@pytest.mark.parametrize("station", ["central", "lisbon"])
def test_every_device_is_listed_whatever_it_says_of_itself(odd: System, station: str) -> None:
    plain = odd.command("devices", "list", station=station, status=0)
    assert plain.out.count("odd-") >= len(NONSENSE)
    listed = odd.command("devices", "list", "--json", station=station, status=0)
    found = {device["id"] for device in listed.json("device")} - {"central-station", "lisbon-station"}
    assert found == {*IDS, *(f"odd-{name}" for name in NONSENSE)}
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


def nonsense_in_types(jid: str) -> list[bytes]:
    """Messages that are nearly some."""

    def a_return(jid: str, **fields: object) -> bytes:
        return pack({"type": "return", "jid": jid, "fun": "test.ping", "outcome": "ok", **fields})

    return [
        pack(None),
        pack([]),
        pack({}),
        pack({"type": "nonsense"}),
        pack({"type": ["return"]}),
        pack({"type": "welcome", "session": SESSION, "index": 0}),
        a_return("1"),
        a_return(jid + "\n"),
        a_return(jid, outcome="site_dark"),
        a_return(jid, outcome="splendid"),
        a_return(jid, retcode=2**40),
        a_return(jid, duration=-1.0),
        a_return(jid, duration=float("nan")),
        a_return(jid, duration=float("inf")),
        a_return(jid, why="x" * 5000),
        a_return(jid, executions=-1),
        a_return(jid, value={1: 2}),
        a_return(jid, value=msgspec.msgpack.Ext(5, b"?")),
        pack({"type": "beat", "session": SESSION, "running": [jid] * 1000}),
        pack({"type": "gone", "session": "?"}),
        pack({"type": "reseal", "jid": jid, "reason": "x" * 65}),
        hello([]),
        hello({1: 2}),
    ]


def refused(site: System, before: Counter[tuple[str, str]]) -> Counter[str]:
    """What the gateway refused of devices since, by reason."""
    later = site.refusals("lisbon") - before
    return Counter({reason: number for (link, reason), number in later.items() if link == "mqtt"})


async def test_what_a_device_says_wrongly_is_counted_under_its_name_and_it_still_answers(site: System) -> None:
    async with rogues(site, "lisbon", ["rogue-1"]) as cameras:
        await cameras.say("rogue-1", Hello(SESSION, "0", {"kind": "rogue"}))
        site.until(lambda: site.is_here("rogue-1"), "it is here")
        jid = site.issue("central", "rogue-1 or cam-*", "test.sleep", 1, tgt_type="compound")
        await until(lambda: [job for job in cameras.of(Job, "rogue-1") if job.jid == jid], what="it is told of the job")
        before = site.refusals("lisbon")
        said = [*rubbish()[:100], *nonsense_in_types(jid), hello({"deep": nested(500)})]
        too_deep = nested(limits.VALUE_DEPTH + 5)
        said += [pack({"type": "return", "jid": jid, "fun": "x", "outcome": "ok", "value": too_deep})]
        said += [hello({f"{number}": number for number in range(20_000)})]
        await cameras.say("rogue-1", *said)
        site.until(lambda: refused(site, before).total() >= len(said), "all of it is refused")
        counted = refused(site, before)
        # Nobody waits for these two, and the second answer to a job is none.
        for outcome in ("ok", "failed"):
            await cameras.say(
                "rogue-1",
                Return(jid=JID, fun="test.sleep", outcome="ok"),
                Return(jid=jid, fun="test.sleep", outcome=outcome, executions=1),
            )
        ended = site.ended("central", jid)
        assert_exactly_once(ended, [*IDS, "rogue-1"])
        site.until(lambda: refused(site, before)["unexpected_return"] == 2, "nobody expected them")
        await cameras.say("rogue-1", Gone(SESSION, "stopped"))
    assert counted.total() == len(said)
    assert set(counted) == {"malformed", "wrong_type", "too_deep", "grains_too_large"}
    assert counted["grains_too_large"] == 1
    assert counted["wrong_type"] >= 20
    named = refused_from(site, "lisbon")
    assert {reason: named[reason, "rogue-1"] for reason in counted} == counted
    site.until(lambda: not site.is_here("rogue-1"), "it has left")
    assert_executed_once(site.report(), jid, DEVICES)


async def test_a_device_that_floods_its_session_keeps_nobody_waiting(site: System) -> None:
    async with rogues(site, "lisbon", ["rogue-2"]) as cameras:
        rogue = cameras["rogue-2"]
        await cameras.say("rogue-2", Hello(SESSION, "0", {}))
        site.until(lambda: site.is_here("rogue-2"), "it is here")
        jid = site.issue("central", "rogue-2 or cam-*", "test.sleep", 1, tgt_type="compound")
        await until(lambda: [job for job in cameras.of(Job, "rogue-2") if job.jid == jid], what="it is told of the job")
        before, counters, log = site.refusals("lisbon"), site.counters("lisbon"), len(site.log("lisbon"))
        said: list[Upward] = [Beat(SESSION, [jid]), Running(jid), Hello(SESSION, "0", {}), EpochWanted()]
        said.append(Reseal(jid, "stale_epoch"))
        async with stranger(site, "lisbon") as somebody:
            await somebody.say([(rogue.up("f"), rogue.frame(message)) for message in said * 1000])
            await cameras.say("rogue-2", Return(jid=jid, fun="test.sleep", outcome="ok", executions=1))
            await somebody.say([(rogue.up("ses"), rogue.open()) for _ in range(200)])

        def judged() -> int:
            passed = site.counters("lisbon") - counters
            return refused(site, before).total() + passed["sessions_opened"] + passed["openings_superseded"]

        site.until(lambda: judged() == 200, "every opening is taken, refused or replaced by a later one")
        await until(lambda: rogue.ok is not None, what="the last of them that was taken")
        counted, passed = refused(site, before), site.counters("lisbon") - counters
        assert set(counted) == {"too_many_sessions"}
        assert counted["too_many_sessions"] > 150
        assert refused_from(site, "lisbon")["too_many_sessions", "rogue-2"] == counted["too_many_sessions"]
        assert passed["epoch_keys_asked_again"] >= 999
        # A new seal is asked for once in two seconds, however often a device says that it needs one.
        assert site.log("lisbon")[log:].count("needs new seals") <= 5
    assert_exactly_once(site.ended("central", jid), [*IDS, "rogue-2"])
    assert_executed_once(site.report(), jid, DEVICES)


async def test_what_a_device_claims_to_know_moves_nobody_elses_numbers_and_it_can_be_put_out(site: System) -> None:
    async with rogues(site, "lisbon", ["rogue-3"]) as cameras:
        rogue = cameras["rogue-3"]
        assert rogue.prekey is not None
        assert rogue.anchor.root is not None
        kids = [rogue.prekey.kid, *(master.kid for master in rogue.anchor.root.masters)]
        claims = {"marks": [(kid, 2**64 - 1) for kid in kids], "version": 2**62, "epoch": 2**32 - 1}
        await cameras.open("rogue-3", **claims)
        await cameras.say("rogue-3", Hello(SESSION, "0", {}))
        site.until(lambda: site.is_here("rogue-3"), "it is here")
        site.command("keys", "revoke", "rogue-3", "--yes", station="lisbon", status=0)
        site.until(lambda: not site.is_here("rogue-3"), "it is put out")
        before = site.refusals("lisbon")
        await cameras.say("rogue-3", Hello(SESSION, "0", {}))
        await cameras.publish(rogue.up("ses"), rogue.open())
        site.until(lambda: refused(site, before).total() == 2, "it is not heard")
    assert refused(site, before) == {"unknown_session": 1, "revoked": 1}
    assert refused_from(site, "lisbon")["revoked", "rogue-3"] == 1
    for station in ("central", "lisbon"):
        jid = site.issue(station, "cam-*", "test.ping")
        assert_exactly_once(site.ended(station, jid), IDS)
        assert_executed_once(site.report(), jid, DEVICES)


async def test_a_device_cannot_speak_for_another(site: System) -> None:
    known = dids(site, "lisbon")
    other = topics.device_up("lisbon", known[IDS[1]], "f")
    async with rogues(site, "lisbon", ["rogue-4"]) as cameras:
        rogue = cameras["rogue-4"]
        await cameras.say("rogue-4", Hello(SESSION, "0", {"id": IDS[1]}))
        site.until(lambda: site.is_here("rogue-4"), "it is here")
        jid = site.issue("central", "cam-*", "test.sleep", 1)
        site.until(lambda: site.job("central", jid).expected == DEVICES, "the master knows who will answer")
        before = site.refusals("lisbon")
        lie = Return(jid=jid, fun="test.sleep", outcome="failed")
        said: list[Message] = [
            (other, rogue.frame(lie, other)),
            (other, rogue.frame(encode(Gone(SESSION, "stopped")), other)),
            (topics.device_up("lisbon", known[IDS[1]], "ses"), rogue.open()),
            (topics.device_up("lisbon", known[IDS[1]], "bye"), rogue.bye()),
        ]
        for topic, payload in said:
            await cameras.publish(topic, payload)
        site.until(lambda: refused(site, before)["wrong_topic"] == len(said), "nobody hears it")
        await cameras.open("rogue-4")
        await cameras.say("rogue-4", lie)
        site.until(lambda: refused(site, before)["unexpected_return"] == 1, "nobody asked it")
    assert refused(site, before) == {"wrong_topic": len(said), "unexpected_return": 1}
    assert_exactly_once(site.ended("central", jid), IDS)
    assert site.is_here(IDS[1])
