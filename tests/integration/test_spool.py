"""The spool, the inbox and the recovery: what goes up, what comes up, and what a restart makes of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from device_agent.protocol import limits
from device_agent.protocol.messages import (
    Close,
    Event,
    Item,
    JobDefinition,
    Manifest,
    OutcomeRecord,
    decode_value,
    encode,
    encode_value,
)
from device_agent.protocol.outcomes import Outcome, State
from gateway.jobs.expect import pages
from gateway.jobs.open_jobs import BranchState, OpenJob
from gateway.rooms import Rooms
from tests.peers.clock import STARTED_WALL, HandClock
from tests.peers.database import FIRST_JID, a_job, encoded, look, opened_rooms, spooled
from upstream.frames import DeviceRecord

EPOCH, OTHER_EPOCH = "0123456789abcdef", "fedcba9876543210"
JID = str(FIRST_JID)


def an_event(number: int, size: int = 0) -> Event:
    return Event(tag=f"test/{number}", data={"x": "y" * size}, stamp=1.0, site="lisbon")


# --- the spool -------------------------------------------------------------------------------------------------------


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Rooms]:
    async with opened_rooms(tmp_path, masters=True) as rooms:
        yield rooms


async def spool(rooms: Rooms, *items: Item) -> None:
    await rooms.writer.commit(rooms.spool.adding(items))
    rooms.spool.added()


async def test_what_is_added_is_read_in_order_until_it_is_confirmed(gateway: Rooms) -> None:
    await spool(gateway, *(an_event(number) for number in range(5)))
    assert [sequence for sequence, _ in await gateway.spool.read(0)] == [1, 2, 3, 4, 5]
    assert [sequence for sequence, _ in await gateway.spool.read(3)] == [4, 5]
    await gateway.spool.confirm(3)
    assert [sequence for sequence, _ in await gateway.spool.read(0)] == [4, 5]
    assert await gateway.spool.pending() == 2
    await gateway.spool.confirm(3)
    await gateway.spool.confirm(5)
    assert (await gateway.spool.read(0), await gateway.spool.pending()) == ([], 0)


async def test_items_come_back_as_they_were(gateway: Rooms) -> None:
    items: list[Item] = [
        an_event(1),
        *pages(JID, "lisbon", ["a", "b"], 3, final=True),
        OutcomeRecord(jid=JID, site="lisbon", id="a", fun="f.f", outcome=Outcome.OK, value={"x": [1]}, ended=2.0),
        JobDefinition(encode(a_job()), "lisbon"),
        Close(jid=JID, site="lisbon", counts={"ok": 1}),
    ]
    await spool(gateway, *items)
    assert await spooled(gateway) == items
    kinds = look(gateway.writer._path, "SELECT kind FROM spool ORDER BY sequence")
    assert [kind for (kind,) in kinds] == ["event", "manifest", "outcomerecord", "jobdefinition", "close"]


async def test_a_batch_is_bounded_by_its_count(gateway: Rooms) -> None:
    await spool(gateway, *(an_event(number) for number in range(limits.BATCH_ITEMS + 3)))
    first = await gateway.spool.read(0)
    assert len(first) == limits.BATCH_ITEMS
    assert len(await gateway.spool.read(first[-1][0])) == 3


async def test_a_batch_is_bounded_by_its_bytes(gateway: Rooms) -> None:
    await spool(gateway, *(an_event(number, limits.BATCH_BYTES // 3) for number in range(5)))
    first = await gateway.spool.read(0)
    assert [sequence for sequence, _ in first] == [1, 2]
    assert sum(len(body) for _, body in first) <= limits.BATCH_BYTES
    assert [sequence for sequence, _ in await gateway.spool.read(2)] == [3, 4]


async def test_an_item_larger_than_a_batch_goes_alone(gateway: Rooms) -> None:
    await spool(gateway, an_event(1), an_event(2, limits.BATCH_BYTES), an_event(3))
    assert [sequence for sequence, _ in await gateway.spool.read(0)] == [1]
    assert [sequence for sequence, _ in await gateway.spool.read(1)] == [2]


async def test_no_sequence_is_ever_given_again(tmp_path: Path) -> None:
    epochs = set()
    for start in (1, 4, 7):
        async with opened_rooms(tmp_path, masters=True) as rooms:
            epochs.add(rooms.spool.epoch)
            await spool(rooms, *(an_event(number) for number in range(3)))
            assert [sequence for sequence, _ in await rooms.spool.read(0)] == [start, start + 1, start + 2]
            await rooms.spool.confirm(start + 2)
    assert len(epochs) == 1


async def test_what_waits_survives_a_restart(tmp_path: Path) -> None:
    async with opened_rooms(tmp_path, masters=True) as rooms:
        await spool(rooms, an_event(1), an_event(2))
        await rooms.spool.confirm(1)
    async with opened_rooms(tmp_path, masters=True) as rooms:
        assert await rooms.spool.read(0) == encoded(an_event(2), first=2)


async def test_whoever_sends_is_woken(gateway: Rooms) -> None:
    gateway.spool.changed.clear()
    await spool(gateway, an_event(1))
    assert gateway.spool.changed.is_set()


async def test_a_station_without_masters_keeps_nothing_for_them(tmp_path: Path) -> None:
    async with opened_rooms(tmp_path) as rooms:
        await spool(rooms, an_event(1))
        assert rooms.spool.adding_encoded([("event", b"x")]) == []
        assert await rooms.spool.pending() == 0


# --- the inbox -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def a_master(
    folder: Path, *sites: str, clock: HandClock | None = None, masters: bool = False
) -> AsyncIterator[Rooms]:
    """The rooms of a master that has accepted these sites, by keys that no test looks at."""
    async with opened_rooms(folder, name="central", clock=clock or HandClock(), masters=masters) as rooms:
        for number, site in enumerate(sites):
            key = f"{number:040d}"
            if not rooms.enrollment.known(key):
                await rooms.enrollment.judge(site, key, "192.0.2.1")
                await rooms.enrollment.accept(site, None)
        yield rooms


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Rooms]:
    async with a_master(tmp_path, "lisbon", "madrid") as rooms:
        yield rooms


async def issued(rooms: Rooms, **changed: Any) -> OpenJob:
    """A job of this station's own that its sites have been sent."""
    request = {"tgt": "*", "fun": "test.ping", **changed}
    from gateway.jobs.accept import JobRequest

    jid = await rooms.acceptance.submit(JobRequest(**request), "ops")
    opened = rooms.open_jobs.get(jid)
    assert opened is not None
    return opened


def record(jid: str, device: str, outcome: Outcome = Outcome.OK, **changed: Any) -> OutcomeRecord:
    given: dict[str, Any] = {"site": "lisbon", "fun": "test.ping", "ended": STARTED_WALL, **changed}
    return OutcomeRecord(jid=jid, id=device, outcome=outcome, **given)


def answer(jid: str, *devices: str, site: str = "lisbon") -> list[Item]:
    """All that a site says of a job that is ok everywhere."""
    return [
        *pages(jid, site, list(devices), 1, final=True),
        *(record(jid, device, site=site) for device in devices),
        Close(jid=jid, site=site, counts={"ok": len(devices)}),
    ]


def outcomes(rooms: Rooms, jid: str) -> dict[tuple[str, str], str]:
    """The outcomes on disk by site and device."""
    rows = look(rooms.writer._path, "SELECT site, device, outcome FROM outcomes WHERE jid = ?", jid)
    found = {(site, device): outcome for site, device, outcome in rows}
    assert len(found) == len(rows)
    return found


async def test_the_answers_of_every_site_close_a_job(master: Rooms) -> None:
    opened = await issued(master)
    jid = opened.job.jid
    await master.inbox.commit("lisbon", EPOCH, encoded(*answer(jid, "a", "b")))
    assert master.open_jobs.get(jid) is opened
    await master.inbox.commit("madrid", EPOCH, encoded(*answer(jid, "a", site="madrid")))
    assert opened.all_ended
    assert master.open_jobs.get(jid) is None
    assert (opened.expected, dict(opened.counts)) == (3, {"ok": 3})
    assert outcomes(master, jid) == {("lisbon", "a"): "ok", ("lisbon", "b"): "ok", ("madrid", "a"): "ok"}
    view = await master.views.one(jid)
    assert (view["state"], view["expected"], view["counts"]) == ("closed", 3, {"ok": 3})


async def test_the_position_is_on_disk_with_what_it_stands_for(tmp_path: Path) -> None:
    async with a_master(tmp_path, "lisbon") as rooms:
        assert await rooms.inbox.position("lisbon", EPOCH) == (0, 0)
        await rooms.inbox.commit("lisbon", EPOCH, encoded(an_event(1), an_event(2), first=7))
        assert await rooms.inbox.position("lisbon", EPOCH) == (8, 0)
    async with a_master(tmp_path, "lisbon") as rooms:
        assert await rooms.inbox.position("lisbon", EPOCH) == (8, 0)
        # Another store has its own numbers.
        assert await rooms.inbox.position("lisbon", OTHER_EPOCH) == (0, 0)
        assert await rooms.inbox.position("madrid", EPOCH) == (0, 0)


async def test_the_same_outcome_twice_is_one(master: Rooms) -> None:
    opened = await issued(master)
    jid = opened.job.jid
    await master.inbox.commit("lisbon", EPOCH, encoded(*answer(jid, "a", "b")))
    counts, rows = dict(opened.counts), outcomes(master, jid)
    # A site that lost its store and found a backup says it all again, under other numbers.
    await master.inbox.commit("lisbon", OTHER_EPOCH, encoded(*answer(jid, "a", "b"), first=100))
    await master.inbox.commit("lisbon", OTHER_EPOCH, encoded(record(jid, "a", Outcome.FAILED), first=200))
    assert (dict(opened.counts), outcomes(master, jid)) == (counts, rows)


async def test_a_page_that_is_repeated_expects_nobody_twice(master: Rooms) -> None:
    opened = await issued(master)
    jid = opened.job.jid
    (page,) = pages(jid, "lisbon", ["a", "b"], 1, final=True)
    await master.inbox.commit("lisbon", EPOCH, encoded(page))
    await master.inbox.commit("lisbon", OTHER_EPOCH, encoded(page))
    assert opened.expected == 2
    assert opened.branches["lisbon"].awaiting == {("lisbon", "a"), ("lisbon", "b")}


async def test_a_site_may_not_speak_for_another(master: Rooms) -> None:
    opened = await issued(master)
    jid = opened.job.jid
    await master.inbox.commit("madrid", EPOCH, encoded(*answer(jid, "m", site="madrid")))
    (page,) = pages(jid, "madrid", ["x"], 1, final=True)
    before = outcomes(master, jid)
    await master.inbox.commit_records("madrid", EPOCH, [a_record("m", "madrid", 1)])
    last = await master.inbox.commit(
        "lisbon",
        EPOCH,
        encoded(
            page,
            record(jid, "m", Outcome.FAILED, site="madrid"),
            record(jid, "n", Outcome.FAILED, site="madrid"),
            Close(jid=jid, site="madrid", counts={}),
        ),
    )
    assert master.metrics.refusals["uplink", "foreign_site"] == 4
    assert outcomes(master, jid) == before
    # What can never be acceptable does not hold up what follows.
    assert last == 4
    assert opened.branches["lisbon"].state is not BranchState.CLOSED


async def test_a_site_may_not_take_the_name_of_one_that_is_accepted_and_has_not_spoken_yet(master: Rooms) -> None:
    opened = await issued(master)
    jid = opened.job.jid
    await master.inbox.commit("lisbon", EPOCH, encoded(record(jid, "m", Outcome.FAILED, site="madrid")))
    await master.inbox.commit_records("lisbon", EPOCH, [a_record("m", "madrid", 1, link="lisbon")])
    assert outcomes(master, jid) == {}
    await master.inbox.commit_records("madrid", EPOCH, [a_record("m", "madrid", 1)])
    await master.inbox.commit("madrid", EPOCH, encoded(*answer(jid, "m", site="madrid")))
    assert outcomes(master, jid) == {("madrid", "m"): "ok"}
    assert [device.id for device in master.registry.below("madrid")] == ["m"]


async def test_an_event_of_another_site_is_refused(master: Rooms) -> None:
    foreign = msgspec.structs.replace(an_event(1), site="madrid")
    await master.inbox.commit("lisbon", EPOCH, encoded(foreign, an_event(2)))
    assert master.metrics.refusals["uplink", "foreign_site"] == 1
    assert [event.tag for event in await master.bus.history("test/*", 9)] == ["test/2"]


async def test_a_site_may_not_speak_for_its_master(master: Rooms) -> None:
    opened = await issued(master)
    await master.inbox.commit("lisbon", EPOCH, encoded(record(opened.job.jid, "x", site="central")))
    await master.inbox.commit_records("lisbon", EPOCH, [a_record("x", "central", 1)])
    assert outcomes(master, opened.job.jid) == {}
    assert master.metrics.refusals["uplink", "foreign_site"] == 2


async def test_what_is_about_no_known_job_is_refused(master: Rooms) -> None:
    unknown = str(FIRST_JID + 999)
    await master.inbox.commit("lisbon", EPOCH, encoded(*answer(unknown, "a")))
    assert master.metrics.refusals["uplink", "unknown_job"] == 3
    assert outcomes(master, unknown) == {}


@pytest.mark.parametrize("changed", [{"count": 3}, {"digest": b"other"}, {"ids": ["a"]}])
async def test_a_page_that_is_not_what_it_says_is_refused(changed: dict[str, Any], master: Rooms) -> None:
    opened = await issued(master)
    (page,) = pages(opened.job.jid, "lisbon", ["a", "b"], 1, final=True)
    await master.inbox.commit("lisbon", EPOCH, encoded(msgspec.structs.replace(page, **changed)))
    assert master.metrics.refusals["uplink", "manifest_mismatch"] == 1
    assert opened.branches["lisbon"].awaiting == set()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x80",
        bytes(limits.ITEM_BYTES + 1),
        encode(Event(tag="x", data={"a": float("nan")}, stamp=float("nan"), site="lisbon")),
        msgspec.msgpack.encode({"type": "event", "tag": "x", "data": {1: 2}, "stamp": 1.0}),
        encode(JobDefinition(b"no job", "lisbon")),
    ],
    ids=["empty", "no msgpack", "no item", "oversized", "no time", "no text as a key", "no job"],
)
async def test_an_item_that_is_nonsense_is_counted_and_passed_over(body: bytes, master: Rooms) -> None:
    sequence = await master.inbox.commit("lisbon", EPOCH, [(1, body), *encoded(an_event(2), first=2)])
    assert sequence == 2
    assert master.metrics.refusals.total() == 1
    assert {peer for _, _, peer in master.metrics.peers} == {"lisbon"}
    assert [event.tag for event in await master.bus.history("test/*", 9)] == ["test/2"]


@pytest.mark.parametrize(
    "changed", [{"retcode": 2**63}, {"retcode": -(2**63)}, {"executions": 2**64 - 1}, {"duration": 1e308}], ids=str
)
async def test_a_number_no_column_holds_stops_neither_the_batch_nor_the_station(
    changed: dict[str, Any], master: Rooms
) -> None:
    opened = await issued(master)
    jid = opened.job.jid
    await master.inbox.commit(
        "lisbon", EPOCH, encoded(*pages(jid, "lisbon", ["a", "b"], 1, final=True), record(jid, "a", **changed))
    )
    await master.inbox.commit("lisbon", EPOCH, encoded(record(jid, "b"), first=3))
    assert outcomes(master, jid)["lisbon", "b"] == "ok"


async def test_a_close_that_leaves_devices_without_an_outcome_makes_them_unknown(master: Rooms) -> None:
    opened = await issued(master)
    jid = opened.job.jid
    (page,) = pages(jid, "lisbon", ["a", "b", "c"], 1, final=True)
    close = Close(jid=jid, site="lisbon", counts={"ok": 1})
    await master.inbox.commit("lisbon", EPOCH, encoded(page, record(jid, "a"), close))
    assert master.open_jobs.get(jid) is opened
    await look_at(master, opened)
    assert outcomes(master, jid) == {("lisbon", "a"): "ok", ("lisbon", "b"): "unknown", ("lisbon", "c"): "unknown"}
    assert dict(opened.counts) == {"ok": 1, "unknown": 2}
    assert master.metrics.refusals["uplink", "close_incomplete"] == 1
    # Its word comes too late.
    await master.inbox.commit("lisbon", EPOCH, encoded(record(jid, "b"), first=9))
    assert outcomes(master, jid)["lisbon", "b"] == "unknown"


async def look_at(rooms: Rooms, opened: OpenJob) -> None:
    """What the loop of delivery does as soon as something is due, which it must be by now."""
    now = rooms.delivery._clock.monotonic()
    assert opened.look_at <= now
    await rooms.delivery._look_at(opened, now)


async def test_after_a_sudden_end_no_device_of_an_incomplete_close_is_without_an_outcome(tmp_path: Path) -> None:
    """The close is on disk, and the station died before it wrote what was missing."""
    async with a_master(tmp_path, "lisbon") as rooms:
        jid = (await issued(rooms)).job.jid
        (page,) = pages(jid, "lisbon", ["a", "b"], 1, final=True)
        await rooms.inbox.commit("lisbon", EPOCH, encoded(page, record(jid, "a")))
        await rooms.writer.commit(
            [("UPDATE job_sites SET state = 'closed' WHERE jid = ? AND site = 'lisbon'", [(jid,)])]
        )
    async with a_master(tmp_path, "lisbon") as rooms:
        opened = rooms.open_jobs.get(jid)
        assert opened is not None
        await look_at(rooms, opened)
        assert rooms.open_jobs.get(jid) is None
        assert outcomes(rooms, jid) == {("lisbon", "a"): "ok", ("lisbon", "b"): "unknown"}


async def darken(rooms: Rooms, opened: OpenJob, clock: HandClock) -> None:
    """Let the expiry pass while no site is heard."""
    clock.move(limits.JOB_EXPIRY_SECONDS + 1)
    await rooms.delivery._look_at(opened, clock.monotonic())
    assert opened.all_ended


async def test_the_word_of_a_dark_site_takes_the_place_of_the_guess(tmp_path: Path) -> None:
    clock = HandClock()
    async with a_master(tmp_path, "lisbon", clock=clock) as rooms:
        await rooms.inbox.commit_records("lisbon", EPOCH, [a_record("a", "lisbon", 1), a_record("b", "lisbon", 2)])
        opened = await issued(rooms)
        jid = opened.job.jid
        await darken(rooms, opened, clock)
        assert outcomes(rooms, jid) == {("lisbon", "a"): "site_dark", ("lisbon", "b"): "site_dark"}
        assert dict(opened.counts) == {"site_dark": 2}
        # One of them is new to the master, and one it guessed about is not even expected by the site.
        await rooms.inbox.commit("lisbon", EPOCH, encoded(*answer(jid, "a", "new")))
        assert outcomes(rooms, jid) == {
            ("lisbon", "a"): "ok",
            ("lisbon", "b"): "site_dark",
            ("lisbon", "new"): "ok",
        }
        view = await rooms.views.one(jid)
        assert view["counts"] == {"ok": 2, "site_dark": 1}
        await rooms.inbox.commit("lisbon", OTHER_EPOCH, encoded(record(jid, "a", Outcome.FAILED), first=50))
        assert outcomes(rooms, jid)["lisbon", "a"] == "ok"


async def test_a_second_guess_does_not_take_the_place_of_a_sites_word(tmp_path: Path) -> None:
    clock = HandClock()
    async with a_master(tmp_path, "lisbon", clock=clock) as rooms:
        opened = await issued(rooms)
        jid = opened.job.jid
        (page,) = pages(jid, "lisbon", ["a", "b"], 1, final=True)
        await rooms.inbox.commit("lisbon", EPOCH, encoded(page, record(jid, "a", Outcome.FAILED)))
        clock.move(limits.RETURN_WINDOW_SECONDS)
        await darken(rooms, opened, clock)
        assert outcomes(rooms, jid) == {("lisbon", "a"): "failed", ("lisbon", "b"): "site_dark"}
        # A relay below may only guess itself: two guesses are one.
        await rooms.inbox.commit("lisbon", EPOCH, encoded(record(jid, "b", Outcome.SITE_DARK, why="below"), first=9))
        assert look(rooms.writer._path, "SELECT why FROM outcomes WHERE device = 'b'") != [("below",)]


async def test_a_job_of_a_site_becomes_known_above_with_its_answers(master: Rooms) -> None:
    job = a_job(5, user="local operator")
    await master.inbox.commit(
        "lisbon", EPOCH, encoded(JobDefinition(encode(job), "lisbon"), *answer(job.jid, "a")[:-1])
    )
    opened = master.open_jobs.get(job.jid)
    assert opened is not None
    assert (opened.origin, opened.expected, set(opened.branches)) == ("lisbon", 1, {"lisbon"})
    assert (await master.views.one(job.jid))["user"] == "local operator"
    await master.inbox.commit("lisbon", EPOCH, encoded(Close(jid=job.jid, site="lisbon", counts={}), first=9))
    assert master.open_jobs.get(job.jid) is None


async def test_a_site_may_not_issue_a_job_under_a_number_that_is_taken(master: Rooms) -> None:
    opened = await issued(master)
    stolen = a_job(jid=opened.job.jid, fun="cmd.run")
    await master.inbox.commit("lisbon", EPOCH, encoded(JobDefinition(encode(stolen), "lisbon")))
    assert master.metrics.refusals["uplink", "jid_taken"] == 1
    twice = a_job(7)
    both = encoded(JobDefinition(encode(twice), "lisbon"), JobDefinition(encode(twice), "lisbon"), first=2)
    await master.inbox.commit("lisbon", EPOCH, both)
    assert master.metrics.refusals["uplink", "jid_taken"] == 1, "a repeat of the same job says nothing new"
    assert (await master.views.one(opened.job.jid))["fun"] == "test.ping"


async def test_a_batch_that_could_not_be_written_leaves_no_trace(master: Rooms) -> None:
    from gateway.store.writer import StoreFailed

    opened = await issued(master)
    jid = opened.job.jid
    trigger = "CREATE TRIGGER full BEFORE INSERT ON outcomes BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
    await master.writer.commit([(trigger, [()])])
    with pytest.raises(StoreFailed):
        await master.inbox.commit("lisbon", EPOCH, encoded(*answer(jid, "a")))
    assert await master.inbox.position("lisbon", EPOCH) == (0, 0)
    assert (opened.expected, dict(opened.counts)) == (0, {})
    assert look(master.writer._path, "SELECT * FROM manifests WHERE link = 'lisbon'") == []
    await master.writer.commit([("DROP TRIGGER full", [()])])
    await master.inbox.commit("lisbon", EPOCH, encoded(*answer(jid, "a")))
    assert dict(opened.counts) == {"ok": 1}


# --- a relay ---------------------------------------------------------------------------------------------------------


async def test_a_relay_passes_on_what_its_sites_say_and_answers_for_itself(tmp_path: Path) -> None:
    async with a_master(tmp_path, "lisbon", "madrid", masters=True) as relay:
        body = encode(a_job())
        await relay.acceptance.accept_from_above(body, 300.0, "tcp://above:1")
        before = len(await spooled(relay))
        event = an_event(1)
        await relay.inbox.commit("lisbon", EPOCH, encoded(event, *answer(JID, "a", "b")))
        await relay.inbox.commit("madrid", EPOCH, encoded(*answer(JID, "c", site="madrid")))
        items = (await spooled(relay))[before:]
        told = [item for item in items if isinstance(item, (Manifest, OutcomeRecord, Close))]
        assert event in items
        assert [(item.site, item.id) for item in told if isinstance(item, OutcomeRecord)] == [
            ("lisbon", "a"),
            ("lisbon", "b"),
            ("madrid", "c"),
        ]
        finals = [(item.site, item.ids) for item in told if isinstance(item, Manifest) and item.final]
        assert finals == [("central", [])]
        assert [(item.site, item.counts) for item in told if isinstance(item, Close)] == [("central", {"ok": 3})]
        assert isinstance(told[-1], Close)
        listed = {(page.site, device) for page in told if isinstance(page, Manifest) for device in page.ids}
        assert listed == {("lisbon", "a"), ("lisbon", "b"), ("madrid", "c")}


async def test_a_master_understands_what_a_relay_passes_on(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(a_master(tmp_path / "relay", "lisbon", masters=True))
        top = await stack.enter_async_context(a_master(tmp_path / "top", "central"))
        # Two stations of one name would be one; this relay is called central, so its master is not.
        top.registry._site = "top"
        opened = await issued(top)
        jid = opened.job.jid
        await relay.acceptance.accept_from_above(opened.body, 300.0, "tcp://top:1")
        await relay.inbox.commit("lisbon", EPOCH, encoded(*answer(jid, "a", "b")))
        items = await relay.spool.read(0)
        await top.inbox.commit("central", relay.spool.epoch, items)
        assert outcomes(top, jid) == {("lisbon", "a"): "ok", ("lisbon", "b"): "ok"}
        assert top.open_jobs.get(jid) is None
        assert top.metrics.refusals == {}


# --- registry rows ---------------------------------------------------------------------------------------------------


def a_record(device: str, site: str, revision: int, **changed: Any) -> DeviceRecord:
    given: dict[str, Any] = {
        "link": "mqtt",
        "agent": "0.1.0",
        "grains": encode_value({"site": site}),
        "present": True,
        "first_seen": 1.0,
        "last_seen": 2.0,
        **changed,
    }
    return DeviceRecord(id=device, site=site, revision=revision, **given)


async def test_registry_rows_are_kept_with_the_sites_revision(tmp_path: Path) -> None:
    async with a_master(tmp_path, "lisbon") as rooms:
        rows = [a_record("a", "lisbon", 3), a_record("b", "lisbon", 5, present=False)]
        assert await rooms.inbox.commit_records("lisbon", EPOCH, rows) == 5
        await rooms.inbox.commit("lisbon", EPOCH, encoded(an_event(1)))
        assert await rooms.inbox.position("lisbon", EPOCH) == (1, 5)
    async with a_master(tmp_path, "lisbon") as rooms:
        assert await rooms.inbox.position("lisbon", EPOCH) == (1, 5)
        found = {device.id: device for device in rooms.registry.below("lisbon")}
        assert {name: (device.present, device.link) for name, device in found.items()} == {
            "a": (True, "lisbon"),
            "b": (False, "lisbon"),
        }
        await rooms.inbox.commit_records("lisbon", EPOCH, [a_record("b", "lisbon", 6, first_seen=0.5)])
        (device,) = [device for device in rooms.registry.below("lisbon") if device.id == "b"]
        # A site that forgot when it first saw a device does not make its master forget.
        assert (device.present, device.first_seen) == (True, 1.0)


# --- recovery --------------------------------------------------------------------------------------------------------


async def test_after_a_restart_an_open_job_knows_who_may_have_run_it(tmp_path: Path) -> None:
    from device_agent.protocol.messages import Hello

    clock = HandClock()
    hello = Hello(session=EPOCH, agent="0", grains={})
    async with opened_rooms(tmp_path, clock=clock) as rooms:
        for device in ("here", "also-here"):
            rooms.registry.hello("mqtt", device, hello)
        rooms.registry.hello("mqtt", "away", hello)
        await rooms.registry.flush()
        rooms.registry.unheard("mqtt")
        for device in ("here", "also-here"):
            rooms.registry.hello("mqtt", device, hello)
        opened = await issued(rooms)
        jid = opened.job.jid
        assert {name: waiting.state for name, waiting in opened.waiting.items()} == {
            "here": State.DELIVERED,
            "also-here": State.DELIVERED,
            "away": State.QUEUED,
        }
        await rooms.writer.commit(
            [
                (
                    "INSERT INTO outcomes VALUES (NULL, ?, 'lisbon', 'here', '', ?, 'ok', 0, NULL, '', NULL, 1, 0, 1)",
                    [(jid, "test.ping")],
                )
            ]
        )
    clock.move(60)
    async with opened_rooms(tmp_path, clock=clock) as rooms:
        again = rooms.open_jobs.get(jid)
        assert again is not None
        assert {name: waiting.state for name, waiting in again.waiting.items()} == {
            "also-here": State.DELIVERED,
            "away": State.QUEUED,
        }
        assert (again.job, again.body, again.expected, dict(again.counts)) == (opened.job, opened.body, 3, {"ok": 1})
        assert again.manifest_final
        assert again.deadline - clock.monotonic() == pytest.approx(240.0)


@pytest.mark.parametrize(
    ("stepped", "remaining"),
    [(60, 240), (0, 300), (-3600, 300), (-(10**9), 300), (299, 1), (400, -100), (10**9, 300 - 10**9)],
)
async def test_a_clock_that_stepped_does_not_stretch_a_job(stepped: float, remaining: float, tmp_path: Path) -> None:
    clock = HandClock()
    async with a_master(tmp_path, "lisbon", clock=clock) as rooms:
        jid = (await issued(rooms)).job.jid
    clock.step_wall(stepped)
    async with a_master(tmp_path, "lisbon", clock=clock) as rooms:
        opened = rooms.open_jobs.get(jid)
        assert opened is not None
        assert opened.deadline - clock.monotonic() == pytest.approx(remaining)


async def test_after_a_restart_a_master_knows_how_far_each_site_is(tmp_path: Path) -> None:
    async with a_master(tmp_path, "closed", "answered", "sent", "waiting") as rooms:
        opened = await issued(rooms, late="run", expires_seconds=1000)
        jid = opened.job.jid
        await rooms.inbox.commit("closed", EPOCH, encoded(*answer(jid, "a", site="closed")))
        pages_of = pages(jid, "answered", ["b", "c"], 1, final=True)
        await rooms.inbox.commit("answered", EPOCH, encoded(*pages_of, record(jid, "b", site="answered")))
        await rooms.writer.commit([("UPDATE job_sites SET state = 'sent' WHERE jid = ? AND site = 'sent'", [(jid,)])])
        await rooms.writer.commit([("UPDATE jobs SET cancelled = 1 WHERE jid = ?", [(jid,)])])
    async with a_master(tmp_path, "closed", "answered", "sent", "waiting") as rooms:
        again = rooms.open_jobs.get(jid)
        assert again is not None
        assert {site: branch.state.value for site, branch in again.branches.items()} == {
            "closed": "closed",
            "answered": "answered",
            "sent": "sent",
            "waiting": "waiting",
        }
        assert again.branches["answered"].awaiting == {("answered", "c")}
        assert (again.expected, dict(again.counts), again.cancelled) == (3, {"ok": 2}, True)
        assert not again.all_ended


async def test_a_closed_job_is_not_opened_again(tmp_path: Path) -> None:
    async with opened_rooms(tmp_path) as rooms:
        jid = await rooms.acceptance.submit(request_for_nobody(), "ops")
        assert rooms.open_jobs.get(jid) is None
    async with opened_rooms(tmp_path) as rooms:
        assert len(rooms.open_jobs) == 0
        assert (await rooms.views.one(jid))["state"] == "closed"


def request_for_nobody() -> Any:
    from gateway.jobs.accept import JobRequest

    return JobRequest(tgt="nobody", fun="test.ping")


async def test_a_job_from_above_that_comes_again_after_a_restart_is_not_taken_again(tmp_path: Path) -> None:
    body = encode(a_job())
    for taken in (1, 0):
        async with opened_rooms(tmp_path, clock=HandClock()) as rooms:
            await rooms.acceptance.accept_from_above(body, 300.0, "tcp://above:1")
            assert rooms.metrics.counters["jobs_accepted"] == taken
            assert rooms.metrics.counters["jobs_repeated"] == 1 - taken
    assert look(tmp_path / "station.sqlite", "SELECT count(*) FROM jobs") == [(1,)]


async def test_values_come_back_from_disk_as_they_were_sent(master: Rooms) -> None:
    opened = await issued(master)
    jid = opened.job.jid
    value = {"text": "é\0", "list": [None, True, 1.5, -1], "bytes": b"\xff"}
    (page,) = pages(jid, "lisbon", ["a"], 1, final=True)
    await master.inbox.commit("lisbon", EPOCH, encoded(page, record(jid, "a", value=value)))
    ((stored,),) = look(master.writer._path, "SELECT value FROM outcomes")
    assert decode_value(stored) == value
