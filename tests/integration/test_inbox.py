"""The inbox: what sites send up is on disk once, and nothing of it is taken that does not belong there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from device_agent.protocol import limits
from device_agent.protocol.messages import (
    Close,
    Event,
    JobDefinition,
    encode,
)
from device_agent.protocol.outcomes import Outcome
from gateway.jobs.expect import pages
from gateway.jobs.open_jobs import BranchState, OpenJob
from gateway.rooms import Rooms
from tests.peers.central import EPOCH, OTHER_EPOCH, a_master, a_record, an_event, answer, issued, outcomes, record
from tests.peers.clock import HandClock
from tests.peers.database import FIRST_JID, a_job, encoded, look


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Rooms]:
    async with a_master(tmp_path, "lisbon", "madrid") as rooms:
        yield rooms


async def test_the_answers_of_every_site_close_a_job(master: Rooms) -> None:
    opened = await issued(master)
    jid = opened.job.jid
    await master.inbox.commit("lisbon", EPOCH, "returns", encoded(*answer(jid, "a", "b")))
    assert master.open_jobs.get(jid) is opened
    await master.inbox.commit("madrid", EPOCH, "returns", encoded(*answer(jid, "a", site="madrid")))
    assert opened.all_ended
    assert master.open_jobs.get(jid) is None
    assert (opened.expected, dict(opened.counts)) == (3, {"ok": 3})
    assert outcomes(master, jid) == {("lisbon", "a"): "ok", ("lisbon", "b"): "ok", ("madrid", "a"): "ok"}
    view = await master.views.one(jid)
    assert (view["state"], view["expected"], view["counts"]) == ("closed", 3, {"ok": 3})


async def test_the_position_is_on_disk_with_what_it_stands_for(tmp_path: Path) -> None:
    async with a_master(tmp_path, "lisbon") as rooms:
        assert await rooms.inbox.position("lisbon", EPOCH) == ({}, 0)
        await rooms.inbox.commit("lisbon", EPOCH, "returns", encoded(an_event(1), an_event(2), first=7))
        assert await rooms.inbox.position("lisbon", EPOCH) == ({"returns": 8}, 0)
    async with a_master(tmp_path, "lisbon") as rooms:
        assert await rooms.inbox.position("lisbon", EPOCH) == ({"returns": 8}, 0)
        # Another store has its own numbers.
        assert await rooms.inbox.position("lisbon", OTHER_EPOCH) == ({}, 0)
        assert await rooms.inbox.position("madrid", EPOCH) == ({}, 0)


async def test_the_same_outcome_twice_is_one(master: Rooms) -> None:
    opened = await issued(master)
    jid = opened.job.jid
    await master.inbox.commit("lisbon", EPOCH, "returns", encoded(*answer(jid, "a", "b")))
    counts, rows = dict(opened.counts), outcomes(master, jid)
    # A site that lost its store and found a backup says it all again, under other numbers.
    await master.inbox.commit("lisbon", OTHER_EPOCH, "returns", encoded(*answer(jid, "a", "b"), first=100))
    await master.inbox.commit("lisbon", OTHER_EPOCH, "returns", encoded(record(jid, "a", Outcome.FAILED), first=200))
    assert (dict(opened.counts), outcomes(master, jid)) == (counts, rows)


async def test_a_page_that_is_repeated_expects_nobody_twice(master: Rooms) -> None:
    opened = await issued(master)
    jid = opened.job.jid
    (page,) = pages(jid, "lisbon", ["a", "b"], 1, final=True)
    await master.inbox.commit("lisbon", EPOCH, "returns", encoded(page))
    await master.inbox.commit("lisbon", OTHER_EPOCH, "returns", encoded(page))
    assert opened.expected == 2
    assert opened.branches["lisbon"].awaiting == {("lisbon", "a"), ("lisbon", "b")}


async def test_a_site_may_not_speak_for_another(master: Rooms) -> None:
    opened = await issued(master)
    jid = opened.job.jid
    await master.inbox.commit("madrid", EPOCH, "returns", encoded(*answer(jid, "m", site="madrid")))
    (page,) = pages(jid, "madrid", ["x"], 1, final=True)
    before = outcomes(master, jid)
    await master.inbox.commit_records("madrid", EPOCH, [a_record("m", "madrid", 1)])
    last = await master.inbox.commit(
        "lisbon",
        EPOCH,
        "returns",
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
    await master.inbox.commit("lisbon", EPOCH, "returns", encoded(record(jid, "m", Outcome.FAILED, site="madrid")))
    await master.inbox.commit_records("lisbon", EPOCH, [a_record("m", "madrid", 1, link="lisbon")])
    assert outcomes(master, jid) == {}
    await master.inbox.commit_records("madrid", EPOCH, [a_record("m", "madrid", 1)])
    await master.inbox.commit("madrid", EPOCH, "returns", encoded(*answer(jid, "m", site="madrid")))
    assert outcomes(master, jid) == {("madrid", "m"): "ok"}
    assert [device.id for device in master.registry.below("madrid")] == ["m"]


async def test_an_event_of_another_site_is_refused(master: Rooms) -> None:
    foreign = msgspec.structs.replace(an_event(1), site="madrid")
    await master.inbox.commit("lisbon", EPOCH, "returns", encoded(foreign, an_event(2)))
    assert master.metrics.refusals["uplink", "foreign_site"] == 1
    assert [event.tag for event in await master.bus.history("test/*", 9)] == ["test/2"]


async def test_a_site_may_not_speak_for_its_master(master: Rooms) -> None:
    opened = await issued(master)
    await master.inbox.commit("lisbon", EPOCH, "returns", encoded(record(opened.job.jid, "x", site="central")))
    await master.inbox.commit_records("lisbon", EPOCH, [a_record("x", "central", 1)])
    assert outcomes(master, opened.job.jid) == {}
    assert master.metrics.refusals["uplink", "foreign_site"] == 2


async def test_what_is_about_no_known_job_is_refused(master: Rooms) -> None:
    unknown = str(FIRST_JID + 999)
    await master.inbox.commit("lisbon", EPOCH, "returns", encoded(*answer(unknown, "a")))
    assert master.metrics.refusals["uplink", "unknown_job"] == 3
    assert outcomes(master, unknown) == {}


@pytest.mark.parametrize("changed", [{"count": 3}, {"digest": b"other"}, {"ids": ["a"]}])
async def test_a_page_that_is_not_what_it_says_is_refused(changed: dict[str, Any], master: Rooms) -> None:
    opened = await issued(master)
    (page,) = pages(opened.job.jid, "lisbon", ["a", "b"], 1, final=True)
    await master.inbox.commit("lisbon", EPOCH, "returns", encoded(msgspec.structs.replace(page, **changed)))
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
    sequence = await master.inbox.commit("lisbon", EPOCH, "returns", [(1, body), *encoded(an_event(2), first=2)])
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
        "lisbon",
        EPOCH,
        "returns",
        encoded(*pages(jid, "lisbon", ["a", "b"], 1, final=True), record(jid, "a", **changed)),
    )
    await master.inbox.commit("lisbon", EPOCH, "returns", encoded(record(jid, "b"), first=3))
    assert outcomes(master, jid)["lisbon", "b"] == "ok"


async def test_a_close_that_leaves_devices_without_an_outcome_makes_them_unknown(master: Rooms) -> None:
    opened = await issued(master)
    jid = opened.job.jid
    (page,) = pages(jid, "lisbon", ["a", "b", "c"], 1, final=True)
    close = Close(jid=jid, site="lisbon", counts={"ok": 1})
    await master.inbox.commit("lisbon", EPOCH, "returns", encoded(page, record(jid, "a"), close))
    assert master.open_jobs.get(jid) is opened
    await look_at(master, opened)
    assert outcomes(master, jid) == {("lisbon", "a"): "ok", ("lisbon", "b"): "unknown", ("lisbon", "c"): "unknown"}
    assert dict(opened.counts) == {"ok": 1, "unknown": 2}
    assert master.metrics.refusals["uplink", "close_incomplete"] == 1
    # Its word comes too late.
    await master.inbox.commit("lisbon", EPOCH, "returns", encoded(record(jid, "b"), first=9))
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
        await rooms.inbox.commit("lisbon", EPOCH, "returns", encoded(page, record(jid, "a")))
        await rooms.writer.commit(
            [("UPDATE job_sites SET state = 'closed' WHERE jid = ? AND site = 'lisbon'", [(jid,)])]
        )
    async with a_master(tmp_path, "lisbon") as rooms:
        opened = rooms.open_jobs.get(jid)
        assert opened is not None
        await look_at(rooms, opened)
        assert rooms.open_jobs.get(jid) is None
        assert outcomes(rooms, jid) == {("lisbon", "a"): "ok", ("lisbon", "b"): "site_dark"}


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
        await rooms.inbox.commit("lisbon", EPOCH, "returns", encoded(*answer(jid, "a", "new")))
        assert outcomes(rooms, jid) == {
            ("lisbon", "a"): "ok",
            ("lisbon", "b"): "site_dark",
            ("lisbon", "new"): "ok",
        }
        view = await rooms.views.one(jid)
        assert view["counts"] == {"ok": 2, "site_dark": 1}
        await rooms.inbox.commit("lisbon", OTHER_EPOCH, "returns", encoded(record(jid, "a", Outcome.FAILED), first=50))
        assert outcomes(rooms, jid)["lisbon", "a"] == "ok"


async def test_a_second_guess_does_not_take_the_place_of_a_sites_word(tmp_path: Path) -> None:
    clock = HandClock()
    async with a_master(tmp_path, "lisbon", clock=clock) as rooms:
        opened = await issued(rooms)
        jid = opened.job.jid
        (page,) = pages(jid, "lisbon", ["a", "b"], 1, final=True)
        await rooms.inbox.commit("lisbon", EPOCH, "returns", encoded(page, record(jid, "a", Outcome.FAILED)))
        clock.move(limits.RETURN_WINDOW_SECONDS)
        await darken(rooms, opened, clock)
        assert outcomes(rooms, jid) == {("lisbon", "a"): "failed", ("lisbon", "b"): "site_dark"}
        # A relay below may only guess itself: two guesses are one.
        await rooms.inbox.commit(
            "lisbon", EPOCH, "returns", encoded(record(jid, "b", Outcome.SITE_DARK, why="below"), first=9)
        )
        assert look(rooms.writer._path, "SELECT why FROM outcomes WHERE device = 'b'") != [("below",)]


async def test_a_job_of_a_site_becomes_known_above_with_its_answers(master: Rooms) -> None:
    job = a_job(5, user="local operator")
    await master.inbox.commit(
        "lisbon", EPOCH, "returns", encoded(JobDefinition(encode(job), "lisbon"), *answer(job.jid, "a")[:-1])
    )
    opened = master.open_jobs.get(job.jid)
    assert opened is not None
    assert (opened.origin, opened.expected, set(opened.branches)) == ("lisbon", 1, {"lisbon"})
    assert (await master.views.one(job.jid))["user"] == "local operator"
    await master.inbox.commit(
        "lisbon", EPOCH, "returns", encoded(Close(jid=job.jid, site="lisbon", counts={}), first=9)
    )
    assert master.open_jobs.get(job.jid) is None


async def test_a_site_may_not_issue_a_job_under_a_number_that_is_taken(master: Rooms) -> None:
    opened = await issued(master)
    stolen = a_job(jid=opened.job.jid, fun="cmd.run")
    await master.inbox.commit("lisbon", EPOCH, "returns", encoded(JobDefinition(encode(stolen), "lisbon")))
    assert master.metrics.refusals["uplink", "jid_taken"] == 1
    twice = a_job(7)
    both = encoded(JobDefinition(encode(twice), "lisbon"), JobDefinition(encode(twice), "lisbon"), first=2)
    await master.inbox.commit("lisbon", EPOCH, "returns", both)
    assert master.metrics.refusals["uplink", "jid_taken"] == 1, "a repeat of the same job says nothing new"
    assert (await master.views.one(opened.job.jid))["fun"] == "test.ping"


async def test_a_batch_that_could_not_be_written_leaves_no_trace(master: Rooms) -> None:
    from gateway.store.writer import StoreFailed

    opened = await issued(master)
    jid = opened.job.jid
    trigger = "CREATE TRIGGER full BEFORE INSERT ON outcomes BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
    await master.writer.commit([(trigger, [()])])
    with pytest.raises(StoreFailed):
        await master.inbox.commit("lisbon", EPOCH, "returns", encoded(*answer(jid, "a")))
    assert await master.inbox.position("lisbon", EPOCH) == ({}, 0)
    assert (opened.expected, dict(opened.counts)) == (0, {})
    assert look(master.writer._path, "SELECT * FROM manifests WHERE link = 'lisbon'") == []
    await master.writer.commit([("DROP TRIGGER full", [()])])
    await master.inbox.commit("lisbon", EPOCH, "returns", encoded(*answer(jid, "a")))
    assert dict(opened.counts) == {"ok": 1}


async def test_a_site_forgets_once_however_often_it_connects_under_its_new_epoch(master: Rooms) -> None:
    await master.inbox.commit("lisbon", EPOCH, "events", encoded(an_event(1)))
    assert await master.inbox.position("lisbon", OTHER_EPOCH) == ({}, 0)
    opened = await issued(master)
    await master.inbox.commit_story("lisbon", [encode(*pages(opened.job.jid, "lisbon", ["a"], 1, final=True))])
    assert await master.inbox.position("lisbon", OTHER_EPOCH) == ({}, 0)
    assert opened.branches["lisbon"].state is BranchState.ANSWERED
    assert outcomes(master, opened.job.jid) == {}
    # Numbers of the store before are none of this one, also after it was lost in its turn.
    assert await master.inbox.position("lisbon", EPOCH) == ({}, 0)


async def test_a_site_that_opens_jobs_without_end_keeps_nobody_from_issuing_one(master: Rooms) -> None:
    # Not the numbers that this station gives at the same time.
    *jobs, other = (a_job(1 + number) for number in range(limits.OPEN_JOBS + 25))
    items = encoded(*(JobDefinition(encode(job), "madrid") for job in jobs))
    await master.inbox.commit("madrid", EPOCH, "returns", items)
    assert len(master.open_jobs) == limits.OPEN_JOBS
    assert master.metrics.refusals["uplink", "busy"] == 24
    await master.inbox.commit("lisbon", EPOCH, "returns", encoded(JobDefinition(encode(other), "lisbon")))
    assert master.open_jobs.get(other.jid) is not None
    await issued(master)
