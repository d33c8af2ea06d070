"""A device's jobs as its own functions see and end them: saltutil.*."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from device_agent.outbox import MemoryJournal
from device_agent.protocol import limits
from device_agent.protocol.messages import Return
from tests.peers.device_bench import Bench, deliver, job, turns
from tests.peers.waiting import until


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with asyncio.TaskGroup() as group:
        made = Bench(group, MemoryJournal())
        yield made
        for task in made.tasks:
            task.cancel()


async def test_a_running_job_is_seen_and_can_be_ended_with_all_that_it_started(bench: Bench, tmp_path: Path) -> None:
    bench.join()
    command = f"echo $$ > {tmp_path}/pid; sleep 600; true"
    bench.give(deliver(job(1, fun="cmd.run", arg=[command], tgt="cam-*")))
    await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n"))
    bench.give(deliver(job(2, fun="saltutil.find_job", arg=[job(1).jid])))
    bench.give(deliver(job(3, fun="saltutil.running")))
    bench.give(deliver(job(4, fun="saltutil.kill_job", arg=[job(1).jid])))
    await bench.settle()
    told = {message.jid: message for message in bench.taken() if isinstance(message, Return)}
    found = told[job(2).jid].value
    assert (found["fun"], found["arg"], found["tgt"], found["user"]) == ("cmd.run", [command], "cam-*", "ops")
    assert {each["fun"] for each in told[job(3).jid].value} >= {"cmd.run", "saltutil.running"}
    assert told[job(4).jid].value == f"Signal 9 sent to job {job(1).jid} at pid {os.getpid()}"
    ended = told[job(1).jid]
    assert (ended.outcome, ended.retcode, ended.why) == ("failed", 1, "stopped by saltutil.kill_job")
    pid = int((tmp_path / "pid").read_text())
    await until(lambda: not Path(f"/proc/{pid}").exists())


async def test_jobs_can_be_ended_when_all_places_are_taken(bench: Bench) -> None:
    bench.join()
    for number in range(limits.DEVICE_RUNNING + 2):
        bench.give(deliver(job(number, fun="test.sleep", arg=[600])))
    await turns()
    bench.give(deliver(job(90, fun="saltutil.kill_all_jobs")))
    await until(lambda: any(isinstance(message, Return) and message.jid == job(90).jid for message in bench.guard.sent))
    bench.give(deliver(job(91, fun="saltutil.term_all_jobs")))
    await bench.settle()
    told = {message.jid: message for message in bench.taken() if isinstance(message, Return)}
    assert len(told[job(90).jid].value) == limits.DEVICE_RUNNING
    assert len(told[job(91).jid].value) == 2
    assert {told[job(number).jid].outcome for number in range(limits.DEVICE_RUNNING + 2)} == {"failed"}


async def test_a_job_that_does_not_run_cannot_be_ended(bench: Bench) -> None:
    bench.join()
    bench.give(deliver(job(1, fun="saltutil.kill_job", arg=[job(7).jid])))
    await bench.settle()
    [told] = bench.taken()
    assert isinstance(told, Return)
    assert (told.outcome, told.value) == ("ok", "")
