"""Whatever arrives at a master's port for sites, the sites that belong there work on, and refusals are counted."""

from __future__ import annotations

import random
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from string import ascii_lowercase

import pytest
from msgspec.structs import replace

from device_agent.protocol import limits
from device_agent.protocol.messages import Close, Event, Manifest, OutcomeRecord, encode, encode_value
from device_agent.protocol.outcomes import Outcome
from gateway.jobs.expect import pages
from tests.peers.joined_site import JoinedSite
from tests.peers.ports import EPOCH
from tests.peers.rope import PlayedSite, new_keys, played_site
from tests.peers.system import System, assert_exactly_once, one_site
from upstream import frames
from upstream.curve import CurveKeys
from upstream.story_frames import AskJob, StoryTaken, UnknownJob

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 10
IDS = [f"cam-{number:05d}" for number in range(DEVICES)]
JID = "20200101000000000000"
SEED = 20_260_102
SITES = (f"porto-{letter}" for letter in ascii_lowercase)


@pytest.fixture(scope="module")
def central() -> Iterator[System]:
    with one_site(DEVICES) as system:
        yield system


@asynccontextmanager
async def stranger(central: System, keys: CurveKeys | None = None, *, curve: bool = True) -> AsyncIterator[PlayedSite]:
    master = central.address("central")
    async with played_site(master["address"], master["key"], keys, curve=curve) as site:
        yield site


class Intruder:
    """A site that an operator accepted, and that then says what it likes."""

    def __init__(self, system: System, identity: JoinedSite, line: PlayedSite) -> None:
        self.system = system
        self.identity = identity
        self.name = identity.name
        self.line = line
        self._last = 0
        self._before = system.refusals("central")

    async def send(self, *items: Manifest | OutcomeRecord | Close | Event | bytes) -> Counter[str]:
        """One batch in sequence, and what was refused once the master has confirmed it."""
        bodies = [item if isinstance(item, bytes) else encode(item) for item in items]
        numbered = [(self._last + place, body) for place, body in enumerate(bodies, 1)]
        await self.line.say(frames.Batch(EPOCH, "returns", self._last, numbered))
        self._last = (await self.line.hears(frames.Confirmed)).sequence
        return self.refused()

    async def knows_no_more(self, jid: str) -> None:
        """Be asked for a job's story, and have none; returns when the master has dealt with that."""
        while not any(isinstance(frame, AskJob) and frame.jid == jid for frame in self.line.heard):
            await self.line.hears(AskJob)
        await self.line.say(UnknownJob(jid))
        await self.line.hears(StoryTaken)

    def refused(self) -> Counter[str]:
        counted = self.system.refusals("central") - self._before
        return Counter({reason: count for (_, reason), count in counted.items()})

    def outcome(self, jid: str, device: str, site: str | None = None, **given: object) -> OutcomeRecord:
        fields = {"jid": jid, "site": site or self.name, "id": device, "fun": "test.ping", "ended": 0.0, **given}
        return OutcomeRecord(**{"outcome": Outcome.OK, **fields})  # type: ignore[arg-type] # one test gives each field


@pytest.fixture
async def intruder(central: System) -> AsyncIterator[Intruder]:
    identity = JoinedSite(next(SITES))
    async with stranger(central, identity.curve) as line:
        await line.hello(identity.name, request=identity.request())
        assert (await line.hears(frames.SiteRefused)).state == "pending"
        central.command("keys", "accept", identity.name, status=0)
        await line.hears(frames.SiteWelcome)
        await identity.begin(line)
        yield Intruder(central, identity, line)
    central.command("keys", "reject", identity.name, status=0)


def assert_lisbon_works(central: System) -> None:
    """No accepted site but Lisbon: a job for everybody ends."""
    assert central.site_state("lisbon")
    assert_exactly_once(central.ended("central", central.issue("central", "*", "test.ping")), IDS)


def assert_lisbon_answers(central: System) -> None:
    """The same while an intruder is accepted, who never closes a job."""
    jid = central.issue("central", "*", "test.ping", expires_seconds=600)
    central.until(lambda: central.job("central", jid).counts == {"ok": DEVICES}, "everybody has answered")


async def test_whoever_has_no_keys_or_the_wrong_ones_is_not_heard(central: System) -> None:
    master = central.address("central")
    async with stranger(central, curve=False) as line:
        await line.try_hello()
    async with played_site(master["address"], new_keys().public) as line:
        await line.try_hello()
    assert_lisbon_works(central)


def test_bytes_that_are_not_zeromq_at_all_are_survived(central: System) -> None:
    host, _, port = central.address("central")["address"].removeprefix("tcp://").partition(":")
    randomness = random.Random(SEED)
    greetings = [b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" + b"\0" * 8 + b"\x7f", b"\xff\0\0\0\0\0\0\0\1\x7f\3\0CURVE"]
    for payload in [*greetings, *(randomness.randbytes(randomness.randrange(1, 5000)) for _ in range(50))]:
        with socket.create_connection((host, int(port)), 10) as connection:
            connection.sendall(payload)
    assert_lisbon_works(central)


async def test_a_key_that_nobody_accepted_can_say_hello_and_nothing_else(central: System) -> None:
    before = central.refusals("central")
    async with stranger(central) as line:
        await line.say(b"", b"\xc1", b"\x91" * 1000, b"x" * 40_000, frames.Echo(1))
        await line.say(frames.Batch(EPOCH, "returns", 0, [(1, b"x")]))
        await line.hello("x", protocol=9)
        assert (await line.hears(frames.SiteRefused)).state == "unsupported"
        await line.hello("quarantined")
        assert (await line.hears(frames.SiteRefused)).state == "pending"
        await line.say(frames.Batch(EPOCH, "returns", 0, [(1, b"x")]), frames.Bye(), b"y" * 500_000, frames.Echo(1))
        central.until(lambda: (central.refusals("central") - before)["uplink", "not_accepted"] >= 4, "it is counted")
    counted = central.refusals("central") - before
    assert counted["uplink", "malformed"] + counted["uplink", "wrong_type"] == 3
    assert counted["uplink", "no_hello"] == 2
    assert counted["uplink", "unsupported_protocol"] == 1
    checked = central.command("check", "--json").json("finding")
    assert any("not_accepted, from quarantined@127.0.0.1" in finding["finding"] for finding in checked)
    central.command("keys", "reject", "quarantined", status=0)
    assert_lisbon_works(central)


async def test_a_frame_larger_than_any_ends_the_connection(central: System) -> None:
    async with stranger(central) as line:
        await line.hello("large")
        await line.hears(frames.SiteRefused)
        await line.say(b"x" * (limits.UPLINK_FRAME_BYTES + 1))
        await line.try_hello("large")
    central.command("keys", "reject", "large", status=0)
    assert_lisbon_works(central)


async def test_a_site_name_that_is_none_is_refused(central: System) -> None:
    before = central.refusals("central")
    names = ["", "a/b", "x" * 65, "a\nb", "../lisbon", "lisbon\n", "\x1b[2J"]
    async with stranger(central) as line:
        for name in names:
            await line.hello(name)
        central.until(
            lambda: (central.refusals("central") - before)["uplink", "wrong_type"] == len(names), "all are counted"
        )
    assert {key.site for key in central.stations["central"].keys().keys}.isdisjoint(names)


async def test_many_keys_that_nobody_knows_do_not_keep_a_known_one_out(central: System) -> None:
    before = central.refusals("central")
    async with AsyncExitStack() as crowd:
        for _ in range(4 * limits.PENDING_KEYS_PER_SECOND):
            line = await crowd.enter_async_context(stranger(central))
            await line.hello("crowd")
        central.until(
            lambda: (central.refusals("central") - before)["uplink", "too_many_unknown_keys"] > 0, "some are kept out"
        )
        central.stop("lisbon")
        central.restart("lisbon")
        central.connected("lisbon")
        central.present(DEVICES)
        assert_lisbon_works(central)


async def test_items_that_are_none_are_counted_and_do_not_stop_those_after_them(intruder: Intruder) -> None:
    jid = intruder.system.issue("central", "*", "test.ping", expires_seconds=600)
    await intruder.line.hears(frames.SiteJob)
    (page,) = pages(jid, intruder.name, ["door-1"], 0, final=True)
    refused = await intruder.send(
        b"",
        b"\xc1",
        b"\x91" * 100_000,
        encode(page)[:-3],
        encode(intruder.outcome(jid, "a b")),
        encode(intruder.outcome(jid, "door-1", ended=float("nan"))),
        encode(intruder.outcome(jid, "door-1", value={1: 2})),
        encode(intruder.outcome("1", "door-1")),
        intruder.outcome(JID, "door-1"),
        page,
        intruder.outcome(jid, "door-1"),
        Close(jid=jid, site=intruder.name, counts={"ok": 1}),
    )
    assert refused["malformed"] >= 3
    assert refused["wrong_type"] >= 4
    # It may be the job of another master that this one is to take over: it is asked for.
    await intruder.knows_no_more(JID)
    assert intruder.refused()["unknown_job"] == 1
    assert_exactly_once(intruder.system.ended("central", jid), [*IDS, "door-1"])


async def test_frames_out_of_turn_are_counted(intruder: Intruder) -> None:
    await intruder.line.say(
        frames.Batch(EPOCH, "returns", 3, [(3, b"x")]),
        frames.Batch("f" * 16, "returns", 0, [(1, b"x")]),
        b"\x91" * 1000,
        b"",
    )
    await intruder.line.hears_nothing_before_the_echo()
    await intruder.line.say(
        frames.Batch(EPOCH, "returns", 3, [(4, b"x")]), frames.Batch(EPOCH, "returns", 5, [(6, b"x")])
    )
    await intruder.line.hears(frames.HelloAgain)
    intruder.system.until(
        lambda: set(intruder.refused()) >= {"gap", "out_of_order", "wrong_epoch", "malformed"}, "all are counted"
    )
    assert_lisbon_answers(intruder.system)


async def test_a_site_cannot_speak_for_another(intruder: Intruder) -> None:
    system = intruder.system
    jid = system.issue("central", "*", "test.sleep", 1, expires_seconds=600)
    await intruder.line.hears(frames.SiteJob)
    (page,) = pages(jid, "lisbon", ["cam-00001", "ghost"], 0, final=True)
    refused = await intruder.send(
        page,
        intruder.outcome(jid, "cam-00001", "lisbon", outcome=Outcome.FAILED),
        Close(jid=jid, site="lisbon", counts={"ok": 2}),
        Event(tag="salt/presence/change", data={"lost": IDS}, stamp=0.0, site="lisbon"),
    )
    assert refused["foreign_site"] == 4
    record = frames.DeviceRecord(
        id="cam-00001",
        site="lisbon",
        link="mqtt",
        agent="0",
        grains=b"\x80",
        present=False,
        first_seen=0.0,
        last_seen=0.0,
        revision=1,
    )
    await intruder.line.say(frames.DeviceRecords(EPOCH, [record]))
    await intruder.line.hears(frames.RecordsConfirmed)
    assert intruder.refused()["foreign_site"] == 5
    assert all(device["present"] for device in system.view("central", "/devices?site=lisbon")["devices"])
    system.until(lambda: system.job("central", jid).counts == {"ok": DEVICES}, "everybody has answered for itself")
    outcomes = {outcome.id: outcome for outcome in system.stations["central"].outcomes(jid)}
    assert sorted(outcomes) == IDS


async def test_a_manifest_that_does_not_add_up_is_refused(intruder: Intruder) -> None:
    jid = intruder.system.issue("central", "*", "test.ping", expires_seconds=600)
    await intruder.line.hears(frames.SiteJob)
    page = Manifest(jid=jid, site=intruder.name, ids=["a", "b"], count=3, digest=b"", revision=0, final=True)
    assert (await intruder.send(page))["manifest_mismatch"] == 1
    assert intruder.system.job("central", jid).state == "open"


async def test_a_close_that_leaves_devices_out_gives_them_an_outcome(intruder: Intruder) -> None:
    system = intruder.system
    jid = system.issue("central", "*", "test.ping", expires_seconds=600)
    await intruder.line.hears(frames.SiteJob)
    (page,) = pages(jid, intruder.name, ["door-1", "door-2"], 0, final=True)
    close = Close(jid=jid, site=intruder.name, counts={"ok": 2})
    await intruder.send(page, intruder.outcome(jid, "door-1"), close)
    await intruder.knows_no_more(jid)
    words = system.ended("central", jid).words()
    assert words == {**dict.fromkeys(IDS, "ok"), "door-1": "ok", "door-2": "unknown"}


async def test_outcomes_that_nobody_expects_are_not_counted(intruder: Intruder) -> None:
    system = intruder.system
    jid = system.issue("central", "*", "test.ping", expires_seconds=600)
    await intruder.line.hears(frames.SiteJob)
    (page,) = pages(jid, intruder.name, ["door-1"], 0, final=True)
    await intruder.send(
        page,
        intruder.outcome(jid, "door-1"),
        intruder.outcome(jid, "door-1", outcome=Outcome.FAILED),
        intruder.outcome(jid, "never-announced"),
        Close(jid=jid, site=intruder.name, counts={"ok": 2}),
    )
    await intruder.knows_no_more(jid)
    ended = await intruder.line.speaks_while(lambda: system.ended("central", jid))
    await intruder.send(intruder.outcome(jid, "too-late"), page)
    # Nor does it help to announce somebody when the job has ended.
    await intruder.send(*pages(jid, intruder.name, ["later"], 0, final=True), intruder.outcome(jid, "later"))
    assert_exactly_once(system.ended("central", jid), [*IDS, "door-1"])
    assert ended.job.counts == {"ok": DEVICES + 1}


async def test_a_job_of_another_site_is_none_of_its_business(intruder: Intruder) -> None:
    system = intruder.system
    jid = system.issue("lisbon", "cam-0000[12]", "test.sleep", 1)
    await intruder.line.speaks_while(
        lambda: system.until(
            lambda: known(system, jid) and system.job("central", jid).expected == 2, "the job is known"
        )
    )
    await intruder.send(
        *pages(jid, intruder.name, ["door-1"], 0, final=True),
        intruder.outcome(jid, "door-1"),
        Close(jid=jid, site=intruder.name, counts={}),
    )
    assert_exactly_once(system.ended("central", jid), ["cam-00001", "cam-00002"])


def known(system: System, jid: str) -> bool:
    return any(job.jid == jid for job in system.stations["central"].jobs(50))


async def test_nonsense_about_devices_does_not_break_lists_or_targets(intruder: Intruder) -> None:
    system = intruder.system
    told = frames.DeviceRecord(
        id="door-1",
        site=intruder.name,
        link="",
        agent="\x1b[2J",
        grains=encode_value({"os": [1, {"ü": None}], "deep": [[[[[[1]]]]]], "": {"": ""}}),
        present=True,
        first_seen=-6.1e10,
        last_seen=2.4e11,
        revision=2**63 - 1,
    )
    await intruder.line.say(frames.DeviceRecords(EPOCH, [told]))
    await intruder.line.hears(frames.RecordsConfirmed)
    await intruder.line.speaks_while(lambda: assert_nonsense_is_bearable(system))
    bad = encode_value([1])
    await intruder.line.say(frames.DeviceRecords(EPOCH, [replace(told, grains=bad), told]))
    await intruder.line.hears_nothing_before_the_echo()
    assert intruder.refused()["wrong_type"] == 1


def assert_nonsense_is_bearable(system: System) -> None:
    """Whoever looks at devices sees what is there, and the others are found and answer."""
    listed = system.command("devices", "list", status=0)
    assert "door-1" in listed.out
    assert "\x1b" not in listed.out
    shown = system.command("devices", "show", "door-1", "--json", status=0).json("device")
    assert shown[0]["grains"]["os"] == [1, {"ü": None}]
    found = system.command("devices", "list", "-G", "os:Linux", "--json", status=0).json("device")
    assert sorted(device["id"] for device in found) == IDS
    assert_lisbon_answers(system)


async def test_a_flood_of_batches_is_cut_off_and_the_others_do_not_wait(intruder: Intruder) -> None:
    system = intruder.system
    batch = frames.encode(frames.Batch(EPOCH, "returns", 0, [(number, b"\xc1") for number in range(1, 1001)]))
    await intruder.line.say(*[batch] * 300)
    assert_lisbon_answers(system)
    assert system.view("central")["role"] == "master"
