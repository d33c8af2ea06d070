"""Events, telemetry and the audit reach the active Salt master, and none that it does not take holds the others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from device_agent.protocol.messages import Event
from device_agent.questions import Unanswered
from gateway.audit.deed import Deed
from gateway.salt.not_taken import TRIES
from gateway.spool.ledger import recount
from tests.peers.salt_above import SaltAboveDouble
from tests.peers.salt_sending import ONE, TWO, Sending
from tests.peers.waiting import until


async def test_an_event_that_a_master_does_not_take_is_found_and_those_behind_it_go_up(
    gate: Sending,
) -> None:
    tags = [f"site/door/{number}" for number in range(150)]
    events = [Event(tag=tag, data={}, stamp=1.0, site="lisbon") for tag in tags]
    await gate.rooms.writer.commit(gate.rooms.spool.adding(events))
    gate.sender.active(ONE, True)
    one = SaltAboveDouble()
    one.not_taken = tags[70]
    for _ in range(TRIES - 1):
        await gate.not_answered(one)
    assert not await gate.dropped(), "it may be taken yet"
    async with one.linked(gate.sender, ONE):
        await until(gate.emptied)
    posted = [tag for tag, _ in one.posted]
    assert posted == [*tags[:70], "outstation/lisbon/not_taken", *tags[71:]]
    assert await gate.dropped() == {"not_taken": 1}
    (entry,) = [entry for entry in await gate.rooms.spool.entries() if entry.name == "events"]
    assert (entry.accepted, entry.delivered, entry.pending_bytes) == (150, 149, 0)
    assert all(found.equal for found in await recount(gate.rooms.spool.path))


class SoundAgain(SaltAboveDouble):
    """A master that is through with its start when it is asked whether it is there."""

    async def request(self, cmd: str, fields: Mapping[str, Any], *, patience: float) -> Any:
        self.not_taken = ""
        return await super().request(cmd, fields, patience=patience)


async def test_an_event_that_met_a_master_at_a_bad_time_three_times_is_told_once_more(gate: Sending) -> None:
    events = [Event(tag=f"site/door/{number}", data={}, stamp=1.0, site="lisbon") for number in range(2)]
    await gate.rooms.writer.commit(gate.rooms.spool.adding(events))
    gate.sender.active(ONE, True)
    one = SoundAgain()
    one.not_taken = "site/door/0"
    for _ in range(TRIES - 1):
        await gate.not_answered(one)
    async with one.linked(gate.sender, ONE):
        await until(gate.emptied)
    assert [tag for tag, _ in one.posted] == ["site/door/0", "site/door/1"]
    assert not await gate.dropped()


async def test_a_master_that_takes_nothing_costs_no_event(gate: Sending) -> None:
    events = [Event(tag=f"site/door/{number}", data={}, stamp=1.0, site="lisbon") for number in range(20)]
    await gate.rooms.writer.commit(gate.rooms.spool.adding(events))
    gate.sender.active(ONE, True)
    one = SaltAboveDouble()
    one.reply = ""
    for _ in range(3 * TRIES):
        await gate.not_answered(one)
    assert not await gate.dropped()
    assert await gate.rooms.spool.pending() == 20


async def test_events_that_a_master_did_not_confirm_stay(gate: Sending) -> None:
    event = Event(tag="site/door/open", data={}, stamp=1.0, site="lisbon")
    await gate.rooms.writer.commit(gate.rooms.spool.adding([event]))
    gate.sender.active(ONE, True)
    one = SaltAboveDouble()
    one.reply = ""
    with pytest.raises(Unanswered):
        await gate.sender.run(one, ONE)
    one.reply = None
    async with one.linked(gate.sender, ONE):
        await until(gate.emptied)
    assert [tag for tag, _ in one.posted] == ["site/door/open"] * 2


async def test_events_and_the_audit_go_to_the_active_master_under_tags_that_it_takes(gate: Sending) -> None:
    for tag in ("site/door/open", "salt/key", "salt/job/20261121031500000001/ret/cam-1", "telemetry/cam-1"):
        event = Event(tag=tag, data={"tag": tag}, stamp=1.0, site="lisbon")
        await gate.rooms.writer.commit(gate.rooms.spool.adding([event]))
    await gate.rooms.audit.write([Deed(user="ops", door="socket", action="run", subject="*", verdict="allow")])
    one, two = SaltAboveDouble(), SaltAboveDouble()
    async with one.linked(gate.sender, ONE), two.linked(gate.sender, TWO):
        gate.sender.active(ONE, True)
        gate.rooms.spool.added()
        await until(gate.emptied)
        async with asyncio.timeout(40):
            await gate.sender.emptied(ONE)
    assert not two.posted
    found = dict(one.posted)
    assert set(found) == {
        "site/door/open",
        "outstation/lisbon/salt/key",
        "outstation/lisbon/salt/job/20261121031500000001/ret/cam-1",
        "telemetry/cam-1",
        "outstation/audit/lisbon",
    }
    marks = [data["outstation"]["event"] for data in found.values()]
    assert len(set(marks)) == len(marks)
