"""Jobs told out of a gateway's tables to a master that the spool did not bring them: whole, once, and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

from device_agent.protocol import limits
from device_agent.protocol.links import Parcel
from device_agent.protocol.messages import (
    Close,
    Hello,
    JobDefinition,
    Manifest,
    OutcomeRecord,
    Return,
    decode_item,
    encode,
)
from device_agent.protocol.outcomes import Outcome
from gateway.jobs.asking import AT_ONCE
from gateway.jobs.expect import pages
from gateway.jobs.open_jobs import BranchState, OpenJob
from gateway.jobs.record import outcome_statement
from gateway.jobs.silence import Terms
from gateway.jobs.story_pages import PAGE_BYTES, Told
from gateway.rooms import Rooms
from tests.peers.central import EPOCH, OTHER_EPOCH, a_master, an_event, answer, issued, outcomes, record
from tests.peers.clock import HandClock
from tests.peers.database import a_job, encoded, look, opened_rooms, spooled
from tests.peers.waiting import until
from upstream.story_frames import STORIES_IN_FLIGHT, Story, UnknownJob

MASTER = "north"
NAMES = ["a", "b", "c"]


@dataclass
class Heard:
    """What a gateway says on one link. It is taken at once while ``takes`` is set."""

    rooms: Rooms
    active: bool = False
    takes: bool = True
    frames: list[Story | UnknownJob] = field(default_factory=list)

    async def send(self, frame: Story | UnknownJob) -> None:
        self.frames.append(frame)
        if self.takes:
            self.rooms.stories.taken(MASTER)

    def items(self, jid: str) -> list[object]:
        """All that was told of a job, in order."""
        told = [frame for frame in self.frames if isinstance(frame, Story) and frame.jid == jid]
        return [decode_item(body) for frame in told for body in frame.items]

    def finals(self, jid: str) -> int:
        """How often its story came to an end."""
        return sum(isinstance(frame, Story) and frame.jid == jid and frame.final for frame in self.frames)


@asynccontextmanager
async def linked(rooms: Rooms, *, active: bool = False) -> AsyncIterator[Heard]:
    """A connection to a master, as the rope holds it."""
    heard = Heard(rooms, active)
    async with asyncio.TaskGroup() as group:
        telling = group.create_task(rooms.stories.tell(MASTER, lambda: heard.active, heard.send))
        # It is there when it has begun to wait.
        await until(lambda: MASTER in rooms.stories._links, what="the link")
        yield heard
        telling.cancel()


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Rooms]:
    """A gateway with three devices, whose jobs have issuers that no device is asked to believe."""
    async with opened_rooms(tmp_path / "lisbon", masters=True, working=True) as rooms:
        for name in NAMES:
            rooms.registry.hello("mqtt", name, Hello("0" * 16, "1", {"id": name}))
        yield rooms


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Rooms]:
    async with a_master(tmp_path / "central", "lisbon", "madrid") as rooms:
        yield rooms


async def given(gateway: Rooms, number: int = 0, master: str = MASTER, **changed: object) -> str:
    """A job that this master gave the gateway."""
    now = gateway.sealer.now()
    job = a_job(number, issued=now, expires=now + 300, **changed)
    await gateway.acceptance.accept_from_above(Parcel(encode(job), ()), 300.0, master)
    return job.jid


async def returned(gateway: Rooms, jid: str, *names: str) -> None:
    for name in names:
        message = Return(jid=jid, fun="test.ping", outcome="ok", retcode=0, value=True, executions=1)
        await gateway.collection.returned(name, message, 10)
    await gateway.collection.drain()


async def test_a_job_is_told_as_the_spool_told_it(gateway: Rooms) -> None:
    jid = await given(gateway, master="another")
    await returned(gateway, jid, *NAMES)
    await until(lambda: gateway.open_jobs.get(jid) is None, what="the close")
    async with linked(gateway) as heard:
        gateway.stories.ask(MASTER, jid, anew=True)
        await until(lambda: heard.finals(jid) == 1, what="the end of the story")
    told = heard.items(jid)
    said = [item for item in await spooled(gateway) if isinstance(item, (JobDefinition, OutcomeRecord, Close))]
    assert [item for item in told if not isinstance(item, Manifest)] == said
    assert [(item.ids, item.final) for item in told if isinstance(item, Manifest)] == [(NAMES, True)]
    assert isinstance(told[0], JobDefinition)
    assert isinstance(told[-1], Close)


async def test_a_standby_that_gave_a_job_is_told_on_until_its_close_without_asking(gateway: Rooms) -> None:
    async with linked(gateway) as heard:
        jid = await given(gateway)
        await until(lambda: len(heard.items(jid)) == 2, what="the definition and who answers")
        await returned(gateway, jid, "a")
        await until(lambda: len(heard.items(jid)) == 3, what="the first outcome")
        await returned(gateway, jid, "b", "c")
        await until(lambda: heard.finals(jid) == 1, what="the end of the story")
        assert [type(item).__name__ for item in heard.items(jid)[2:]] == ["OutcomeRecord"] * 3 + ["Close"]


async def test_the_active_master_is_told_what_it_asks_for_and_the_rest_by_the_spool(gateway: Rooms) -> None:
    async with linked(gateway, active=True) as heard:
        jid, other = await given(gateway), await given(gateway, 1)
        await returned(gateway, jid, "a")
        gateway.stories.ask(MASTER, jid, anew=True)
        await until(lambda: len(heard.items(jid)) == 3, what="the story so far")
        gateway.stories.ask(MASTER, other, anew=False)
        await returned(gateway, jid, "b", "c")
        await until(lambda: gateway.open_jobs.get(jid) is None, what="the close")
        # It has missed some of it on the way: asked again, the gateway tells the rest.
        gateway.stories.ask(MASTER, jid, anew=False)
        await until(lambda: heard.finals(jid) == 1, what="the end of the story")
        assert heard.items(other) == []
        # From the moment in which the spool goes elsewhere it is told the job that it asked for.
        heard.active = False
        gateway.stories.role_changed(MASTER)
        await until(lambda: len(heard.items(other)) == 2, what="the other job")


async def test_a_second_master_that_offers_the_same_job_is_told_of_it_and_it_runs_once(gateway: Rooms) -> None:
    jid = await given(gateway, master="another")
    await returned(gateway, jid, *NAMES)
    await until(lambda: gateway.open_jobs.get(jid) is None, what="the close")
    async with linked(gateway, active=True) as heard:
        body = look(gateway.writer._path, "SELECT body FROM jobs WHERE jid = ?", jid)[0][0]
        await gateway.acceptance.accept_from_above(Parcel(body, ()), 300.0, MASTER)
        await until(lambda: heard.finals(jid) == 1, what="the end of the story")
        # Another job under the same jid is refused, and nothing is told of the one that has it.
        await given(gateway, fun="test.echo")
        assert gateway.metrics.peers["uplink", "definition_mismatch", MASTER] == 1
    assert heard.finals(jid) == 1
    assert len(look(gateway.writer._path, "SELECT * FROM outcomes")) == len(NAMES)


async def test_a_job_that_is_not_known_is_said_to_be(gateway: Rooms) -> None:
    async with linked(gateway) as heard:
        gateway.stories.ask(MASTER, "20200101000000000000", anew=False)
        await until(lambda: heard.frames, what="the answer")
    assert heard.frames == [UnknownJob("20200101000000000000")]


async def test_a_master_that_takes_nothing_is_sent_no_more_than_may_be_under_way(gateway: Rooms) -> None:
    jids = [await given(gateway, number, master="another") for number in range(2 * STORIES_IN_FLIGHT)]
    async with linked(gateway) as heard:
        heard.takes = False
        for jid in jids:
            gateway.stories.ask(MASTER, jid, anew=True)
        await until(lambda: len(heard.frames) == STORIES_IN_FLIGHT, what="as many as may be under way")
        gateway.stories.taken(MASTER)
        await until(lambda: len(heard.frames) > STORIES_IN_FLIGHT, what="one more")
        assert len(heard.frames) == STORIES_IN_FLIGHT + 1


async def test_a_job_of_twenty_thousand_outcomes_is_told_in_pages(gateway: Rooms) -> None:
    jid = await given(gateway, master="another", tgt="nobody")
    names = [f"cam-{number:05d}" for number in range(limits.DEVICES_PER_STATION)]
    values = [record(jid, name, value="x" * (200_000 if place < 20 else 50)) for place, name in enumerate(names)]
    await gateway.writer.commit([outcome_statement(values, "")])
    told, heard = Told(), 0
    while True:
        page = await gateway.stories._pages.next(jid, told)
        assert page is not None
        assert len(page.items) <= limits.BATCH_ITEMS
        assert sum(map(len, page.items)) <= PAGE_BYTES + limits.MESSAGE_BYTES
        heard += sum(isinstance(decode_item(body), OutcomeRecord) for body in page.items)
        if page.final:
            break
    assert heard == len(names)
    (plan,) = look(
        gateway.writer._path,
        "EXPLAIN QUERY PLAN SELECT id FROM outcomes WHERE jid = ? AND id > ? AND id <= ? ORDER BY id LIMIT 9",
        jid,
        1,
        2,
    )
    assert "outcomes_jid (jid=? AND rowid>? AND rowid<?)" in plan[3]


# --- a master ------------------------------------------------------------------------------------------------------


class Asked:
    """Sites, as far as they are asked."""

    def __init__(self, rooms: Rooms) -> None:
        self.jobs: list[tuple[str, str, bool]] = []
        rooms.asking.through(self.ask)

    async def ask(self, jid: str, site: str, *, anew: bool) -> None:
        self.jobs.append((jid, site, anew))


class NoLine:
    """A way down on which nothing arrives."""

    name: ClassVar[str] = "sites"

    async def deliver(self, parcel: Parcel, remaining: float, names: Sequence[str]) -> None:
        """Lost."""

    async def cancel(self, jid: str, names: Sequence[str]) -> None:
        """Lost."""

    async def confirm(self, jid: str, names: Sequence[str]) -> None:
        """Lost."""


def bodies(*items: object) -> list[bytes]:
    return [encode(item) for item in items]  # type: ignore[arg-type]  # whatever a test says a site says


def told_of(opened: OpenJob, *names: str) -> list[bytes]:
    """The whole story of a job that is ok everywhere."""
    return bodies(JobDefinition(opened.body, "lisbon"), *answer(opened.job.jid, *names))


def state_of(opened: OpenJob) -> str:
    """How far lisbon is with it."""
    return opened.branches["lisbon"].state.value


async def test_a_story_told_twice_is_one_and_moves_no_position(master: Rooms) -> None:
    opened = await issued(master)
    jid, whole = opened.job.jid, told_of(opened, "a", "b")
    await master.inbox.commit("lisbon", EPOCH, "events", encoded(an_event(1), first=5))
    with master.bus.subscribe("salt/job/*/ret/*") as listener:
        await master.inbox.commit_story("lisbon", whole[:3])
        rows = look(master.writer._path, "SELECT * FROM manifests ORDER BY page")
        for _ in range(2):
            await master.inbox.commit_story("lisbon", whole)
        # What the spool brings later is the same.
        await master.inbox.commit("lisbon", EPOCH, "returns", encoded(*answer(jid, "a", "b"), first=6))
        assert listener.queue.qsize() == 2
    assert await master.inbox.position("lisbon", EPOCH) == ({"events": 5, "returns": 9}, 0)
    assert look(master.writer._path, "SELECT * FROM manifests ORDER BY page") == rows
    assert outcomes(master, jid) == {("lisbon", "a"): "ok", ("lisbon", "b"): "ok"}
    assert (opened.expected, dict(opened.counts)) == (2, {"ok": 2})
    assert opened.branches["lisbon"].state is BranchState.CLOSED
    assert not master.metrics.refusals


async def test_nothing_is_taken_from_a_story_that_would_not_be_taken_from_the_spool(master: Rooms) -> None:
    opened = await issued(master)
    jid = opened.job.jid
    (page,) = pages(jid, "lisbon", ["a"], 1, final=True)
    (foreign,) = pages(jid, "madrid", ["m"], 1, final=True)
    await master.inbox.commit_story("madrid", bodies(*answer(jid, "m", site="madrid")))
    before = outcomes(master, jid)
    await master.inbox.commit_story(
        "lisbon",
        [
            b"\xc1",
            *bodies(an_event(1), foreign, page, record(jid, "x"), record("20200101000000000000", "a")),
        ],
    )
    await master.inbox.commit_story("lisbon", bodies(*pages(jid, "lisbon", ["late"], 1, final=False)))
    assert outcomes(master, jid) == before
    assert {reason for _, reason in master.metrics.refusals} == {
        "malformed",
        "not_of_a_story",
        "foreign_site",
        "not_expected",
        "unknown_job",
        "after_final",
    }


async def test_a_site_that_has_another_job_under_the_jid_says_nothing_about_ours(master: Rooms) -> None:
    opened = await issued(master)
    jid = opened.job.jid
    other = encode(a_job(jid=jid, fun="test.echo"))
    await master.inbox.commit_story("lisbon", bodies(JobDefinition(other, "lisbon"), *answer(jid, "a")))
    assert opened.branches["lisbon"].state is BranchState.CLOSED
    await master.inbox.commit_story("lisbon", bodies(*answer(jid, "a")))
    assert outcomes(master, jid) == {}


async def test_a_close_that_counts_more_than_is_here_is_left_to_the_story(master: Rooms) -> None:
    asked, opened = Asked(master), await issued(master)
    jid = opened.job.jid
    # Who answers, and the first outcome, went to another master.
    await master.inbox.commit(
        "lisbon", EPOCH, "returns", encoded(record(jid, "b"), Close(jid=jid, site="lisbon", counts={"ok": 2}))
    )
    assert asked.jobs == [(jid, "lisbon", True)]
    assert state_of(opened) == "waiting"
    await master.inbox.commit_story("lisbon", told_of(opened, "a", "b"))
    assert state_of(opened) == "closed"
    assert outcomes(master, jid) == {("lisbon", "a"): "ok", ("lisbon", "b"): "ok"}
    assert not master.metrics.refusals


async def test_a_job_whose_definition_went_to_another_master_is_asked_for(master: Rooms) -> None:
    asked, job = Asked(master), a_job()
    await master.inbox.commit("lisbon", EPOCH, "returns", encoded(record(job.jid, "a"), record(job.jid, "b")))
    await master.inbox.commit(
        "lisbon", EPOCH, "returns", encoded(Close(jid=job.jid, site="lisbon", counts={"ok": 2}), first=3)
    )
    assert asked.jobs == [(job.jid, "lisbon", True)]
    await master.inbox.commit_story("lisbon", bodies(JobDefinition(encode(job), "lisbon"), *answer(job.jid, "a", "b")))
    assert outcomes(master, job.jid) == {("lisbon", "a"): "ok", ("lisbon", "b"): "ok"}
    assert (await master.views.one(job.jid))["state"] == "closed"
    assert not master.metrics.refusals
    # A site that does not know it either is refused what it says of it from then on.
    other = a_job(1)
    await master.inbox.commit("lisbon", EPOCH, "returns", encoded(record(other.jid, "a"), first=4))
    await master.inbox.unknown_job("lisbon", other.jid)
    await master.inbox.commit("lisbon", EPOCH, "returns", encoded(record(other.jid, "a"), first=5))
    assert master.metrics.refusals["uplink", "unknown_job"] == 2
    assert len(asked.jobs) == 2


async def test_a_job_that_the_site_took_and_does_not_know_any_more_is_unknown_where_it_has_no_outcome(
    master: Rooms,
) -> None:
    opened = await issued(master)
    jid = opened.job.jid
    (page,) = pages(jid, "lisbon", ["a", "b"], 1, final=True)
    await master.inbox.commit("lisbon", EPOCH, "returns", encoded(page, record(jid, "a")))
    await master.inbox.unknown_job("lisbon", jid)
    assert outcomes(master, jid) == {("lisbon", "a"): "ok", ("lisbon", "b"): "unknown"}
    # One that it never had is only offered again.
    await master.inbox.unknown_job("madrid", jid)
    assert opened.branches["madrid"].state is BranchState.WAITING


async def test_the_sites_own_word_in_a_story_takes_the_place_of_site_dark(master: Rooms) -> None:
    opened = await issued(master)
    jid = opened.job.jid
    (page,) = pages(jid, "lisbon", ["a", "b"], 1, final=True)
    dark = [record(jid, name, Outcome.SITE_DARK) for name in "ab"]
    await master.inbox.commit(
        "lisbon", EPOCH, "returns", encoded(page, *dark, Close(jid=jid, site="lisbon", counts={"site_dark": 2}))
    )
    await master.inbox.commit_story("lisbon", told_of(opened, "a", "b"))
    assert outcomes(master, jid) == {("lisbon", "a"): "ok", ("lisbon", "b"): "ok"}
    assert +opened.counts == {"ok": 2}


async def test_a_story_that_was_asked_for_before_a_crash_is_asked_for_after_it(tmp_path: Path) -> None:
    job = a_job()
    async with a_master(tmp_path / "central", "lisbon") as master:
        Asked(master)
        await master.inbox.commit("lisbon", EPOCH, "returns", encoded(record(job.jid, "a")))
    async with a_master(tmp_path / "central", "lisbon") as master:
        asked = Asked(master)
        await master.branches.site_up("lisbon")
        assert asked.jobs == [(job.jid, "lisbon", True)]
        await master.inbox.commit_story("lisbon", bodies(JobDefinition(encode(job), "lisbon"), *answer(job.jid, "a")))
        assert outcomes(master, job.jid) == {("lisbon", "a"): "ok"}
        await master.branches.site_up("lisbon")
        assert len(asked.jobs) == 1


async def test_a_job_that_ended_as_site_dark_is_asked_for_when_the_site_is_back(tmp_path: Path) -> None:
    clock = HandClock()
    async with a_master(tmp_path / "central", "lisbon", clock=clock) as master:
        opened = await issued(master, expires_seconds=10.0)
        jid, branch = opened.job.jid, opened.branches["lisbon"]
        (page,) = pages(jid, "lisbon", ["a", "b"], 1, final=False)
        await master.inbox.commit("lisbon", EPOCH, "returns", encoded(page))
        clock.move(100.0)
        await master.branches.look_at(opened, branch, Terms(opened.deadline, "drop", 3600.0, False), clock.monotonic())
        assert outcomes(master, jid) == {("lisbon", "a"): "site_dark", ("lisbon", "b"): "site_dark"}
        await until(lambda: master.open_jobs.get(jid) is None, what="the close")
    # The outcomes went to another master, to which the spool goes now.
    async with a_master(tmp_path / "central", "lisbon", clock=clock) as master:
        asked = Asked(master)
        await master.branches.site_up("lisbon")
        assert asked.jobs == [(jid, "lisbon", True)]
        await master.inbox.commit_story("lisbon", told_of(opened, "a", "b", "c"))
        assert outcomes(master, jid) == {("lisbon", name): "ok" for name in "abc"}
        view = await master.views.one(jid)
        assert (view["expected"], view["counts"]) == (3, {"ok": 3})
        await master.branches.site_up("lisbon")
        assert len(asked.jobs) == 1


async def test_many_jobs_that_are_still_to_be_told_are_asked_for_one_after_another(tmp_path: Path) -> None:
    jobs = [a_job(number) for number in range(AT_ONCE + 10)]
    async with a_master(tmp_path / "central", "lisbon") as master:
        Asked(master)
        await master.inbox.commit("lisbon", EPOCH, "returns", encoded(*(record(job.jid, "a") for job in jobs)))
    async with a_master(tmp_path / "central", "lisbon") as master:
        asked = Asked(master)
        await master.branches.site_up("lisbon")
        assert len(asked.jobs) == AT_ONCE
        for jid, _, _ in asked.jobs:
            await master.inbox.unknown_job("lisbon", jid)
        assert [jid for jid, _, _ in asked.jobs] == [job.jid for job in jobs]
        await master.branches.site_up("lisbon")
        assert len(asked.jobs) == len(jobs)


async def test_a_site_under_a_new_epoch_is_asked_what_it_still_knows_of_what_it_took(master: Rooms) -> None:
    asked, kept, lost = Asked(master), await issued(master), await issued(master)
    for number, opened in enumerate((kept, lost)):
        (page,) = pages(opened.job.jid, "lisbon", ["a", "b"], 1, final=True)
        ended = record(opened.job.jid, "a")
        await master.inbox.commit("lisbon", EPOCH, "returns", encoded(page, ended, first=1 + 2 * number))
    assert await master.inbox.position("lisbon", OTHER_EPOCH) == ({}, 0)
    master.downlinks["sites"] = NoLine()
    await master.branches.site_up("lisbon")
    assert asked.jobs == [(opened.job.jid, "lisbon", True) for opened in (kept, lost)]
    # Its store was salvaged, and one of the two was in what could be read.
    await master.inbox.commit_story("lisbon", told_of(kept, "a", "b"))
    await master.inbox.unknown_job("lisbon", lost.job.jid)
    assert outcomes(master, kept.job.jid) == {("lisbon", "a"): "ok", ("lisbon", "b"): "ok"}
    assert outcomes(master, lost.job.jid) == {("lisbon", "a"): "ok", ("lisbon", "b"): "unknown"}
