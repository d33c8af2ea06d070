"""Orders for more devices than one signed list can name: several jobs here, one to the Salt master."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import StationFailed
from device_agent.protocol import limits
from device_agent.protocol.messages import encode_value
from device_agent.protocol.outcomes import State
from gateway.jobs.open_jobs import OpenJob
from gateway.store.writer import Statement
from tests.peers.clock import HandClock
from tests.peers.database import FIRST_JID
from tests.peers.salt_above import published
from tests.peers.salt_gate import JID, MASTER, Gate, opened
from tests.peers.salt_resources import CAMERAS

NAMES = [f"{number:0>128}" for number in range(2_100)]
"""Of the longest names there are: 1,016 of them are a target."""

MOST = "T@camera and not door"
"""All but one, which can be said by their names alone."""


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Gate]:
    async with opened(tmp_path, HandClock(), "looks", "saltutil.*", resources=CAMERAS) as gate:
        gate.hello(*NAMES, "door")
        await gate.orders.take(published(JID, tgt=MOST, tgt_type="compound"), MASTER)
        yield gate


def jobs(gate: Gate, fun: str = "test.ping") -> list[OpenJob]:
    return [job for job in gate.rooms.open_jobs if job.job.fun == fun]


def put(gate: Gate, state: State) -> None:
    for job in jobs(gate):
        for waiting in job.waiting.values():
            waiting.state = state


async def test_each_device_is_ordered_once_and_announced_once(gate: Gate) -> None:
    for _ in range(2):
        assert gate.told.announced == [(MASTER, JID, NAMES)]
        assert sorted(name for job in jobs(gate) for name in job.waiting) == NAMES
        assert len(jobs(gate)) == 3
        assert max(len(job.job.tgt) for job in jobs(gate)) <= limits.TARGET_CHARACTERS
        for job in jobs(gate):
            kept = await gate.book.get(job.job.jid)
            assert kept is not None
            assert (kept.told_as, kept.load["tgt"]) == (JID, MOST), "it is answered as it was published"
        # Another master publishes it as well.
        await gate.orders.take(published(JID, tgt=MOST, tgt_type="compound"), MASTER)
    assert gate.rooms.metrics.counters["salt_orders_repeated"] == 2


async def test_as_many_may_be_named_one_by_one(gate: Gate) -> None:
    jid = str(FIRST_JID + 100)
    for names in ([*NAMES, "somebody-else"], NAMES, ["door", NAMES[0]]):
        await gate.orders.take(published(jid, "test.version", tgt=names, tgt_type="list"), MASTER)
    ordered = jobs(gate, "test.version")
    assert sorted(name for job in ordered for name in job.waiting) == sorted([*NAMES, "door"])
    assert len(ordered) == 4, "three, and one for the device that a batch came to later"
    assert gate.told.announced[1:] == [(MASTER, jid, NAMES), (MASTER, jid, ["door"])]


@pytest.mark.parametrize("probed", [("T@camera", "compound"), ([*NAMES, "door"], "list")], ids=["type", "names"])
async def test_whether_it_runs_is_said_by_each_device_under_the_masters_jid(
    probed: tuple[str | list[str], str], gate: Gate
) -> None:
    tgt, kind = probed
    put(gate, State.RUNNING)
    del jobs(gate)[2].waiting[NAMES[-1]]
    probe = published(str(FIRST_JID + 100), "saltutil.find_job", [JID], tgt=tgt, tgt_type=kind)
    await gate.orders.take(probe, MASTER)
    answered = Counter(name for entry in gate.told.entries for name in entry.answers)
    assert answered == dict.fromkeys([*NAMES, "door"], 1)
    values = gate.told.values()
    assert {name for name, value in values.items() if value} == set(NAMES[:-1])
    assert {value["jid"] for value in values.values() if value} == {JID}
    assert len(encode_value(values)) < 2_000_000


async def test_all_of_it_that_runs_is_ended_by_the_jid_that_each_device_knows(gate: Gate) -> None:
    put(gate, State.RUNNING)
    # Of the second part only one device is still at it; the others have no part of their own any more.
    left = NAMES[1_500]
    jobs(gate)[1].waiting = {left: jobs(gate)[1].waiting[left]}
    kill = published(str(FIRST_JID + 100), "saltutil.kill_job", [JID], tgt=MOST, tgt_type="compound")
    await gate.orders.take(kill, MASTER)
    known = {name: job.job.jid for job in jobs(gate) for name in job.waiting}
    killed = [(name, job.job.arg[0]) for job in jobs(gate, "saltutil.kill_job") for name in job.waiting]
    assert sorted(killed) == [(name, known.get(name, JID)) for name in NAMES]
    assert gate.told.announced[1:] == [(MASTER, kill.jid, NAMES)]


async def test_all_of_it_that_has_not_started_is_cancelled_at_once(gate: Gate) -> None:
    put(gate, State.QUEUED)
    kill = published(str(FIRST_JID + 100), "saltutil.kill_job", [JID], tgt="T@camera", tgt_type="compound")
    await gate.orders.take(kill, MASTER)
    assert all(job.cancelled for job in jobs(gate))
    says = f"Job {JID} is cancelled, it had not started"
    assert gate.told.values() == {**dict.fromkeys(NAMES, says), "door": ""}


async def test_a_disk_that_fails_between_two_parts_leaves_no_device_without_an_answer_and_the_order_may_come_again(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = published(str(FIRST_JID + 100), "test.version", tgt=MOST, tgt_type="compound")
    adding, turns = gate.book.adding, count(1)

    def at_its_second_turn(*given: Any) -> list[Statement]:
        if next(turns) == 2:
            raise StationFailed("the store failed")
        return adding(*given)

    monkeypatch.setattr(gate.book, "adding", at_its_second_turn)
    assert not await gate.orders.take(order, MASTER)
    (ordered,) = jobs(gate, "test.version")
    (told,) = gate.told.entries
    assert (told.jid, sorted(told.answers)) == (order.jid, NAMES[2 * len(ordered.waiting) :])
    assert all("try again" in str(answer.value) for answer in told.answers.values())
    assert gate.rooms.metrics.refusals["salt", "store_failed"] == 1

    assert await gate.orders.take(order, MASTER)
    assert sorted(name for job in jobs(gate, "test.version") for name in job.waiting) == NAMES
    assert gate.rooms.metrics.counters["salt_orders_taken"] == 2, "the one of the fixture, and this one once"
