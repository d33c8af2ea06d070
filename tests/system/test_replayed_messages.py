"""What was said at a site's broker and is said again, there or elsewhere, as it was or bent, changes nothing."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from device_agent.protocol import bitmap, topics
from device_agent.trust.deliveries import JobDelivery, job_delivery, read_delivery
from device_agent.trust.join import is_confirm
from tests.peers.stranger import Message, Stranger, dids, refused_by_devices, refused_from, stranger
from tests.peers.system import System, assert_exactly_once, assert_executed_once, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES, LATE = 10, 5
IDS = [f"cam-{number:05d}" for number in range(DEVICES)]
REPLAYS = 5
FRAME = b"\x01"
COUNTER = slice(10, 18)


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


def refused(site: System, before: Counter[tuple[str, str]], link: str) -> Counter[str]:
    """What the gateway refused since, by reason."""
    later = site.refusals("lisbon") - before
    return Counter({reason: number for (where, reason), number in later.items() if where == link})


def since(site: System, before: Counter[str]) -> Counter[str]:
    """What the gateway counted since."""
    return site.counters("lisbon") - before


def ending(messages: list[Message], kind: str) -> list[bytes]:
    """The payloads on topics that end like this."""
    return [payload for topic, payload in messages if topic.endswith(kind)]


def is_frame(payload: bytes) -> bool:
    return payload[:1] == FRAME


async def whole_lives(site: System, somebody: Stranger) -> tuple[str, list[Message]]:
    """All that is said while devices join, work and die beside others that stay; the job that they did."""
    await somebody.listen("lisbon")
    late = site.add_swarm(LATE, "lisbon", prefix="late-", name="late")
    site.present(DEVICES + LATE)
    jid = site.issue("central", "*-000*", "test.ping")
    assert_exactly_once(site.ended("central", jid), [*IDS, *late])
    assert_executed_once(site.report("late"), jid, LATE)
    assert site.stop("late", signal.SIGKILL) == -signal.SIGKILL
    site.present(DEVICES)
    return jid, await somebody.heard()


async def test_whole_lives_that_are_said_again_change_nothing(site: System) -> None:
    async with stranger(site, "lisbon") as somebody:
        jid, heard = await whole_lives(site, somebody)
        here = [did for name, did in dids(site, "lisbon").items() if name in IDS]
        before, counters = site.refusals("lisbon"), site.counters("lisbon")
        devices, repeats = refused_by_devices(site), site.report()["repeats_answered_from_journal"]
        for _ in range(REPLAYS):
            await somebody.say(heard)

    def judged() -> int:
        counted = refused(site, before, "mqtt")
        return counted["replayed"] + counted["too_many_sessions"] + since(site, counters)["openings_superseded"]

    # Devices of that time are not here, and nobody speaks in their place.
    of_those_here = [(topic, payload) for topic, payload in heard if any(did in topic for did in here)]
    gone = [message for message in heard if message not in of_those_here]
    replayed, unknown = (REPLAYS * len(ending(some, "/up/f")) for some in (of_those_here, gone))
    openings, wills = (REPLAYS * len(ending(gone, kind)) for kind in ("/up/ses", "/up/bye"))
    assert replayed > 0
    assert unknown > 0
    assert openings >= REPLAYS * LATE
    assert wills == REPLAYS * LATE
    # The last will was the last word of each.
    site.until(lambda: since(site, counters)["mqtt_late_wills"] == wills, "last wills end nothing")
    counted, passed = refused(site, before, "mqtt"), since(site, counters)
    assert counted["replayed_frame"] == replayed
    # While an opening waits to be judged, its frames are early and not unknown.
    assert counted["unknown_session"] + passed["mqtt_early_frames"] == unknown
    site.until(lambda: judged() == openings, "every opening is refused")
    assert refused(site, before, "mqtt")["replayed"] >= LATE
    assert any(reason == "replayed_frame" and name in IDS for reason, name in refused_from(site, "lisbon"))

    asked = ending(heard, "/enr/req")
    words = REPLAYS * sum(is_confirm(payload) for payload in asked)
    site.until(lambda: refused(site, before, "enrollment").total() == REPLAYS * len(asked), "nobody joins again")
    doors = refused(site, before, "enrollment")
    assert words >= REPLAYS * LATE
    assert doors["not_asked"] == words
    assert doors["replayed"] + doors["too_often"] == REPLAYS * len(asked) - words

    frames = sum(is_frame(payload) for topic, payload in of_those_here if topic.endswith("/job"))
    jobs = sum(type(read_delivery(payload)) is JobDelivery for payload in ending(heard, "/all/job"))
    site.until(
        lambda: site.report()["repeats_answered_from_journal"] - repeats >= REPLAYS * jobs * DEVICES,
        "the repeats are answered",
    )
    assert jobs > 0
    assert refused_by_devices(site) - devices == Counter({"replayed_frame": REPLAYS * frames} if frames else {})
    assert_executed_once(site.report(), jid, DEVICES)
    ended = site.ended("central", jid)
    assert (ended.job.expected, ended.job.counts) == (DEVICES + LATE, {"ok": DEVICES + LATE})
    assert len(ended.by_device()) == DEVICES + LATE
    assert site.view("lisbon")["present"] == DEVICES
    again = site.issue("central", "cam-*", "test.ping")
    assert_exactly_once(site.ended("central", again), IDS)


async def test_frames_that_are_bent_or_said_elsewhere_are_refused(site: System) -> None:
    known = dids(site, "lisbon")
    device, other = known[IDS[1]], known[IDS[2]]
    async with stranger(site, "lisbon") as somebody:
        await somebody.listen("lisbon")
        jid = site.issue("central", IDS[1], "test.ping")
        site.ended("central", jid)
        said = await somebody.hears("/up/f", is_frame, about=device)
        told = await somebody.hears("/job", is_frame, about=device)
        later = (2**31).to_bytes(8, "big")
        before, devices = site.refusals("lisbon"), refused_by_devices(site)
        topic = topics.device_up("lisbon", device, "f")
        await somebody.say(
            [
                (topic, said),
                (topic, said[: COUNTER.start] + later + said[COUNTER.stop :]),
                (topic, said[:-1] + bytes([said[-1] ^ 1])),
                (topic, said[:2] + bytes(8) + said[COUNTER.start :]),
                (topic, told),
                (topics.device_up("lisbon", other, "f"), said),
                (topics.device_job("lisbon", device), told),
                (topics.device_job("lisbon", device), told[: COUNTER.start] + later + told[COUNTER.stop :]),
                (topics.device_job("lisbon", device), said),
                (topics.device_job("lisbon", other), told),
            ]
        )
    site.until(lambda: refused(site, before, "mqtt").total() >= 6, "the gateway has refused them")
    assert refused(site, before, "mqtt") == {
        "replayed_frame": 2,
        "bad_frame": 1,
        "unknown_session": 1,
        "wrong_direction": 1,
        "wrong_topic": 1,
    }
    # The call for a session that is not known concerns none that this device has.
    wanted = {"replayed_frame": 1, "bad_frame": 1, "wrong_direction": 1, "unknown_session": 2}
    site.until(lambda: (refused_by_devices(site) - devices).total() >= 5, "the devices have refused them")
    assert refused_by_devices(site) - devices == wanted
    assert_exactly_once(site.ended("central", site.issue("central", "cam-*", "test.ping")), IDS)


async def test_a_job_for_some_is_not_run_by_others_whoever_gives_it_to_them(site: System) -> None:
    known = dids(site, "lisbon")
    some = IDS[:7]
    async with stranger(site, "lisbon") as somebody:
        await somebody.listen("lisbon")
        jids = {}
        for tgt, given in (("cam-0000[0-6]", {}), (IDS[1], {"sealed": True})):
            jids[tgt] = site.issue("central", tgt, "test.ping", **given)
            site.ended("central", jids[tgt])
        heard = await somebody.heard()
        # Whoever was slow to answer was given it again.
        group, *_ = [read_delivery(payload) for payload in ending(heard, "/all/job")]
        single, *_ = [
            read_delivery(payload)
            for topic, payload in heard
            if topic == topics.device_job("lisbon", known[IDS[1]]) and not is_frame(payload)
        ]
        assert isinstance(group, JobDelivery)
        assert isinstance(single, JobDelivery)
        before, devices = site.refusals("lisbon"), refused_by_devices(site)
        bent = bytearray(group.job)
        bent[-1] ^= 1
        await somebody.say(
            [
                # Each hint of this is a lie, and the signature says whom it is for.
                (topics.group_job("lisbon"), job_delivery(group.job, 86_400.0, bitmap.pack(range(100)))),
                (topics.device_job("lisbon", known[IDS[2]]), job_delivery(single.job, 300.0, None)),
                (topics.device_job("lisbon", known[IDS[3]]), job_delivery(bytes(bent), 300.0, None)),
            ]
        )
    # Who is not meant says so, since a signature that holds asked it; nobody waits for that answer.
    others = DEVICES - len(some)
    site.until(lambda: refused(site, before, "mqtt")["unexpected_return"] == others, "the others have refused it")
    assert refused(site, before, "mqtt") == {"unexpected_return": others}
    assert refused_by_devices(site) - devices == {"not_for_us": 1, "bad_signature": 1}
    report = site.report()
    assert_executed_once(report, jids["cam-0000[0-6]"], len(some))
    assert_executed_once(report, jids[IDS[1]], 1)
    assert_exactly_once(site.ended("central", jids["cam-0000[0-6]"]), some)


async def test_the_last_will_of_a_connection_before_does_not_end_the_present_one(site: System) -> None:
    site.add_agent("door-1", "lisbon")
    site.until(lambda: site.is_here("door-1"), "it is here")
    did = dids(site, "lisbon")["door-1"]
    async with stranger(site, "lisbon") as somebody:
        await somebody.listen("lisbon")
        site.kill("door-1")
        site.until(lambda: not site.is_here("door-1"), "it has left")
        (will,) = ending(await somebody.heard(), f"{did}/up/bye")
        site.add_agent("door-1", "lisbon")
        site.until(lambda: site.is_here("door-1"), "it is here again")
        counters = site.counters("lisbon")
        await somebody.say([(topics.device_up("lisbon", did, "bye"), will)] * REPLAYS)
    site.until(lambda: since(site, counters)["mqtt_late_wills"] == REPLAYS, "all are counted")
    assert site.is_here("door-1", "lisbon")
    assert_exactly_once(site.ended("central", site.issue("central", "door-1", "test.ping")), ["door-1"])
    assert site.stop("door-1") == 0
    site.present(DEVICES)
