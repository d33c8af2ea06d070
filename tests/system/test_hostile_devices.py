"""Whatever arrives at the broker, the job under way ends, and what was refused is counted and named."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress

import aiomqtt
import msgspec
import pytest

from device_agent.lean_mqtt import encode_connect, encode_publish
from device_agent.protocol import limits, topics
from device_agent.protocol.messages import Cancel, Confirm, Deliver, Gone, Hello, Job, Return, Running, Welcome, encode
from tests.peers.system import SECONDS, System, assert_exactly_once, assert_executed_once, one_site

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

DEVICES = 20
IDS = [f"cam-{number:05d}" for number in range(DEVICES)]
SESSION = "0" * 16
JID = "20200101000000000000"
CONNACK, PINGREQ = 0x20, b"\xc0\x00"
SEED = 20_260_101
pack = msgspec.msgpack.encode

Frame = tuple[str, bytes]


@pytest.fixture(scope="module")
def site() -> Iterator[System]:
    with one_site(DEVICES) as system:
        yield system


def publish(system: System, frames: Sequence[Frame]) -> None:
    """Straight to the broker, from somebody who is no device."""

    async def send() -> None:
        async with aiomqtt.Client("127.0.0.1", system.ports["lisbon"], identifier="stranger") as client:
            for topic, payload in frames:
                await client.publish(topic, payload, qos=1)

    asyncio.run(send())


def publish_and_be_thrown_out(system: System, topic: str, payload: bytes) -> None:
    """The same where the broker itself may end the connection, which the client above would wait for."""
    greeting = encode_connect("stranger", 60)
    with socket.create_connection(("127.0.0.1", system.ports["lisbon"]), SECONDS) as connection:
        connection.sendall(greeting)
        assert connection.recv(4)[0] == CONNACK
        # Either it answers to the ping, and has handled what came before it, or it has hung up.
        with suppress(ConnectionError):
            connection.sendall(encode_publish(topic, payload) + PINGREQ)
            connection.recv(2)


def up(device: str, kind: str = "ret") -> str:
    return topics.device_up("lisbon", device, kind)


def nested(depth: int) -> object:
    value: object = "bottom"
    for _ in range(depth):
        value = [value]
    return value


def a_return(jid: str, **fields: object) -> bytes:
    given = {"type": "return", "jid": jid, "fun": "test.ping", "outcome": "ok", **fields}
    return pack(given)


def a_hello(grains: object) -> bytes:
    return pack({"type": "hello", "session": SESSION, "agent": "0", "grains": grains})


def malformed() -> list[bytes]:
    randomness = random.Random(SEED)
    return [
        b"",
        b"\xc1",
        b"\x00" * 1000,
        b"\x91" * 100_000,
        b"\x81" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff\xa1",
        b"\xc6\xff\xff\xff\xffx",
        b'{"type": "return"}',
        *(randomness.randbytes(randomness.randrange(1, 200)) for _ in range(300)),
    ]


def wrongly_typed(jid: str) -> list[bytes]:
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
        a_hello([]),
        a_hello({1: 2}),
    ]


def test_a_job_ends_whatever_is_published_beside_it(site: System) -> None:
    before = site.refusals("lisbon")
    jid = site.issue("central", "*", "test.sleep", 2)
    site.until(lambda: site.job("central", jid).expected == DEVICES, "the master knows who will answer")
    device = IDS[0]
    frames = [(up(device), payload) for payload in malformed()]
    frames += [(up(device), payload) for payload in wrongly_typed(jid)]
    frames += [(up(device), a_return(jid, value=nested(limits.VALUE_DEPTH + 5)))]
    frames += [(up(device, "hello"), a_hello({"deep": nested(500)}))]
    frames += [(up(device, "hello"), a_hello({f"{number}": number for number in range(20_000)}))]
    publish(site, frames)
    assert_exactly_once(site.ended("central", jid), IDS)
    assert_executed_once(site.report(), jid, DEVICES)

    counted = site.refusals("lisbon") - before
    assert counted["mqtt", "malformed"] >= 9
    assert counted["mqtt", "wrong_type"] >= 20
    assert counted["mqtt", "too_deep"] >= 1
    assert counted["mqtt", "grains_too_large"] == 1
    assert sum(counted.values()) == len(frames)
    checked = site.command("check", "--json", station="lisbon", status=0).json("finding")
    said = [finding["finding"] for finding in checked if finding["check"] == "refusals"]
    assert any(f"mqtt: malformed, from {device}" in finding for finding in said), said


def test_nobody_answers_for_a_device_that_is_not_there(site: System) -> None:
    before = site.refusals("lisbon")
    jid = site.issue("central", "*", "test.sleep", 1)
    site.until(lambda: site.job("central", jid).expected == DEVICES, "the master knows who will answer")
    publish(
        site,
        [
            (up("ghost"), encode(Return(jid=jid, fun="test.sleep", outcome="failed"))),
            (up("ghost", "running"), encode(Running(jid))),
            (up("ghost", "gone"), encode(Gone(SESSION))),
            (up(IDS[0]), encode(Return(jid=JID, fun="test.sleep", outcome="ok"))),
            # A last will of a connection that is not the present one says nothing.
            (up(IDS[0], "gone"), encode(Gone(SESSION))),
        ],
    )
    assert_exactly_once(site.ended("central", jid), IDS)
    assert (site.refusals("lisbon") - before)["mqtt", "unexpected_return"] == 2
    assert site.view("lisbon")["present"] == DEVICES


@pytest.mark.parametrize(
    "device", ["a b", "..", "x" * 129, "ümlaut", "$SYS", "-", "a\u202eb", "a%00b", "<b>", "'; DROP TABLE devices; --"]
)
def test_an_id_that_is_none_is_refused(site: System, device: str) -> None:
    before = site.refusals("lisbon")
    publish(site, [(up(device, "hello"), encode(Hello(SESSION, "0", {"id": device})))])
    site.until(lambda: (site.refusals("lisbon") - before)["mqtt", "bad_topic"] == 1, "it is counted")
    assert site.view("lisbon")["devices"] == DEVICES
    findings = site.view("lisbon", "/check")["findings"]
    assert any("bad_topic" in finding["finding"] for finding in findings)


@pytest.mark.parametrize("device", ["a\x01b", "a\x1b[2Jb", "a\x7f"])
def test_control_characters_in_an_id_come_to_nothing(site: System, device: str) -> None:
    publish_and_be_thrown_out(site, up(device, "hello"), encode(Hello(SESSION, "0", {})))
    assert_exactly_once(site.ended("central", site.issue("central", "*", "test.ping")), IDS)
    assert site.view("lisbon")["devices"] == DEVICES


def test_what_is_larger_than_a_message_may_be_comes_to_nothing(site: System) -> None:
    jid = site.issue("central", "*", "test.sleep", 1)
    for size in (limits.MESSAGE_BYTES + 1, 2 * limits.MESSAGE_BYTES, 8 * 1024 * 1024):
        publish_and_be_thrown_out(site, up(IDS[0]), b"\0" * size)
    assert_exactly_once(site.ended("central", jid), IDS)


def test_devices_refuse_what_no_station_of_theirs_says(site: System) -> None:
    foreign = Job(jid=JID, tgt="nobody", fun="test.ping", user="mallory", issued=0, expires=1)
    group, one = topics.group_job("lisbon"), topics.device_job("lisbon", IDS[0])
    before = site.report()["refused"]
    jid = site.issue("central", "*", "test.sleep", 1)
    frames = [(group, payload) for payload in malformed()[:50]]
    frames += [
        (group, encode(Deliver(b"\xc1", 60))),
        (group, encode(Deliver(encode(foreign), float("nan")))),
        (group, encode(Deliver(pack({"type": "job", "jid": 5}), 60))),
        (one, encode(Welcome(SESSION, 5))),
        (one, encode(Confirm([JID] * 900))),
        (one, pack({"type": "cancel", "jid": jid, "bitmap": b"\xff" * 100_000})),
        (one, pack({"type": "rollcall", "x": nested(400)})),
    ]
    publish(site, frames)
    assert_exactly_once(site.ended("central", jid), IDS)
    refused = site.report()["refused"]
    assert refused["malformed"] > before.get("malformed", 0)
    assert refused["wrong_type"] > before.get("wrong_type", 0)
    assert refused["stale_welcome"] == before.get("stale_welcome", 0) + 1


def test_a_job_that_does_not_mean_a_device_is_not_run_by_it(site: System) -> None:
    before = site.refusals("lisbon")
    foreign = Job(jid="20200101000000000001", tgt="door-*", fun="cmd.run", arg=["false"], user="x", issued=0, expires=1)
    publish(site, [(topics.device_job("lisbon", IDS[1]), encode(Deliver(encode(foreign), 60)))])
    site.until(lambda: (site.refusals("lisbon") - before)["mqtt", "unexpected_return"] == 1, "it was answered")
    assert foreign.jid not in site.report()["executed"]


def test_a_flood_of_hellos_and_roll_calls_is_survived(site: System) -> None:
    jid = site.issue("central", "*", "test.sleep", 1)
    frames = [(topics.group_job("lisbon"), pack({"type": "rollcall"}))] * 100
    frames += [(up(IDS[0], "beat"), pack({"type": "beat", "session": SESSION}))] * 500
    frames += [(up(IDS[0], "running"), encode(Running(jid)))] * 500
    frames += [(up(IDS[1]), encode(Cancel(jid)))] * 500
    publish(site, frames)
    assert_exactly_once(site.ended("central", jid), IDS)
    site.present(DEVICES)
