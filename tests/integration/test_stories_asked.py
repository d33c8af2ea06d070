"""What a master does with the stories of its jobs: asks for them, holds them to what it knows, and takes each once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from device_agent.protocol.links import Answered, Parcel
from device_agent.protocol.messages import (
    Close,
    JobDefinition,
    encode,
)
from device_agent.protocol.outcomes import Outcome
from gateway.jobs.asking import AT_ONCE
from gateway.jobs.expect import pages
from gateway.jobs.open_jobs import BranchState, OpenJob
from gateway.jobs.silence import Terms
from gateway.rooms import Rooms
from tests.peers.central import EPOCH, OTHER_EPOCH, a_master, an_event, answer, issued, outcomes, record
from tests.peers.clock import HandClock
from tests.peers.database import a_job, encoded, look
from tests.peers.waiting import until

MASTER = "north"
NAMES = ["a", "b", "c"]


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Rooms]:
    async with a_master(tmp_path / "central", "lisbon", "madrid") as rooms:
        yield rooms


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

    async def confirm(self, answered: Answered) -> None:
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
