"""The recovery: what a restart makes of the jobs that were open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from device_agent.protocol.links import Parcel
from device_agent.protocol.messages import (
    decode_value,
    encode,
)
from device_agent.protocol.outcomes import State
from gateway.jobs.expect import pages
from gateway.rooms import Rooms
from tests.peers.central import EPOCH, a_master, answer, issued, record
from tests.peers.clock import HandClock
from tests.peers.database import a_job, encoded, look, opened_rooms


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Rooms]:
    async with a_master(tmp_path, "lisbon", "madrid") as rooms:
        yield rooms


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
                    (
                        "INSERT INTO outcomes (jid, site, device, link, fun, outcome, retcode, why, ended, duration,"
                        " executions) VALUES (?, 'lisbon', 'here', '', ?, 'ok', 0, '', 1, 0, 1)"
                    ),
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
        await rooms.inbox.commit("closed", EPOCH, "returns", encoded(*answer(jid, "a", site="closed")))
        pages_of = pages(jid, "answered", ["b", "c"], 1, final=True)
        await rooms.inbox.commit("answered", EPOCH, "returns", encoded(*pages_of, record(jid, "b", site="answered")))
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
            await rooms.acceptance.accept_from_above(Parcel(body, ()), 300.0, "tcp://above:1")
            assert rooms.metrics.counters["jobs_accepted"] == taken
            assert rooms.metrics.counters["jobs_repeated"] == 1 - taken
    assert look(tmp_path / "station.sqlite", "SELECT count(*) FROM jobs") == [(1,)]


async def test_values_come_back_from_disk_as_they_were_sent(master: Rooms) -> None:
    opened = await issued(master)
    jid = opened.job.jid
    value = {"text": "é\0", "list": [None, True, 1.5, -1], "bytes": b"\xff"}
    (page,) = pages(jid, "lisbon", ["a"], 1, final=True)
    await master.inbox.commit("lisbon", EPOCH, "returns", encoded(page, record(jid, "a", value=value)))
    ((stored,),) = look(master.writer._path, "SELECT value FROM outcomes")
    assert decode_value(stored) == value
