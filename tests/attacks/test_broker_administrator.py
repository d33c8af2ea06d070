"""Whoever administers the broker, or has hacked it, hears everything and says anything: he reads nothing of what is
sealed, and nothing that he makes up or says again makes a device run anything, forget anything, or belong to the site.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from device_agent.journal_file import FileJournal
from device_agent.protocol import topics
from device_agent.trust.deliveries import JobDelivery, job_delivery, read_delivery
from tests.peers.canaries import found_in
from tests.peers.forgeries import Forger
from tests.peers.hacked_broker import tapped
from tests.peers.tap import Message, Tap, lets_ask, lets_in
from tests.peers.watched_demo import NORTH, ROOF, RUNS, SITE, SWARM, WatchedDemo, watched_demo
from tests.peers.wire_objects import NotOfTheDesign, WireReader

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

JID = "20200101000000000000"
PROOF = re.compile(rb"\xd2\x84.\xa3\x01\x27\x04\x48", re.DOTALL)
"""How every COSE_Sign1 begins, up to the kid of its signer."""

ALL_KINDS = {
    *("os-enr", "os-nay", "accepted", "os-cfm", "os-ses", "os-sok", "os-bye", "os-ep", "bundle"),
    *("os-job", "os-can", "os-ack", "os-tim", "frame up", "frame down"),
}


@pytest.fixture(scope="module")
def demo() -> Iterator[WatchedDemo]:
    with watched_demo() as shown:
        yield shown


# --- what he hears ---------------------------------------------------------------------------------------------------


def test_every_payload_of_the_demo_is_exactly_one_object_of_the_design(demo: WatchedDemo) -> None:
    reader = WireReader(SITE, demo.root)
    for topic, payload in demo.said:
        reader.read(topic, payload)
    assert set(reader.seen) == ALL_KINDS, reader.seen


def test_none_of_them_would_pass_for_another(demo: WatchedDemo) -> None:
    """The reader of the test above would notice: another topic, another site, another byte in what is signed."""
    reader = WireReader(SITE, demo.root)
    for topic, payload in demo.said:
        reader.read(topic, payload)
    for topic, payload in demo.said:
        for other in others_than(topic, demo):
            with pytest.raises(NotOfTheDesign):
                reader.read(other, payload)
        for proof in PROOF.finditer(payload):
            kid = proof.end()
            with pytest.raises(NotOfTheDesign):
                reader.read(topic, payload[:kid] + bytes((payload[kid] ^ 1,)) + payload[kid + 1 :])
            last = kid + 64
            with pytest.raises(NotOfTheDesign):
                reader.read(topic, payload[:last] + bytes((payload[last] ^ 1,)) + payload[last + 1 :])


def others_than(topic: str, demo: WatchedDemo) -> list[str]:
    """A topic of each kind on which this one does not stand; a job may go to one device and to all."""
    [north, roof] = (demo.identity(name).did for name in (NORTH, ROOF))
    did = next((level for level in topic.split("/") if len(level) == len(north)), north)
    kinds = ["enr/req", f"enr/rsp/{did}", "trust", "g/all/ack", f"d/{did}/sok", f"d/{did}/ep"]
    kinds += [f"d/{did}/up/{kind}" for kind in ("ses", "f", "bye", "else")]
    kinds += [] if topic.endswith("/job") else [f"d/{did}/job", "g/all/job"]
    kinds += [f"d/{north if did == roof else roof}/{kind}" for kind in ("up/ses", "up/bye", "sok", "ep")]
    return [f"os/porto/{topic.removeprefix(f'os/{SITE}/')}"] + [
        f"os/{SITE}/{kind}" for kind in kinds if f"os/{SITE}/{kind}" != topic
    ]


def test_nothing_secret_stands_in_a_payload_a_topic_a_retained_message_or_a_file_of_the_broker(
    demo: WatchedDemo,
) -> None:
    with tapped(demo.door, "#", "$SYS/#") as late:
        retained = late.heard()
    assert topics.trust(SITE) in {topic for topic, _ in retained}
    for topic, payload in [*demo.said, *retained]:
        assert found_in(demo.secrets, topic.encode() + b"\n" + payload) == [], topic
    files = broker_files(demo)
    assert {"devices.passwords", "mosquitto.conf.hacked"} <= {file.name for file in files}
    for file in files:
        assert found_in(demo.secrets, file.read_bytes()) == [], file.name


def broker_files(demo: WatchedDemo) -> list[Path]:
    """The files of the broker's folder, and those that its process has open."""
    broker = demo.system.stations[SITE].station().broker or {}
    open_files = [Path(entry).resolve() for entry in Path(f"/proc/{broker['pid']}/fd").iterdir() if entry.exists()]
    [folder] = demo.system.temporary().glob("outstation-broker-*")
    return [file for file in (*folder.rglob("*"), *open_files) if file.is_file()]


def test_the_credentials_of_one_agent_open_nothing_of_another(demo: WatchedDemo) -> None:
    port = demo.system.ports[SITE]
    north, roof = demo.identity(NORTH), demo.identity(ROOF)
    theirs = [topics.device_job(SITE, north.did), topics.device_sok(SITE, north.did), topics.device_ep(SITE, north.did)]
    spoken = [topics.device_up(SITE, north.did, kind) for kind in ("f", "ses", "bye")]
    everything = ["#", f"os/{SITE}/#", f"os/{SITE}/d/+/job", f"os/{SITE}/d/+/up/+", f"os/{SITE}/enr/#"]
    with Tap(port, *theirs, *spoken, *everything, username=roof.did, password=roof.password) as other:
        demo.run(NORTH, "test.echo", "for the north door")
        heard = other.heard()
        assert other.inside
    assert {topic for topic, _ in demo.tap.heard() if north.did in topic} >= {theirs[0], spoken[0]}
    assert not [topic for topic, _ in heard if north.did in topic or "/up/" in topic or "/enr/" in topic]
    forbidden = [*theirs, *spoken, topics.group_job(SITE), topics.group_ack(SITE), topics.trust(SITE)]
    for topic in [*forbidden, topics.enrol_request(SITE), topics.device_job(SITE, roof.did)]:
        # One connection for each: the broker ends one that says what it may not.
        for retain in (False, True):
            with Tap(port, username=roof.did, password=roof.password) as other:
                other.try_to_say(topic, b"of another", retain=retain)
    own = (topics.device_up(SITE, roof.did, "f"), b"of its own")
    with Tap(port, username=roof.did, password=roof.password) as other:
        other.say([own])
    said = [message for message in demo.tap.heard() if message[1] in {b"of another", b"of its own"}]
    assert said == [own]
    demo.works_on()


# --- what he makes up ------------------------------------------------------------------------------------------------


def test_what_he_makes_up_runs_nowhere_and_lets_nobody_in(demo: WatchedDemo) -> None:
    forger, known, lines = Forger(SITE), demo.keys(), demo.marks.read_text()
    trust = retained_now(demo)
    before = demo.system.report()["refused"]
    made = forger.to_everybody(trust, JID)
    for did in demo.dids():
        sid = newest(demo.said, topics.device_up(SITE, did, "f"))[2:10]
        made += forger.to_one(did, sid, JID)
        made += [
            (topics.device_up(SITE, did, "ses"), forger.opening()),
            (topics.device_up(SITE, did, "bye"), forger.bye()),
        ]
        made.append((topics.enrol_response(SITE, did), b"\x82\x41x\x40"))
    made += [(topics.device_up(SITE, forger.did, kind), body) for kind, body in own_words(forger)]
    made += [(topics.enrol_request(SITE), forger.wish_to_join()), (topics.enrol_request(SITE), forger.confirmation())]
    made += [(topic, promising(delivery)) for topic, delivery in jobs_in(demo.said)]
    demo.tap.say(made)
    demo.tap.say([(topics.trust(SITE), made[3][1])], retain=True)
    demo.tap.say([(topics.trust(SITE), trust)], retain=True)
    demo.works_on()
    report = demo.system.report()
    assert JID not in report["executed"]
    assert {count["most"] for count in report["executed"].values()} == {1}
    assert report["refused"]["unknown_issuer"] >= before.get("unknown_issuer", 0) + SWARM * len(made[:4])
    assert demo.marks.read_text() == lines == "ran\n" * RUNS
    assert demo.keys() == known
    for station in ("central", SITE):
        assert demo.system.ask(station, "GET", f"/jobs/{JID}")[0] == 404


def own_words(forger: Forger) -> list[tuple[str, bytes]]:
    """What a device would say that nobody let in."""
    return [("ses", forger.opening()), ("bye", forger.bye()), ("f", b"\1\1" + bytes(60))]


def jobs_in(said: list[Message]) -> list[tuple[str, JobDelivery]]:
    """The jobs that were delivered, with their topics."""
    found = []
    for topic, payload in said:
        if topic.endswith("/job") and payload[:1] != b"\1":
            delivery = read_delivery(payload)
            if isinstance(delivery, JobDelivery):
                found.append((topic, delivery))
    assert found
    return found


def promising(delivery: JobDelivery) -> bytes:
    """The same job with hints of his own: for everybody, and for a long time yet."""
    return job_delivery(delivery.job, 86_400.0, None if delivery.bitmap is None else b"\xff" * 64)


# --- what he says again ----------------------------------------------------------------------------------------------


def test_whatever_is_said_again_on_whatever_topic_runs_nothing_twice_and_lets_nobody_in(demo: WatchedDemo) -> None:
    known, lines = demo.keys(), demo.marks.read_text()
    counts = {ended.job.jid: ended.job.counts for ended in demo.ended}
    payloads = list(dict.fromkeys(payload for _, payload in demo.said))
    places = {topic for topic, _ in demo.said} | {
        f"os/{SITE}/d/{did}/{channel}"
        for did in demo.dids()
        for channel in ("job", "sok", "ep", "up/ses", "up/f", "up/bye")
    }
    trust = retained_now(demo)
    openings = [message for message in demo.said if message[0].endswith("/ses")]
    demo.tap.say(openings)
    demo.system.until(
        lambda: demo.system.refusals(SITE)["mqtt", "replayed"] >= len(demo.alive), "no opening is taken twice"
    )
    said = demo.tap.say((topic, payload) for topic in sorted(places) for payload in payloads)
    assert said == len(payloads) * len(places) > 1000
    demo.tap.say([(topics.trust(SITE), trust)], retain=True)
    demo.works_on()
    report = demo.system.report()
    assert set(counts) & set(report["executed"])
    assert {count["most"] for count in report["executed"].values()} == {1}
    assert demo.marks.read_text() == lines == "ran\n" * RUNS
    assert {jid: demo.system.job("central", jid).counts for jid in counts} == counts
    assert demo.keys() == known
    assert demo.system.refusals(SITE)["mqtt", "malformed"]


def test_a_return_that_only_the_device_has_stays_there_whatever_the_broker_says(
    demo: WatchedDemo, tmp_path: Path
) -> None:
    """He stops the station's ears, loses what the device returned, and says that it has arrived."""
    system, go = demo.system, demo.system.folder / "go"
    go.unlink(missing_ok=True)
    command = f"while [ ! -e {go} ]; do sleep 0.05; done; echo ran >> {tmp_path / 'marks'}"
    jid = system.issue("central", NORTH, "cmd.run", command)
    system.until(lambda: system.waiting(SITE, jid) == {"running": 1}, "the job runs")
    station = system.children[SITE].process.pid
    did, forger = demo.identity(NORTH).did, Forger(SITE)
    os.kill(station, signal.SIGSTOP)
    try:
        assert lets_in(demo.door, client_id=station_client(demo))
        go.touch()
        journal = system.folder / NORTH / "journal"
        system.until(lambda: only_there(journal, tmp_path, jid), "the return is in the device's outbox")
        said = demo.tap.heard()
        returned = newest(said, topics.device_up(SITE, did, "f"))
        acks = [payload for topic, payload in said if topic == topics.group_ack(SITE)]
        assert acks
        # Not the job itself: a device that is told again answers again, whether or not that was confirmed.
        frames = [payload for topic, payload in said if topic == topics.device_job(SITE, did) and payload[:1] == b"\1"]
        demo.tap.say(
            [
                *forger.to_everybody(retained_now(demo), jid)[:3],
                *forger.to_one(did, returned[2:10], jid),
                *((topics.group_ack(SITE), payload) for payload in acks),
                *((topics.device_job(SITE, did), payload) for payload in (*frames, *acks)),
            ]
        )
        again = (topics.device_up(SITE, did, "f"), len(returned))
        before = len(demo.tap.heard())
        system.until(
            lambda: again in [(topic, len(payload)) for topic, payload in demo.tap.heard()[before:]],
            "the device says it again by itself",
        )
    finally:
        os.kill(station, signal.SIGCONT)
    [outcome] = system.ended("central", jid).outcomes
    assert (outcome.outcome, outcome.executions) == ("ok", 1)
    assert (tmp_path / "marks").read_text() == "ran\n"
    demo.works_on()


def station_client(demo: WatchedDemo) -> str:
    """The client id of the station, which stands in a file of the broker; whoever takes it throws the station out."""
    [file] = demo.system.temporary().glob("outstation-broker-*/station.passwords")
    return next(line.partition(":")[0] for line in file.read_text().splitlines() if line.startswith("station-"))


def only_there(journal: Path, folder: Path, jid: str) -> bool:
    """Whether a device's journal holds the return of a job that nobody has confirmed."""
    copy = folder / "journal"
    shutil.copy(journal, copy)

    async def look() -> bool:
        opened = FileJournal(copy)
        found = await opened.open()
        await opened.close()
        return jid in opened.unconfirmed() and jid not in found.interrupted

    return asyncio.run(look())


def test_nobody_comes_in_with_what_everybody_knows(demo: WatchedDemo) -> None:
    """The user for joining is of use at its own door alone, and that is shut when nobody is expected."""
    broker = demo.system.stations[SITE].station().broker or {}
    for port in (broker["port"], broker["enroll_port"]):
        assert not lets_ask(port)
        assert not lets_in(port)


def retained_now(demo: WatchedDemo) -> bytes:
    """What the site says of itself, and the broker keeps for who comes later."""
    with tapped(demo.door, topics.trust(SITE)) as late:
        return newest(late.heard(), topics.trust(SITE))


def newest(said: list[Message], topic: str) -> bytes:
    """What was said last on a topic."""
    return next(payload for heard, payload in reversed(said) if heard == topic)
