"""gateway/jobs/doubted.py: what a start in doubt makes of open jobs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from device_agent.protocol.messages import encode_value
from device_agent.protocol.outcomes import Outcome, State
from device_agent.protocol.stations import station_device
from gateway.jobs.doubted import DoubtedJobs
from gateway.jobs.open_jobs import OpenJob, OpenJobs, Waiting
from gateway.jobs.silence import WINDOW, Presence, Terms, Verdict, judge_device
from tests.peers.clock import HandClock
from tests.peers.database import a_job

SITE = "lisbon"
AWAY = Presence(present=False, unheard=False, gone=0.0)


class Reader:
    async def rows(self, sql: str) -> list[tuple[str]]:
        assert "ssh_devices" in sql
        return [("door-1",)]


class Writer:
    def __init__(self) -> None:
        self.handed_out: list[tuple[Any, ...]] = []

    async def commit(self, statements: list[tuple[str, list[tuple[Any, ...]]]]) -> None:
        for sql, rows in statements:
            assert sql.startswith("INSERT INTO deliveries")
            self.handed_out += rows


@pytest.mark.parametrize("why", ["", "unknown: it may have run before"])
async def test_a_job_of_before_ends_as_unknown_and_never_as_not_started(why: str) -> None:
    decided: dict[str, Outcome] = {}
    clock, open_jobs = HandClock(), OpenJobs()
    waiting = {name: Waiting() for name in ("cam-1", "door-1", station_device(SITE))}
    job = a_job()
    open_jobs.add(
        OpenJob(job=job, body=b"", origin="above", accepted=0.0, deadline=clock.monotonic() - 1, waiting=waiting)
    )
    writer = Writer()
    doubt: Any = SimpleNamespace(past=lambda: why, on_doubt=lambda call: None)
    collection = SimpleNamespace(decided=lambda opened, name, outcome, reason: decided.update({name: outcome}))
    jobs = DoubtedJobs(
        SITE, doubt, open_jobs, cast("Any", collection), cast("Any", Reader()), cast("Any", writer), clock
    )
    await jobs.end_past()
    assert decided == ({"door-1": Outcome.UNKNOWN, station_device(SITE): Outcome.UNKNOWN} if why else {})
    assert writer.handed_out == ([(job.jid, encode_value(["cam-1"]), "")] if why else [])
    cam = waiting["cam-1"]
    assert cam.state is (State.DELIVERED if why else State.QUEUED)
    terms = Terms(deadline=clock.monotonic() - 1, late="drop", run_limit=60.0, cancelled=False)
    verdict = judge_device(cam.state, cam.since, terms, AWAY, clock.monotonic() + WINDOW)
    assert isinstance(verdict, Verdict)
    assert verdict.outcome is (Outcome.UNKNOWN if why else Outcome.UNREACHABLE)
