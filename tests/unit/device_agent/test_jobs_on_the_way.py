"""Jobs that have their turn and wait for the machine that they are for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from device_agent.host import Host
from device_agent.local_host import LocalHost
from device_agent.protocol import limits
from device_agent.protocol.messages import Return
from tests.peers.device_bench import MINE, Bench, Cancel, deliver, job, turns


class Way:
    """The way to the machine, which takes as long as the test says."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Host]:
        await self.open.wait()
        yield LocalHost({})


@pytest.fixture
def way(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Way:
    made = Way()
    monkeypatch.setattr(bench.device.jobs, "_lend", made.lend)
    return made


async def test_a_job_that_waits_for_its_machine_is_cancelled_and_others_take_its_turn(bench: Bench, way: Way) -> None:
    bench.join()
    for number in range(limits.DEVICE_RUNNING + 2):
        bench.give(deliver(job(number)))
    await turns()
    for number in range(limits.DEVICE_RUNNING):
        bench.give(Cancel(job(number).jid), MINE)
    bench.give(deliver(job(0)))
    cancelled = [message for message in bench.taken() if isinstance(message, Return)]
    assert [message.outcome for message in cancelled] == ["cancelled"] * (limits.DEVICE_RUNNING + 1)
    way.open.set()
    await turns(20)
    await bench.settle()
    done = {message.jid: message.outcome for message in bench.taken() if isinstance(message, Return)}
    assert done == {job(number).jid: "ok" for number in (limits.DEVICE_RUNNING, limits.DEVICE_RUNNING + 1)}
    assert bench.device.jobs.executions.keys() == done.keys()


async def test_a_job_whose_time_passes_on_the_way_to_its_machine_expires(bench: Bench, way: Way) -> None:
    bench.join()
    bench.give(deliver(job(1), remaining=10.0))
    await turns()
    bench.clock.now += 11.0
    way.open.set()
    await bench.settle()
    [told] = [message for message in bench.taken() if isinstance(message, Return)]
    assert (told.outcome, told.executions) == ("expired", 0)
    assert told.why == "the deadline passed while the job waited for a connection to the device"


async def test_a_job_does_not_begin_where_the_machine_is_reached_when_no_more_may(bench: Bench, way: Way) -> None:
    bench.join()
    bench.give(deliver(job(1)))
    await turns()
    bench.device.jobs.draining = True
    way.open.set()
    await bench.settle()
    assert bench.taken() == []
    assert bench.journal.find(job(1).jid) is None
