"""Whoever has a site's broker to himself: the job under way ends, and what was refused is counted and named.

He hears everything and may say anything, and has no key that counts. So he says what is no message, what the release
before said, and what he signed himself. What he heard and says again is in ``test_replayed_messages``.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pytest

from device_agent.lean_mqtt import encode_connect, encode_publish
from device_agent.protocol import limits, topics
from device_agent.trust.session_frames import OVERHEAD_BYTES
from tests.peers.forgeries import JID, Forger, of_the_release_before, rubbish
from tests.peers.stranger import Message, dids, refused_by_devices, refused_from, stranger
from tests.peers.system import SECONDS, System, assert_exactly_once, assert_executed_once, whole_system
from tests.peers.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 20
IDS = [f"cam-{number:05d}" for number in range(DEVICES)]
CONNACK, PINGREQ = 0x20, b"\xc0\x00"


@pytest.fixture(scope="module")
def site() -> Iterator[System]:
    """The broker of this site lets everybody in and has no rules."""
    with whole_system() as system:
        system.add_master()
        system.add_gateway("lisbon", "central", broker=system.add_broker())
        system.join("lisbon")
        system.add_swarm(DEVICES, "lisbon")
        system.present(DEVICES)
        yield system


def under_way(site: System, seconds: float = 2) -> str:
    """A job that every device runs while the test goes on."""
    jid = site.issue("central", "*", "test.sleep", seconds)
    site.until(lambda: site.job("central", jid).expected == DEVICES, "the master knows who will answer")
    return jid


def assert_it_ends_once(site: System, jid: str) -> None:
    assert_exactly_once(site.ended("central", jid), IDS)
    assert_executed_once(site.report(), jid, DEVICES)


def up(did: str, kind: str = "f") -> str:
    return topics.device_up("lisbon", did, kind)


def counted(site: System, before: Counter[tuple[str, str]], link: str, count: int) -> Counter[str]:
    """What the gateway refused since, once it is so many, by reason."""

    def refused() -> Counter[str]:
        found: Counter[str] = Counter()
        for (where, reason), number in (site.refusals("lisbon") - before).items():
            found[reason] += number if where == link else 0
        return found

    site.until(lambda: refused().total() >= count, f"{count} are refused")
    assert refused().total() == count
    return +refused()


async def test_a_job_ends_whatever_is_published_beside_it(site: System) -> None:
    before, named = site.refusals("lisbon"), refused_from(site, "lisbon")
    jid = under_way(site)
    device = IDS[0]
    did = dids(site, "lisbon")[device]
    said = [*rubbish(), *of_the_release_before(jid)]
    frames: list[Message] = [(up(did), payload) for payload in said]
    wills = [(up(did, "bye"), payload) for payload in said]
    older = [(up(did, kind), payload) for kind in ("hello", "ret", "gone", "beat", "running") for payload in said]
    async with stranger(site, "lisbon") as somebody:
        count = await somebody.say([*frames, *wills, *older])
    assert_it_ends_once(site, jid)

    refused = counted(site, before, "mqtt", count)
    # A frame is told by its first byte and its length; whose it is nobody can say then.
    unknown = sum(payload[:1] == b"\x01" and len(payload) >= OVERHEAD_BYTES for payload in said)
    assert refused["bad_topic"] == len(older)
    assert refused["unknown_session"] == unknown
    assert refused["malformed"] + refused["not_canonical"] + unknown == len(frames) + len(wills)
    assert refused["malformed"] > len(frames)
    assert (refused_from(site, "lisbon") - named)["malformed", device] == refused["malformed"]
    assert (refused_from(site, "lisbon") - named)["bad_topic", device] == len(older)
    assert site.view("lisbon")["present"] == DEVICES


async def test_openings_that_are_none_cost_a_device_nothing(site: System) -> None:
    before = site.refusals("lisbon")
    known = dids(site, "lisbon")
    jid = under_way(site)
    said = rubbish()[:30]
    # One for each device at a time, since it may not open many at once; and not for those of the flood.
    some = [known[name] for name in IDS[10:]]
    async with stranger(site, "lisbon") as somebody:
        for place in range(0, len(said), len(some)):
            turn = [(up(did, "ses"), body) for did, body in zip(some, said[place:], strict=False)]
            await somebody.say(turn)
            counted(site, before, "mqtt", place + len(turn))
    refused = counted(site, before, "mqtt", len(said))
    assert set(refused) == {"malformed", "oversized"}
    assert refused["oversized"] == sum(len(payload) > 2048 for payload in said)
    assert_it_ends_once(site, jid)
    assert site.view("lisbon")["present"] == DEVICES


async def test_whoever_was_not_let_in_is_not_heard_as_himself_or_as_another(site: System) -> None:
    before = site.refusals("lisbon")
    forger = Forger("lisbon")
    known = dids(site, "lisbon")
    jid = under_way(site, 1)
    async with stranger(site, "lisbon") as somebody:
        await somebody.say(
            [
                *[(up(forger.did, "ses"), forger.opening())] * 500,
                (up(known[IDS[1]], "ses"), forger.opening()),
                (up(forger.did), b"\x01\x01" + b"sid of 8" + bytes(24)),
                *[(up(known[IDS[1]], "bye"), forger.bye())] * 500,
                # Nothing is ended by it.
                (up(forger.did, "bye"), forger.bye()),
            ]
        )
    expected = {"unknown_device": 500, "wrong_topic": 501, "unknown_session": 1}
    assert counted(site, before, "mqtt", 1002) == expected
    said = refused_from(site, "lisbon")
    assert said["unknown_device", forger.did] == 500
    assert said["wrong_topic", IDS[1]] == 501
    assert_it_ends_once(site, jid)
    assert site.view("lisbon")["devices"] == DEVICES


@pytest.mark.parametrize(
    "device",
    [
        "a b",
        "..",
        "x" * 129,
        "\u00fcmlaut",
        "$SYS",
        "-",
        "a\u202eb",
        "a%00b",
        "<b>",
        "'; DROP TABLE devices; --",
        IDS[0],
    ],
)
async def test_a_topic_of_no_device_is_refused(site: System, device: str) -> None:
    before = site.refusals("lisbon")
    forger = Forger("lisbon")
    async with stranger(site, "lisbon") as somebody:
        await somebody.say([(up(device), b"\x01" * 50), (up(device, "ses"), forger.opening())])
        await somebody.say([(up(device, "bye"), forger.bye())])
    assert counted(site, before, "mqtt", 3) == {"bad_topic": 3}
    assert site.view("lisbon")["devices"] == DEVICES
    assert any(reason == "bad_topic" for reason, _ in refused_from(site, "lisbon"))


def publish_and_be_thrown_out(system: System, topic: str, payload: bytes) -> None:
    """Say what may make the broker itself end the connection."""
    with socket.create_connection(("127.0.0.1", system.ports["lisbon"]), SECONDS) as connection:
        connection.sendall(encode_connect("another", 60))
        assert connection.recv(4)[0] == CONNACK
        # Either it answers to the ping, and has handled what came before it, or it has hung up.
        with suppress(ConnectionError):
            connection.sendall(encode_publish(topic, payload) + PINGREQ)
            connection.recv(2)


@pytest.mark.parametrize("device", ["a\x01b", "a\x1b[2Jb", "a\x7f"])
def test_control_characters_in_a_topic_come_to_nothing(site: System, device: str) -> None:
    publish_and_be_thrown_out(site, up(device, "ses"), Forger("lisbon").opening())
    assert_exactly_once(site.ended("central", site.issue("central", "*", "test.ping")), IDS)
    assert site.view("lisbon")["devices"] == DEVICES


def test_what_is_larger_than_a_message_may_be_comes_to_nothing(site: System) -> None:
    jid = under_way(site, 1)
    did = dids(site, "lisbon")[IDS[0]]
    for size in (limits.MESSAGE_BYTES + 1, 2 * limits.MESSAGE_BYTES, 8 * 1024 * 1024):
        publish_and_be_thrown_out(site, up(did), b"\1" * size)
    assert_it_ends_once(site, jid)


async def test_devices_refuse_what_no_station_of_theirs_says(site: System) -> None:
    before = refused_by_devices(site)
    known = dids(site, "lisbon")
    jid = under_way(site)
    forger = Forger("lisbon")
    said = [*rubbish()[:60], *of_the_release_before(jid)]
    everybody = [topics.group_job("lisbon"), topics.group_ack("lisbon"), topics.trust("lisbon")]
    alone = [kind("lisbon", known[IDS[2]]) for kind in (topics.device_job, topics.device_sok, topics.device_ep)]
    async with stranger(site, "lisbon") as somebody:
        await somebody.listen("lisbon")
        *_, trust = [payload for topic, payload in await somebody.heard() if topic == topics.trust("lisbon")]
        to_all = [(topic, payload) for topic in everybody for payload in said]
        to_one = [(topic, payload) for topic in alone for payload in said]
        # What concerns the site goes to all, so as to be refused by all of them.
        forged_for_all = forger.to_everybody(trust, JID)
        forged_for_one = [each for name in IDS for each in forger.to_one(known[name], b"sid of 8", jid)]
        await somebody.say([*to_all, *to_one, *forged_for_all, *forged_for_one])
    assert_it_ends_once(site, jid)

    count = DEVICES * (len(to_all) + len(forged_for_all)) + len(to_one) + len(forged_for_one)
    site.until(lambda: (refused_by_devices(site) - before).total() >= count, "all of it is refused")
    refused = refused_by_devices(site) - before
    assert refused.total() == count
    assert refused["unknown_issuer"] == DEVICES * len(forged_for_all) + len(forged_for_one)
    assert refused["malformed"] > DEVICES * len(everybody) * 40
    assert JID not in site.report()["executed"]
    # Nobody has lost his session over it.
    assert_exactly_once(site.ended("central", site.issue("central", "*", "test.ping")), IDS)


async def test_knocking_at_the_door_lets_nobody_in(site: System) -> None:
    before = site.refusals("lisbon")
    said = [*rubbish(), *of_the_release_before(JID)]
    door = topics.enrol_request("lisbon")
    async with stranger(site, "lisbon") as somebody:
        await somebody.say([(door, knock) for knock in said])
        refused = counted(site, before, "enrollment", len(said))
        # Of a flood in the test before, the door may be full.
        assert set(refused) <= {"malformed", "not_canonical", "oversized", "rate"}
        assert refused["oversized"] == sum(len(knock) > 2048 for knock in said)

        async def is_refused_for(reason: str, serial: str | None, token: tuple[bytes, bytes] | None = None) -> bool:
            """Knock once more; whether the door was not full."""
            forger, so_far = Forger("lisbon"), site.refusals("lisbon")
            knock = forger.confirmation() if serial is None else forger.wish_to_join(serial, token)
            await somebody.say([(door, knock)])
            site.until(lambda: site.refusals("lisbon") != so_far, "it is refused")
            now = site.refusals("lisbon") - so_far
            assert {each for _, each in now} <= {reason, "window_closed", "rate"}
            return now["enrollment", reason] == 1

        await until(lambda: is_refused_for("unknown_device", None), 90, "a word on an answer that nobody gave")
        await until(lambda: is_refused_for("window_closed", "a\u202ename"), 90, "a wish to join")
        token = (b"no token", b"and not a secret")
        await until(
            lambda: is_refused_for("token_unknown", "a name", token), 90, "a wish with a token that nobody made"
        )
    assert site.view("lisbon")["devices"] == DEVICES
    assert {key["state"] for key in site.view("lisbon", "/keys?kind=device")["keys"]} == {"accepted"}


async def test_a_flood_on_every_topic_is_survived(site: System) -> None:
    before, counters = site.refusals("lisbon"), site.counters("lisbon")
    known = dids(site, "lisbon")
    jid = under_way(site, 1)
    forger = Forger("lisbon")
    some = [known[name] for name in IDS[3:6]]
    frames = [(up(did), b"\x01\x01" + number.to_bytes(8, "big") + bytes(24)) for number in range(500) for did in some]
    openings = [(up(did, "ses"), forger.opening()) for did in some] * 300
    knocks = [(topics.enrol_request("lisbon"), forger.wish_to_join())] * 2000
    jobs = [(topics.group_job("lisbon"), b"\xc1")] * 1000
    async with stranger(site, "lisbon") as somebody:
        await somebody.say([*frames, *openings, *knocks, *jobs])
    assert_it_ends_once(site, jid)

    refused = counted(site, before, "enrollment", len(knocks))
    assert set(refused) <= {"rate", "busy", "too_often", "window_closed"}

    def by_reason() -> Counter[str]:
        now = site.refusals("lisbon") - before
        return Counter({reason: number for (link, reason), number in now.items() if link == "mqtt"})

    def judged() -> int:
        dropped = (site.counters("lisbon") - counters)["openings_superseded"]
        return by_reason()["wrong_topic"] + by_reason()["too_many_sessions"] + dropped

    site.until(lambda: by_reason()["unknown_session"] >= len(frames), "every frame is refused")
    site.until(lambda: judged() >= len(openings), "every opening is refused, or replaced by a later one")
    assert (by_reason()["unknown_session"], judged()) == (len(frames), len(openings))
    assert by_reason()["too_many_sessions"] > len(openings) / 2
    site.present(DEVICES)
    assert_exactly_once(site.ended("central", site.issue("central", "*", "test.ping")), IDS)
