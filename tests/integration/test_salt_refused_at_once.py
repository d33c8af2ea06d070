"""A Salt master's order that is refused at once, past the spool: one row of the audit says who, what and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from device_agent.protocol.outcomes import State
from gateway.jobs.request import JobRequest
from tests.peers.clock import HandClock
from tests.peers.database import FIRST_JID
from tests.peers.salt_above import published
from tests.peers.salt_gate import JID, MASTER, OTHER, Gate, opened
from upstream.salt.order import SaltOrder

OWN, NEXT = str(FIRST_JID + 5), str(FIRST_JID + 6)
ROW = "SELECT user, door, action, verdict, subject, why, jid, fun, arguments FROM audit WHERE verdict = 'deny'"


async def denied(gate: Gate) -> list[dict[str, Any]]:
    """The rows of the audit that say no."""
    names = ROW.removeprefix("SELECT ").partition(" FROM")[0].split(", ")
    return [dict(zip(names, row, strict=True)) for row in await gate.rooms.reader.rows(ROW)]


async def queued(gate: Gate, master: str) -> None:
    """A job of this master that no device has begun."""
    await gate.orders.take(published(JID), master)
    for waiting in gate.job().waiting.values():
        waiting.state = State.QUEUED


async def of_another_master(gate: Gate) -> SaltOrder:
    await queued(gate, OTHER)
    return published(NEXT, "saltutil.kill_job", [JID])


async def for_some_alone(gate: Gate) -> SaltOrder:
    await queued(gate, MASTER)
    return published(NEXT, "saltutil.term_job", [JID], tgt=["cam-1"], tgt_type="list")


async def beyond_the_caller(gate: Gate) -> SaltOrder:
    await queued(gate, MASTER)
    return published(NEXT, "saltutil.kill_job", [JID], auth_list=["test.*"], user="ann")


async def with_a_jid_of_the_site(gate: Gate) -> SaltOrder:
    jid = await gate.rooms.acceptance.submit(JobRequest(tgt="cam-1", fun="test.ping"), "ops")
    return published(jid, "test.echo", ["hello"])


async def with_a_jid_of_another_shape(_gate: Gate) -> SaltOrder:
    return published(f"{OWN}_4711", "test.echo", ["hello"])


Case = tuple[Callable[[Gate], Any], Sequence[str], str, str, str]
CASES: dict[str, Case] = {
    "another master's": (of_another_master, ["cam-1", "cam-2"], "root", "glob: *", "ordered by another Salt master"),
    "for some alone": (for_some_alone, ["cam-1"], "root", "list: cam-1", "waits for others as well"),
    "beyond the caller": (beyond_the_caller, ["cam-1", "cam-2"], "ann", "glob: *", "ann"),
    "a jid of the site": (with_a_jid_of_the_site, ["cam-1", "cam-2"], "root", "glob: *", "has the jid"),
    "another jid": (with_a_jid_of_another_shape, ["cam-1", "cam-2"], "root", "glob: *", "unique_jid: False"),
}


@pytest.mark.parametrize("kind", CASES)
async def test_a_refusal_that_is_given_at_once_is_audited_once(kind: str, tmp_path: Path, clock: HandClock) -> None:
    order_of, answered, user, subject, why = CASES[kind]
    async with opened(tmp_path, clock, "looks", "saltutil.*") as gate:
        gate.hello("cam-1", "cam-2")
        order = await order_of(gate)
        waited = await gate.rooms.spool.pending()
        await gate.orders.take(order, MASTER)
        values = gate.told.values()
        assert sorted(values) == answered
        assert all(str(value).startswith("refused: ") for value in values.values()), values
        (row,) = await denied(gate)
        assert row["why"]
        assert all(row["why"] in value for value in values.values()), "the audit says what the operator read"
        assert why in row["why"]
        assert (row["user"], row["door"], row["action"]) == (f"{user}@{MASTER}", "salt", "run")
        assert (row["subject"], row["jid"], row["fun"]) == (subject, order.jid, order.fun)
        assert str(order.arg[0]) in row["arguments"]
        # The audit itself goes up; no answer is in the spool.
        assert await gate.outcomes() == {}
        assert await gate.rooms.spool.pending() == waited + 1


async def test_an_order_for_which_there_is_no_room_is_audited_once(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks", rows=1) as gate:
        gate.hello("cam-1")
        await gate.orders.take(published(JID), MASTER)
        assert await denied(gate) == []
        await gate.orders.take(published(NEXT, "test.echo", ["hello"]), MASTER)
        (row,) = await denied(gate)
        assert "too many orders" in row["why"]
        assert (row["user"], row["jid"], row["fun"]) == (f"root@{MASTER}", NEXT, "test.echo")
        assert gate.rooms.open_jobs.get(NEXT) is None


async def test_what_nobody_was_refused_has_no_row(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks", "saltutil.*") as gate:
        gate.hello("cam-1")
        await queued(gate, MASTER)
        for number, fun in enumerate(("saltutil.find_job", "saltutil.kill_job", "saltutil.kill_job")):
            await gate.orders.take(published(str(FIRST_JID + 10 + number), fun, [JID]), MASTER)
        assert await denied(gate) == []
