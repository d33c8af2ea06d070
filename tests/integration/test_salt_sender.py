"""What waits in the spool reaches the Salt master that it is for: once, the newest first, and nothing stays unnamed."""

from __future__ import annotations

import asyncio

import pytest

from device_agent.protocol.messages import Event, JobDefinition, encode
from device_agent.questions import Unanswered
from gateway.salt.away import AWAY_SECONDS
from gateway.salt.book import Ordered
from gateway.store.reader import StoreUnreadable
from tests.peers.database import FIRST_JID, a_job
from tests.peers.salt_above import ChannelDouble, SaltAboveDouble
from tests.peers.salt_sending import ONE, TWO, Sending
from tests.peers.waiting import until
from upstream.salt.above import Above
from upstream.salt.terms import SaltRules


async def test_answers_go_to_whoever_ordered_and_the_rest_to_the_active_master(gate: Sending) -> None:
    of_one, of_two = await gate.ordered(1, ONE), await gate.ordered(2, TWO)
    job = a_job(3, user="ops", arg=["x"], kwarg={"y": 1})
    await gate.rooms.writer.commit(gate.rooms.spool.adding([JobDefinition(encode(job), "lisbon")]))
    for jid in (of_one, of_two, job.jid):
        await gate.answered(jid, "cam-1", "cam-2")
    one, two = SaltAboveDouble(), SaltAboveDouble()
    gate.sender.active(TWO, True)
    async with one.linked(gate.sender, ONE), two.linked(gate.sender, TWO):
        await until(gate.emptied, what="everything to be confirmed")
    assert one.answers() == [(of_one, "cam-1"), (of_one, "cam-2")]
    assert two.answers() == [(jid, name) for jid in (of_two, job.jid) for name in ("cam-1", "cam-2")]
    (entry,) = one.told
    assert (entry.fun, entry.load, entry.master_id) == ("test.echo", {}, f"id of {ONE}")
    assert entry.answers["cam-1"].value == "hello"
    assert entry.answers["cam-1"].fun_args == ["hello"]
    local = next(entry for entry in two.told if entry.jid == job.jid)
    assert local.load["arg"] == ["x", {"y": 1, "__kwarg__": True}]
    accepted, delivered = await gate.ledger()
    assert accepted == delivered == 10


async def test_a_master_that_is_away_gets_its_answers_later_after_a_minute_the_active_one_does(
    gate: Sending,
) -> None:
    jid = await gate.ordered(1, ONE)
    await gate.answered(jid, "cam-1")
    one, two = SaltAboveDouble(), SaltAboveDouble()
    gate.sender.active(TWO, True)
    async with two.linked(gate.sender, TWO):
        await gate.answered(await gate.ordered(2, TWO), "cam-1")
        await until(two.answers)
        assert not [entry for entry in two.told if entry.jid == jid], "the one that ordered it may come back"
        async with one.linked(gate.sender, ONE):
            await until(one.answers)
        await gate.answered(jid, "cam-2")
        gate.clock.move(AWAY_SECONDS + 1.0)
        gate.sender.active(TWO, True)
        await until(gate.emptied)
    assert one.answers() == [(jid, "cam-1")]
    (entry,) = [entry for entry in two.told if entry.jid == jid]
    assert list(entry.answers) == ["cam-2"]
    assert entry.load["fun"] == "test.echo", "so that it is in the job cache there"


async def test_what_no_master_confirmed_is_told_again_and_nothing_is_told_twice_that_was(gate: Sending) -> None:
    jid = await gate.ordered(1, ONE)
    names = [f"cam-{number:03}" for number in range(250)]
    await gate.answered(jid, *names)
    deaf = SaltAboveDouble()
    deaf.deaf = True
    with pytest.raises(Unanswered):
        await gate.sender.run(deaf, ONE)
    assert deaf.told
    one = SaltAboveDouble()
    async with one.linked(gate.sender, ONE):
        await until(gate.emptied)
    assert one.answers() == [(jid, name) for name in names]
    assert all(len(entry.answers) <= 100 for entry in one.told)


@pytest.mark.parametrize("reply", ["", {}, False, "Some exception handling minion payload"])
async def test_only_nil_is_a_masters_word_that_it_has_something(gate: Sending, reply: object) -> None:
    jid = await gate.ordered(1, ONE)
    await gate.answered(jid, "cam-1")
    rules = SaltRules(id="lisbon")
    channel = ChannelDouble({"_minion_event": reply})
    failing = Above(rules, channel, channel)
    for told in (failing.announce(jid, ["cam-1"]), failing.events([]), failing.started()):
        with pytest.raises(Unanswered, match="does not confirm"):
            await told
    with pytest.raises(Unanswered, match="does not confirm"):
        await gate.sender.run(Above(rules, ChannelDouble({"_syndic_return": reply}), ChannelDouble({})), ONE)
    assert not await gate.emptied(), "the answers stay"
    assert gate.rooms.metrics.counters["salt_unconfirmed"] == 1
    one = SaltAboveDouble()
    async with one.linked(gate.sender, ONE):
        await until(gate.emptied)
    assert one.answers() == [(jid, "cam-1")]


@pytest.mark.parametrize("how", ["the store fails", "the link is lost"])
async def test_what_was_claimed_when_a_look_for_more_ended_is_told_by_the_next(
    gate: Sending, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    first, second = await gate.ordered(1, ONE), await gate.ordered(2, ONE)
    await gate.answered(first, "cam-1")
    await gate.answered(second, "cam-1")
    looked, get = asyncio.Event(), gate.book.get

    async def failing(jid: str) -> Ordered | None:
        if jid == second:
            looked.set()
            if how == "the store fails":
                raise StoreUnreadable("the store could not be read")
            await asyncio.Event().wait()
        return await get(jid)

    monkeypatch.setattr(gate.book, "get", failing)
    one = SaltAboveDouble()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(gate.not_answered(one))
        await looked.wait()
        if how == "the link is lost":
            running.cancel()
    assert not one.told
    monkeypatch.setattr(gate.book, "get", get)
    async with one.linked(gate.sender, ONE):
        await until(gate.emptied)
    assert one.answers() == [(first, "cam-1"), (second, "cam-1")]


async def test_what_one_master_did_not_confirm_is_told_to_the_one_that_is_active_by_then(gate: Sending) -> None:
    job = a_job(3, user="ops")
    await gate.rooms.writer.commit(gate.rooms.spool.adding([JobDefinition(encode(job), "lisbon")]))
    await gate.answered(job.jid, "cam-1")
    one, two = SaltAboveDouble(), SaltAboveDouble()
    gate.sender.active(ONE, True)
    async with two.linked(gate.sender, TWO):
        one.free.clear()
        async with asyncio.TaskGroup() as group:
            group.create_task(gate.not_answered(one))
            await until(lambda: one.told)
            gate.sender.active(TWO, True)
            async with asyncio.timeout(40):
                await gate.sender.emptied(TWO)
            assert not two.told, "the first may have it"
            one.deaf = True
            one.free.set()
        await until(gate.emptied)
    assert two.answers() == [(job.jid, "cam-1")]


@pytest.mark.parametrize("question", ["newest", "to_announce", "waiting"])
async def test_a_store_that_cannot_be_read_is_asked_again_at_the_next_try(
    gate: Sending, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    jid = await gate.ordered(1, ONE)
    await gate.answered(jid, "cam-1")

    async def unreadable(*_: object) -> None:
        raise StoreUnreadable("the store could not be read")

    one = SaltAboveDouble()
    with monkeypatch.context() as failing:
        failing.setattr(gate.book if question == "to_announce" else gate.rooms.spool, question, unreadable)
        await gate.not_answered(one)
    assert gate.rooms.metrics.counters["salt_store_failures"] == 1
    async with one.linked(gate.sender, ONE):
        await until(gate.emptied)
    assert one.answers() == [(jid, "cam-1")]


async def test_an_announcement_that_is_not_answered_does_not_double_the_answers_on_their_way(gate: Sending) -> None:
    jid = await gate.ordered(1, ONE)
    await gate.answered(jid, "cam-1")
    one = SaltAboveDouble()
    one.free.clear()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(gate.not_answered(one))
        await until(lambda: one.told)
        one.unannounced = True
        gate.sender.announce(ONE, jid, ["cam-2"])
        await until(lambda: len(one.announced) == 2)
        await gate.answered(jid, "cam-2")
        assert not running.done()
        one.unannounced = False
        one.free.set()
    assert one.answers() == [(jid, "cam-1")], "nothing more is begun"
    async with one.linked(gate.sender, ONE):
        await until(gate.emptied)
    assert one.answers() == [(jid, "cam-1"), (jid, "cam-2")]


async def test_what_is_fresh_goes_before_what_waited(gate: Sending) -> None:
    old = await gate.ordered(1, ONE)
    await gate.answered(old, *(f"cam-{number:04}" for number in range(1500)))
    one, fresh = SaltAboveDouble(), await gate.ordered(2, ONE)
    async with one.linked(gate.sender, ONE):
        await until(lambda: one.told)
        await gate.answered(fresh, "cam-fresh")
        await until(gate.emptied)
    places = [entry.jid for entry in one.told]
    assert places.index(fresh) < len(places) - 1
    assert len(one.answers()) == 1501


async def test_open_orders_are_announced_again_at_the_next_connect(gate: Sending) -> None:
    jid = await gate.ordered(1, ONE)
    one = SaltAboveDouble()
    async with one.linked(gate.sender, ONE):
        await until(lambda: one.announced)
        gate.sender.announce(ONE, "20261121031500000009", ["cam-7"])
        await until(lambda: len(one.announced) == 2)
    assert one.announced[0] == (jid, ["cam-1"])
    gate.sender.announce(ONE, jid, ["cam-1"])
    assert gate.rooms.metrics.counters["salt_prompt_dropped"] == 1


async def test_a_scheduled_run_of_a_device_is_a_return_with_its_job_and_nothing_else_is(gate: Sending) -> None:
    run = {
        "cmd": "_return",
        "id": "cam-1",
        "jid": str(FIRST_JID),
        "fun": "test.echo",
        "fun_args": ["hello"],
        "schedule": "beat",
        "return": "hello",
        "retcode": 0,
        "success": True,
        "outcome": "ok",
        "due": "2026-11-21T03:15:00",
        "device_jid": "20261121031500000009",
    }
    refused = {**run, "jid": str(FIRST_JID + 1), "return": None, "outcome": "timed_out", "retcode": 1, "why": "an hour"}
    tag = f"salt/job/{FIRST_JID}/ret/cam-1"
    for name, data in (
        (tag, run),
        (tag.replace(str(FIRST_JID), str(FIRST_JID + 1)), refused),
        (tag, {**run, "id": "cam-2"}),
        (tag, {**run, "outcome": "odd"}),
        (tag, {key: value for key, value in run.items() if key != "schedule"}),
        ("site/beat", run),
    ):
        event = Event(tag=name, data=data, stamp=1.0, site="lisbon")
        await gate.rooms.writer.commit(gate.rooms.spool.adding([event]))
    one = SaltAboveDouble()
    async with one.linked(gate.sender, ONE):
        gate.sender.active(ONE, True)
        gate.rooms.spool.added()
        await until(gate.emptied)
    good, late = one.told
    answer = good.answers["cam-1"]
    assert (good.jid, good.fun, answer.value, answer.success) == (str(FIRST_JID), "test.echo", "hello", True)
    assert (good.load["arg"], good.load["tgt"], good.load["user"]) == (["hello"], ["cam-1"], "schedule")
    assert (answer.more["schedule"], answer.more["due"]) == ("beat", run["due"])
    assert answer.more["outstation"]["event"]
    assert "an hour" in late.answers["cam-1"].value
    assert [tag for tag, _ in one.posted] == [*["outstation/lisbon/" + tag] * 3, "site/beat"]
