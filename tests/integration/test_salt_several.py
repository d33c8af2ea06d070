"""A Salt master orders several functions in one job: each has to be granted, and the answer is one for each device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from device_agent.protocol.messages import Job, JobDefinition, OutcomeRecord, encode
from device_agent.protocol.outcomes import Outcome, State
from device_agent.protocol.several import SEVERAL
from gateway.salt.answers import load_of
from tests.peers.clock import HandClock
from tests.peers.database import a_job
from tests.peers.salt_above import SaltAboveDouble, published
from tests.peers.salt_gate import JID, MASTER, opened
from tests.peers.salt_sending import ONE, Sending
from tests.peers.waiting import until

TWO_FUNCTIONS = ["test.echo", "test.version"]
ARGUMENTS: list[Any] = [["hello"], []]


async def test_it_is_one_job_of_each_device(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1", "cam-2")
        await gate.orders.take(published(JID, TWO_FUNCTIONS, ARGUMENTS), MASTER)
        job = gate.job().job
        assert (job.fun, job.origin) == (SEVERAL, "salt")
        assert job.arg == [["test.echo", ["hello"], {}], ["test.version", [], {}]]
        assert sorted(gate.job().waiting) == ["cam-1", "cam-2"]
        await gate.orders.take(published(JID, TWO_FUNCTIONS, ARGUMENTS), MASTER)
        assert gate.rooms.metrics.counters["salt_orders_repeated"] == 1


async def test_salt_finds_it_while_it_runs_as_it_ordered_it(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1")
        named = [["hello", {"__kwarg__": True, "x": 1}], []]
        await gate.orders.take(published(JID, TWO_FUNCTIONS, named), MASTER)
        gate.waiting("cam-1").state = State.RUNNING
        await gate.orders.take(published(str(int(JID) + 1), "saltutil.find_job", [JID]), MASTER)
        found = gate.told.values()["cam-1"]
        assert (found["fun"], found["arg"]) == (TWO_FUNCTIONS, [["hello", {"x": 1, "__kwarg__": True}], []])


@pytest.mark.parametrize("functions", [["test.ping", "cmd.run"], ["cmd.run", "test.ping"]])
@pytest.mark.parametrize("granted", [("looks",), ("test.*",), ("test.*", "looks", "_several.*")])
async def test_one_that_was_not_granted_to_salt_is_enough(
    functions: list[str], granted: tuple[str, ...], tmp_path: Path, clock: HandClock
) -> None:
    async with opened(tmp_path, clock, *granted) as gate:
        gate.hello("cam-1", "cam-2")
        await gate.orders.take(published(JID, functions, [[], []]), MASTER)
        assert gate.rooms.open_jobs.get(JID) is None
        found = await gate.outcomes()
        assert sorted(found) == ["cam-1", "cam-2"]
        assert found["cam-1"].why.startswith("not_granted: cmd.run is not granted")
        assert found["cam-1"].fun == ",".join(functions)
        rows = await gate.rooms.reader.rows("SELECT verdict, fun FROM audit")
        assert list(rows) == [("deny", ",".join(functions))]


@pytest.mark.parametrize("functions", [["test.ping", "grains.items"], ["grains.items", "test.ping"]])
async def test_the_callers_list_is_held_against_each(functions: list[str], tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1", "door")
        listed = [{"cam-*": [".*"]}, {"door": ["test.*"]}]
        await gate.orders.take(published(JID, functions, [[], []], auth_list=listed), MASTER)
        assert list(gate.job().waiting) == ["cam-1"]
        (refused,) = (await gate.outcomes()).values()
        assert (refused.id, refused.outcome) == ("door", "refused")
        assert "grains.items here" in refused.why


@pytest.mark.parametrize(
    ("fun", "arg", "says"),
    [
        ("test.ping,test.version", [[], []], "is no function"),
        (["test.ping,test.version"], [[]], "a list of one function"),
        (["test.ping,cmd.run", "test.ping"], [[], []], "test.ping,cmd.run is no function"),
        (["test.ping,cmd.run", "test.ping"], [[], [], []], "test.ping,cmd.run is no function"),
        (["test.ping", "test.version"], [[]], "2 functions take as many lists"),
        (["test.ping", "test.version"], ["a", "b"], "2 functions take as many lists"),
        (["test.ping", "saltutil.find_job"], [[], [JID]], "order it by itself"),
        (["test.ping", "saltutil.kill_job"], [[], [JID]], "order it by itself"),
        (["test.ping", SEVERAL], [[], []], "module.function"),
        (["test.ping", "nonsense"], [[], []], "module.function"),
        (["test.versions_report"] * 7, [[]] * 7, "at most 130"),
    ],
)
async def test_what_cannot_be_one_job_is_refused_in_words(
    fun: Any, arg: list[Any], says: str, tmp_path: Path, clock: HandClock
) -> None:
    async with opened(tmp_path, clock, "looks", "cmd.*") as gate:
        gate.hello("cam-1")
        await gate.orders.take(published(JID, fun, arg), MASTER)
        assert gate.rooms.open_jobs.get(JID) is None
        found = await gate.outcomes()
        assert says in found["cam-1"].why


@pytest.mark.parametrize("fun", ["test.ping,cmd.run", ["test.ping,cmd.run"]])
async def test_a_comma_in_a_name_slips_through_no_list(fun: Any, tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks", "cmd.*") as gate:
        gate.hello("cam-1")
        await gate.orders.take(published(JID, fun, [[], ["id"]], auth_list=["test.*"]), MASTER)
        assert gate.rooms.open_jobs.get(JID) is None
        assert (await gate.outcomes())["cam-1"].outcome == "refused"


async def test_masters_are_told_lists_as_a_minion_tells_them(gate: Sending) -> None:
    jid = await gate.ordered(1, ONE, fun=TWO_FUNCTIONS, arg=ARGUMENTS)
    ours = a_job(3, fun=SEVERAL, arg=[["test.echo", ["hello"], {}], ["test.version", [], {}]])
    await gate.rooms.writer.commit(gate.rooms.spool.adding([JobDefinition(encode(ours), "lisbon")]))
    codes = {"test.echo": 3, "test.version": 0}
    for each in (jid, ours.jid):
        record = OutcomeRecord(
            jid=each, site="lisbon", id="cam-1", fun="", outcome=Outcome.FAILED, value={}, ended=1.0, retcodes=codes
        )
        await gate.rooms.writer.commit(gate.rooms.spool.adding([record]))
    gate.rooms.spool.added()
    above = SaltAboveDouble()
    gate.sender.active(ONE, True)
    async with above.linked(gate.sender, ONE):
        await until(gate.emptied, what="everything to be confirmed")
    told = {entry.jid: entry for entry in above.told}
    for each in (jid, ours.jid):
        assert list(told[each].fun) == TWO_FUNCTIONS
        assert told[each].answers["cam-1"].fun_args == ARGUMENTS
        assert told[each].answers["cam-1"].retcodes == codes
    assert (told[ours.jid].load["fun"], told[ours.jid].load["arg"]) == (TWO_FUNCTIONS, ARGUMENTS)


def test_what_is_sealed_to_devices_has_a_name_all_the_same() -> None:
    job: Job = a_job(1, fun=SEVERAL, sealed=True)
    assert (load_of(job)["fun"], load_of(job)["arg"]) == (SEVERAL, [])
