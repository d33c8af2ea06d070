"""The jobs of a device: what it answers, what it runs, and what it never runs twice."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from device_agent.outbox import UNCONFIRMED_RETURNS, JournalUnavailable, MemoryJournal
from device_agent.protocol import bitmap, limits
from device_agent.protocol.messages import (
    Confirm,
    EpochWanted,
    Reseal,
    Return,
    Running,
)
from tests.peers.device_bench import INDEX, KID, MINE, Bench, Cancel, Gate, deliver, job, turns


async def test_a_job_runs_and_its_return_says_what_came_of_it(bench: Bench) -> None:
    bench.join()
    bench.give(deliver(job(1)))
    await bench.settle()
    [told] = bench.taken()
    assert isinstance(told, Return)
    assert (told.jid, told.fun, told.outcome, told.value, told.retcode, told.executions) == (
        job(1).jid,
        "test.ping",
        "ok",
        True,
        0,
        1,
    )


async def test_a_repeated_delivery_is_answered_from_the_journal_and_runs_once(bench: Bench) -> None:
    bench.join()
    for _ in range(3):
        bench.give(deliver(job(1)))
        await bench.settle()
    told = bench.taken()
    assert len(told) == 3
    assert told[0] == told[1] == told[2]
    assert bench.device.jobs.executions == {job(1).jid: 1}
    assert bench.counters.repeats == 2


async def test_a_repeat_while_the_job_runs_says_running(bench: Bench, gate: Gate) -> None:
    bench.join()
    bench.give(deliver(job(1)))
    await turns()
    bench.give(deliver(job(1)))
    assert bench.taken() == [Running(job(1).jid)]
    gate.open.set()
    await bench.settle()
    assert gate.calls == ["test.ping"]


async def test_a_job_that_takes_a_while_is_announced_once(bench: Bench, gate: Gate) -> None:
    bench.join()
    bench.give(deliver(job(1)))
    await turns()
    assert bench.tick(0.4) == []
    assert bench.tick(0.2) == [Running(job(1).jid)]
    assert bench.tick(1.0) == []
    gate.open.set()
    await bench.settle()


async def test_a_device_that_is_not_meant_refuses(bench: Bench) -> None:
    bench.join()
    bench.give(deliver(job(1, tgt="cam-8")))
    bench.give(deliver(job(2, tgt="G@kind:door", tgt_type="compound")))
    bench.give(deliver(job(3, tgt="and", tgt_type="compound")))
    whys = [
        (message.outcome, message.why.partition(":")[0]) for message in bench.taken() if isinstance(message, Return)
    ]
    assert whys == [("refused", "not_targeted"), ("refused", "not_targeted"), ("refused", "target_invalid")]
    assert bench.device.jobs.executions == {}


async def test_a_job_whose_time_is_over_expires_and_stays_expired(bench: Bench) -> None:
    bench.join()
    bench.give(deliver(job(1), remaining=0.0))
    bench.give(deliver(job(1), remaining=100.0))
    outcomes = [message.outcome for message in bench.taken() if isinstance(message, Return)]
    assert outcomes == ["expired", "expired"]
    assert bench.device.jobs.executions == {}


async def test_a_job_that_waited_past_its_time_expires_instead_of_running(bench: Bench, gate: Gate) -> None:
    bench.join()
    for number in range(limits.DEVICE_RUNNING):
        bench.give(deliver(job(number)))
    bench.give(deliver(job(99), remaining=10.0))
    await turns()
    bench.clock.now += 11.0
    gate.open.set()
    await turns(20)
    await bench.settle()
    told = {message.jid: message.outcome for message in bench.taken() if isinstance(message, Return)}
    assert told[job(99).jid] == "expired"
    assert len(gate.calls) == limits.DEVICE_RUNNING


async def test_only_so_many_jobs_run_at_once_and_only_so_many_wait(bench: Bench, gate: Gate) -> None:
    bench.join()
    total = limits.DEVICE_RUNNING + limits.DEVICE_QUEUE
    for number in range(total + 2):
        bench.give(deliver(job(number)))
    await turns()
    assert len(gate.calls) == limits.DEVICE_RUNNING
    busy = [message for message in bench.taken() if isinstance(message, Return)]
    assert [message.jid for message in busy] == [job(total).jid, job(total + 1).jid]
    assert all(message.outcome == "refused" and message.why.startswith("busy") for message in busy)
    gate.open.set()
    await bench.settle()
    assert len(gate.calls) == total
    # Refused once is refused for good: the station has that outcome already.
    bench.give(deliver(job(total)))
    await bench.settle()
    assert len(gate.calls) == total


async def test_a_function_that_takes_too_long_is_stopped(bench: Bench) -> None:
    bench.join()
    bench.give(deliver(job(1, fun="test.sleep", arg=[3600], run_limit=0.01)))
    await bench.settle()
    [told] = [message for message in bench.taken() if isinstance(message, Return)]
    assert (told.outcome, told.why, told.executions) == ("timed_out", "stopped after 0.01 s", 1)


async def test_an_unknown_function_comes_back_as_a_refusal(bench: Bench) -> None:
    bench.join()
    bench.give(deliver(job(1, fun="test.pnig")))
    await bench.settle()
    [told] = [message for message in bench.taken() if isinstance(message, Return)]
    assert told.outcome == "refused"
    assert "unknown_function" in told.why


async def test_a_job_interrupted_by_the_end_of_its_owner_gives_no_return(bench: Bench, gate: Gate) -> None:
    bench.join()
    bench.give(deliver(job(1)))
    await turns()
    bench.tasks[0].cancel()
    await turns()
    assert bench.taken() == []
    entry = bench.journal.find(job(1).jid)
    assert entry is not None
    assert entry.place.value == "started"


async def test_a_draining_device_takes_no_new_job(bench: Bench) -> None:
    bench.join()
    bench.device.jobs.draining = True
    bench.give(deliver(job(1)))
    assert bench.taken() == []
    assert bench.device.jobs.executions == {}


class FullDisk(MemoryJournal):
    """A journal whose disk takes nothing."""

    __slots__ = ()

    async def started(self, jid: str, fun: str, kid: bytes, seq: int) -> None:
        raise JournalUnavailable("No space left on device")


async def test_nothing_runs_when_the_journal_cannot_be_written() -> None:
    async with asyncio.TaskGroup() as group:
        bench = Bench(group, FullDisk())
        bench.join()
        bench.give(deliver(job(1)))
        await bench.settle()
        [told] = [message for message in bench.taken() if isinstance(message, Return)]
        assert told.outcome == "refused"
        assert told.why.startswith("journal_unavailable: No space left")
        assert bench.device.jobs.executions == {}


async def test_a_job_older_than_the_journals_memory_is_unknown_and_not_run() -> None:
    async with asyncio.TaskGroup() as group:
        bench = Bench(group, MemoryJournal(results=1, jids=4))
        bench.join()
        for number in range(100, 120):
            bench.give(deliver(job(number)))
            await bench.settle()
            bench.give(Confirm([job(number).jid]))
        bench.taken()
        bench.give(deliver(job(50)))
        [told] = [message for message in bench.taken() if isinstance(message, Return)]
        assert told.outcome == "unknown"
        assert told.why.startswith("journal_forgot")
        assert job(50).jid not in bench.device.jobs.executions


async def test_a_device_full_of_unconfirmed_returns_is_busy_and_stays_bounded(bench: Bench) -> None:
    bench.join()
    for number in range(UNCONFIRMED_RETURNS):
        bench.journal.answered(f"{number:020d}", b"x")
    bench.give(deliver(job(10_000)))
    bench.give(deliver(job(10_001), remaining=-1.0))
    bench.give(Cancel(job(10_002).jid), MINE)
    told = [message for message in bench.taken() if isinstance(message, Return)]
    assert [message.outcome for message in told] == ["refused", "refused", "cancelled"]
    assert len(bench.journal.unconfirmed()) == UNCONFIRMED_RETURNS
    bench.give(Confirm([f"{number:020d}" for number in range(10)]))
    bench.give(deliver(job(10_000)))
    await bench.settle()
    assert bench.device.jobs.executions == {}


async def test_a_waiting_job_is_cancelled_and_a_running_one_goes_on(bench: Bench, gate: Gate) -> None:
    bench.join()
    for number in range(limits.DEVICE_RUNNING + 1):
        bench.give(deliver(job(number)))
    await turns()
    bench.give(Cancel(job(0).jid), MINE)
    bench.give(Cancel(job(limits.DEVICE_RUNNING).jid), MINE)
    running, cancelled = bench.taken()
    assert running == Running(job(0).jid)
    assert isinstance(cancelled, Return)
    assert (cancelled.jid, cancelled.outcome) == (job(limits.DEVICE_RUNNING).jid, "cancelled")
    gate.open.set()
    await bench.settle()
    assert len(gate.calls) == limits.DEVICE_RUNNING


async def test_a_job_cancelled_before_it_arrives_never_runs(bench: Bench) -> None:
    bench.join()
    bench.give(Cancel(job(1).jid, bitmap.pack([INDEX])))
    bench.give(deliver(job(1)))
    await bench.settle()
    assert [message.outcome for message in bench.taken() if isinstance(message, Return)] == ["cancelled", "cancelled"]
    assert bench.device.jobs.executions == {}


async def test_a_cancel_for_everybody_is_no_news_to_a_device_without_the_job(bench: Bench) -> None:
    bench.join()
    bench.give(Cancel(job(1).jid))
    bench.give(Cancel(job(1).jid, bitmap.pack([INDEX + 1])))
    assert bench.taken() == []
    bench.give(deliver(job(1)))
    await bench.settle()
    assert bench.device.jobs.executions == {job(1).jid: 1}


async def test_a_cancel_of_a_finished_job_gets_its_return(bench: Bench) -> None:
    bench.join()
    bench.give(deliver(job(1)))
    await bench.settle()
    [first] = bench.taken()
    bench.give(Cancel(job(1).jid), MINE)
    assert bench.taken() == [first]


async def test_a_return_is_sent_again_ever_more_slowly_until_it_is_confirmed(bench: Bench) -> None:
    bench.join()
    bench.give(deliver(job(1)))
    await bench.settle()
    [first] = bench.taken()
    again = [second for second in range(1, 200) if first in bench.tick(1.0)]
    assert again == [5, 10, 20, 40, 80, 140, 200][: len(again)]
    assert len(again) == 6
    bench.give(Confirm([job(1).jid]))
    assert all(first not in bench.tick(1.0) for _ in range(200))
    assert bench.journal.unconfirmed() == []


async def test_unconfirmed_returns_are_sent_again_at_once_after_a_reconnection(bench: Bench) -> None:
    bench.join()
    bench.give(deliver(job(1)))
    await bench.settle()
    bench.give(deliver(job(2)))
    await bench.settle()
    bench.give(Confirm([job(2).jid]))
    bench.device.lost()
    bench.taken()
    bench.join()
    assert [message.jid for message in bench.tick() if isinstance(message, Return)] == [job(1).jid]


@pytest.mark.parametrize("reason", ["stale_epoch", "unknown_epoch", "stale_seq"])
async def test_a_job_that_could_run_if_it_was_sealed_again_has_no_outcome(bench: Bench, reason: str) -> None:
    bench.join()
    bench.give(deliver(job(1), refusal=reason))
    wanted = [EpochWanted()] if reason == "unknown_epoch" else []
    assert bench.taken() == [*wanted, Reseal(job(1).jid, reason)]
    bench.give(deliver(job(1)))
    await bench.settle()
    [told] = bench.taken()
    assert isinstance(told, Return)
    assert told.outcome == "ok"


async def test_a_job_that_must_not_run_is_refused_with_the_reason_and_for_good(bench: Bench) -> None:
    bench.join()
    bench.give(deliver(job(1), refusal="not_granted"))
    bench.give(deliver(job(1)))
    await bench.settle()
    told = [message for message in bench.taken() if isinstance(message, Return)]
    assert [(message.outcome, message.why) for message in told] == [("refused", "not_granted: says the test")] * 2
    assert bench.device.jobs.executions == {}


async def test_a_job_for_others_is_not_even_opened(bench: Bench) -> None:
    bench.join()
    bench.give(deliver(job(1, tgt="cam-8"), refusal="not_granted"))
    [told] = bench.taken()
    assert isinstance(told, Return)
    assert told.why.startswith("not_targeted")


async def test_the_number_of_a_job_is_remembered_before_it_runs_and_not_before(bench: Bench, gate: Gate) -> None:
    bench.join()
    for number in range(10, 10 + limits.DEVICE_RUNNING + 1):
        bench.give(deliver(job(number)))
    await turns()
    assert bench.journal.marks() == {KID: 9 + limits.DEVICE_RUNNING}
    gate.open.set()
    await bench.settle()
    assert bench.journal.marks() == {KID: 10 + limits.DEVICE_RUNNING}


Words = st.lists(
    st.tuples(st.sampled_from(["deliver", "late", "cancel", "confirm", "lost", "tick", "turn"]), st.integers(1, 6)),
    max_size=40,
)


@settings(max_examples=100, deadline=None)
@given(words=Words)
async def test_whatever_is_said_in_whatever_order_nothing_runs_twice(words: list[tuple[str, int]]) -> None:
    async with asyncio.TaskGroup() as group:
        bench = Bench(group, MemoryJournal(results=2, jids=3))
        bench.join()
        runs: dict[str, int] = {}
        outcomes: dict[str, set[str]] = {}
        for word, number in words:
            before = dict(bench.device.jobs.executions)
            if word in {"deliver", "late"}:
                bench.give(deliver(job(number), remaining=300.0 if word == "deliver" else -1.0))
            elif word == "cancel":
                bench.give(Cancel(job(number).jid), MINE)
            elif word == "confirm":
                bench.give(Confirm([job(number).jid]))
            elif word == "lost":
                bench.device.lost()
                bench.taken()
                bench.join()
            elif word == "tick":
                bench.tick(5.0)
            else:
                await bench.settle()
            assert all(bench.device.jobs.executions[jid] == count for jid, count in before.items())
            for message in bench.taken():
                if isinstance(message, Return) and not message.why.startswith("journal_forgot"):
                    outcomes.setdefault(message.jid, set()).add(message.outcome)
        await bench.settle()
        runs.update(bench.device.jobs.executions)
        assert all(count == 1 for count in runs.values())
        assert all(len(told) == 1 for told in outcomes.values())
