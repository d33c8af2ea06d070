"""An answer that a Salt master never takes is found, let go of by name, and holds no other; nothing else is let go."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest

from device_agent.errors import OutstationError, Refused
from device_agent.protocol.messages import Event, JobDefinition, encode
from device_agent.questions import Unanswered
from gateway.salt.not_taken import TRIES
from gateway.spool.ledger import recount
from tests.peers.database import FIRST_JID, a_job
from tests.peers.salt_above import SaltAboveDouble
from tests.peers.salt_sending import ONE, Sending
from tests.peers.waiting import until
from upstream.salt.ports import NotConfirmed, ReturnsOfJob

NAMES = [f"cam-{number:03}" for number in range(150)]
REFUSALS = [NotConfirmed("the master does not confirm _syndic_return"), Refused("stale_session"), Refused("too_deep")]


async def run_again_and_again(gate: Sending, one: SaltAboveDouble) -> None:
    """As a link does, without its pauses."""
    while True:
        with suppress(Unanswered, Refused):
            await gate.sender.run(one, ONE)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
async def test_an_answer_that_a_master_does_not_take_is_found_and_the_others_go_up(
    gate: Sending, refusal: OutstationError, caplog: pytest.LogCaptureFixture
) -> None:
    jid = await gate.ordered(1, ONE)
    await gate.answered(jid, *NAMES[:70])
    await gate.answered(jid, "odd-one", value="odd")
    await gate.answered(jid, *NAMES[70:])
    one = SaltAboveDouble()
    one.odd, one.refusal = "odd", refusal
    async with asyncio.TaskGroup() as group:
        running = group.create_task(run_again_and_again(gate, one))
        await until(gate.emptied)
        running.cancel()
    assert one.refused.count(1) == TRIES + 1, "before that it may be taken yet"
    assert one.looked_at == 1
    assert sorted(one.answers()) == [(jid, name) for name in [*NAMES, "odd-one"]]
    (said,) = [entry.answers["odd-one"] for entry in one.told if "odd-one" in entry.answers]
    assert (said.retcode, said.success) == (1, False)
    assert said.value.startswith("not_taken: ")
    assert await gate.dropped("returns") == {"not_taken": 1}
    assert all(found.equal for found in await recount(gate.rooms.spool.path))
    assert f"jid={jid} device=odd-one" in caplog.text
    ((waits,),) = await gate.rooms.reader.rows("SELECT waits FROM salt_kept WHERE jid = ?", (jid,))
    assert waits == 1 - 151, "the order waits for it no longer"


async def test_a_job_that_a_master_cannot_store_costs_none_of_its_answers(gate: Sending) -> None:
    job = a_job(3, user="ops", fun="test.echo", arg=["odd"])
    await gate.rooms.writer.commit(gate.rooms.spool.adding([JobDefinition(encode(job), "lisbon")]))
    await gate.answered(job.jid, *NAMES, value="said")
    await gate.answered(await gate.ordered(1, ONE), *NAMES)
    gate.sender.active(ONE, True)
    one = SaltAboveDouble()
    one.odd_arguments = ["odd"]
    async with asyncio.TaskGroup() as group:
        running = group.create_task(run_again_and_again(gate, one))
        await until(gate.emptied)
        running.cancel()
    assert not await gate.dropped("returns")
    assert len(one.answers()) == len(set(one.answers())) == 2 * len(NAMES)
    assert {entry.answers[name].value for entry in one.told if entry.load for name in entry.answers} == {"said"}
    assert gate.rooms.metrics.counters["salt_answers_sent"] == 2 * len(NAMES)
    assert len(one.refused) < 50, "the job is found once, not for each of its answers"


async def test_a_master_that_stores_no_answer_costs_none(gate: Sending) -> None:
    jid = await gate.ordered(1, ONE)
    await gate.answered(jid, *NAMES[:20])
    one = SaltAboveDouble()
    one.stores = False
    for _ in range(3 * TRIES):
        await gate.not_answered(one)
    assert not await gate.dropped("returns")
    one.stores = True
    async with one.linked(gate.sender, ONE):
        await until(gate.emptied)
    assert one.answers() == [(jid, name) for name in NAMES[:20]]


class StartsAnew(SaltAboveDouble):
    """Takes answers again after so many refusals, and is asked in vain whether it is there until ``up`` is set."""

    up = True

    async def returns(self, entries: Sequence[ReturnsOfJob]) -> None:
        if len(self.refused) < TRIES:
            self.refused.append(1)
            raise Refused("stale_session")
        await super().returns(entries)

    async def request(self, cmd: str, fields: Mapping[str, Any], *, patience: float) -> Any:
        if not self.up:
            raise Refused("stale_session")
        return await super().request(cmd, fields, patience=patience)


async def test_an_answer_that_met_a_master_that_starts_anew_three_times_is_told_itself(gate: Sending) -> None:
    jid = await gate.ordered(1, ONE)
    await gate.answered(jid, "cam-1")
    one = StartsAnew()
    for _ in range(TRIES - 1):
        await gate.not_answered(one)
    one.up = False
    await gate.not_answered(one)
    one.up, one.refused[:] = True, [1] * (TRIES - 1)
    async with one.linked(gate.sender, ONE):
        await until(gate.emptied)
    assert not await gate.dropped("returns")
    assert [answer.value for entry in one.told for answer in entry.answers.values()] == ["hello"]
    assert gate.rooms.metrics.counters["salt_answers_sent"] == 1


async def test_a_scheduled_run_that_is_taken_plainly_is_counted_as_sent(gate: Sending) -> None:
    run = {"id": "cam-1", "jid": str(FIRST_JID), "fun": "test.echo", "fun_args": ["odd"], "schedule": "beat"}
    event = Event(
        tag=f"salt/job/{FIRST_JID}/ret/cam-1", data={**run, "return": "x", "outcome": "ok"}, stamp=1.0, site="lisbon"
    )
    await gate.rooms.writer.commit(gate.rooms.spool.adding([event]))
    gate.sender.active(ONE, True)
    one = SaltAboveDouble()
    one.odd_arguments = ["odd"]
    async with asyncio.TaskGroup() as group:
        running = group.create_task(run_again_and_again(gate, one))
        await until(gate.emptied)
        running.cancel()
    assert one.answers() == [(str(FIRST_JID), "cam-1")]
    assert gate.rooms.metrics.counters["salt_answers_sent"] == 1


async def test_a_master_that_does_not_answer_is_told_no_less_at_once_and_costs_no_answer(gate: Sending) -> None:
    jid = await gate.ordered(1, ONE)
    await gate.answered(jid, "cam-1")
    one = SaltAboveDouble()
    one.deaf = True
    for _ in range(3 * TRIES):
        await gate.not_answered(one)
    assert not await gate.dropped("returns")
    assert {answer.value for entry in one.told for answer in entry.answers.values()} == {"hello"}
    await gate.answered(jid, *NAMES)
    one.deaf = False
    one.told.clear()
    async with one.linked(gate.sender, ONE):
        await until(gate.emptied)
    assert len(one.told) == 2


async def test_a_scheduled_run_is_not_let_go_while_a_master_takes_events_and_stores_no_answer(gate: Sending) -> None:
    run = {"id": "cam-1", "jid": str(FIRST_JID), "fun": "test.echo", "schedule": "beat", "return": "x", "outcome": "ok"}
    event = Event(tag=f"salt/job/{FIRST_JID}/ret/cam-1", data=run, stamp=1.0, site="lisbon")
    await gate.rooms.writer.commit(gate.rooms.spool.adding([event]))
    gate.sender.active(ONE, True)
    one = SaltAboveDouble()
    one.stores = False
    for _ in range(3 * TRIES):
        await gate.not_answered(one)
    assert not await gate.dropped()
    one.stores, one.odd = True, "x"
    async with one.linked(gate.sender, ONE):
        await until(gate.emptied)
    assert await gate.dropped() == {"not_taken": 1}
    assert one.answers() == [(str(FIRST_JID), "cam-1")]
