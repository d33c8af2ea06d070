"""What a Salt master orders: once for each jid, what was granted to it and nothing else, and never met with silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from device_agent.protocol.outcomes import State
from gateway.jobs.request import JobRequest
from gateway.salt.book import KNOWN, PARTS
from tests.peers.clock import HandClock
from tests.peers.database import FIRST_JID
from tests.peers.salt_above import published
from tests.peers.salt_gate import JID, MASTER, OTHER, opened


async def test_an_order_is_a_job_with_its_jid_announced_and_audited(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1", "cam-2", "door")
        await gate.orders.take(published(JID, tgt="cam-*"), MASTER)
        job = gate.rooms.open_jobs.get(JID)
        assert job is not None
        assert (sorted(job.waiting), job.job.user, job.job.origin) == (["cam-1", "cam-2"], f"root@{MASTER}", "salt")
        assert gate.told.announced == [(MASTER, JID, ["cam-1", "cam-2"])]
        assert await gate.audited() == [(f"root@{MASTER}", "above", "run", "allow")]


@pytest.mark.parametrize(
    ("tgt", "kind"),
    [
        ("cam-1", "glob"),
        (["cam-1", "cam-9"], "list"),
        ("cam-[1]", "pcre"),
        ("os:Debian", "grain"),
        ("os|Debian", "grain"),
        ("G@os:Debian and not door", "compound"),
    ],
)
async def test_every_kind_of_target_is_resolved_here(tgt: Any, kind: str, tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1")
        delimiter = "|" if tgt == "os|Debian" else ":"
        await gate.orders.take(published(JID, tgt=tgt, tgt_type=kind, delimiter=delimiter), MASTER)
        assert [ids for _, _, ids in gate.told.announced] == [["cam-1"]]
        assert gate.rooms.open_jobs.get(JID) is not None


@pytest.mark.parametrize(
    ("fun", "sent", "arg", "kwarg"),
    [
        ("test.arg", ["ls", "cwd=/tmp", "n=3", {"n": 4, "__kwarg__": True}], ["ls"], {"cwd": "/tmp", "n": 4}),
        (
            "test.arg",
            ["a=1\nb=2\n", "3", "x==1", "{1: a}", "t=a\tb"],
            ["a=1\nb=2\n", "3", "x==1", "{1: a}"],
            {"t": "a\tb"},
        ),
        ("test.arg", ["x={1: a}", "y=" + "[" * 60_000], [], {"x": "{1: a}", "y": "[" * 60_000}),
        (
            ["test.arg", "test.ping"],
            [["a", "x=3"], []],
            [["test.arg", ["a"], {"x": 3}], ["test.ping", [], {}]],
            {},
        ),
    ],
)
async def test_text_with_a_name_is_a_named_argument_as_with_a_minion(
    fun: Any, sent: list[Any], arg: list[Any], kwarg: dict[str, Any], tmp_path: Path, clock: HandClock
) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1")
        await gate.orders.take(published(JID, fun=fun, arg=sent), MASTER)
        job = gate.rooms.open_jobs.get(JID)
        assert job is not None
        assert (job.job.arg, job.job.kwarg) == (arg, kwarg)


async def test_whoever_is_not_meant_says_nothing(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1")
        await gate.orders.take(published(JID, tgt="lamp-*"), MASTER)
        await gate.orders.take(published(JID, tgt=[], tgt_type="list"), MASTER)
        assert not gate.told.announced
        assert await gate.rooms.spool.pending() == 0


async def test_a_jid_is_taken_once_from_whomever_it_comes_and_also_after_a_restart(
    tmp_path: Path, clock: HandClock
) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1")
        await gate.orders.take(published(JID), MASTER)
        await gate.orders.take(published(JID), "192.0.2.10")
        await gate.orders.take(published(JID, "test.version"), MASTER)
        assert gate.rooms.metrics.counters["salt_orders_repeated"] == 2
    async with opened(tmp_path, clock) as gate:
        gate.hello("cam-1")
        await gate.orders.take(published(JID, "test.version"), MASTER)
        assert gate.rooms.metrics.counters["salt_orders_repeated"] == 1
        job = gate.rooms.open_jobs.get(JID)
        assert job is not None
        assert job.job.fun == "test.ping"


async def test_an_order_from_long_ago_is_refused(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1")
        await gate.orders.take(published("20250101000000000000"), MASTER)
        assert gate.rooms.metrics.refusals["salt", "old_jid"] == 1
        assert gate.rooms.open_jobs.get("20250101000000000000") is None
        assert "date -u" in gate.told.values()["cam-1"]


async def test_what_was_not_granted_to_salt_is_answered_for_every_device(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1", "cam-2")
        await gate.orders.take(published(JID, "cmd.run", ["reboot"]), MASTER)
        assert gate.rooms.open_jobs.get(JID) is None
        found = await gate.outcomes()
        assert sorted(found) == ["cam-1", "cam-2"]
        assert found["cam-1"].outcome == "refused"
        assert "--origin salt" in found["cam-1"].why
        assert "cmd.run" in found["cam-1"].why
        assert gate.told.announced == [(MASTER, JID, ["cam-1", "cam-2"])]
        assert await gate.audited() == [(f"root@{MASTER}", "salt", "run", "deny")]
        await gate.orders.take(published(JID, "cmd.run", ["reboot"]), MASTER)
        assert len(await gate.outcomes()) == 2, "once for each jid"


@pytest.mark.parametrize(
    ("order", "says"),
    [
        (published(JID, "nonsense"), "cannot be sent"),
    ],
)
async def test_what_cannot_be_done_is_answered_with_the_reason(
    order: Any, says: str, tmp_path: Path, clock: HandClock
) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1")
        await gate.orders.take(order, MASTER)
        found = await gate.outcomes()
        assert says in found["cam-1"].why


async def test_an_order_with_a_returner_that_is_not_here_runs_as_at_a_salt_minion(
    tmp_path: Path, clock: HandClock
) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1")
        await gate.orders.take(published(JID, ret="mysql"), MASTER)
        job = gate.rooms.open_jobs.get(JID)
        assert job is not None
        assert job.job.fun == "test.ping"
        assert "the job runs without the returners that are not here: mysql" in job.job.why


async def test_a_jid_of_another_shape_is_answered_at_once(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1")
        await gate.orders.take(published(f"{JID}_4711"), MASTER)
        assert "unique_jid" in gate.told.values()["cam-1"]


async def test_what_the_caller_may_is_enforced_for_each_device(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1", "door")
        await gate.orders.take(published(JID, auth_list=[{"cam-*": ["test.*"]}]), MASTER)
        job = gate.rooms.open_jobs.get(JID)
        assert job is not None
        assert list(job.waiting) == ["cam-1"]
        found = await gate.outcomes()
        assert list(found) == ["door"]
        assert found["door"].outcome == "refused"


async def test_salt_asks_whether_a_job_runs_and_the_devices_are_left_alone(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1", "cam-2")
        await gate.orders.take(published(JID), MASTER)
        job = gate.rooms.open_jobs.get(JID)
        assert job is not None
        job.waiting["cam-1"].state = State.RUNNING
        del job.waiting["cam-2"]
        probe = published(str(FIRST_JID + 1), "saltutil.find_job", [JID], tgt=["cam-1", "cam-2"], tgt_type="list")
        await gate.orders.take(probe, MASTER)
        values = gate.told.values()
        assert (values["cam-1"]["jid"], values["cam-1"]["fun"], values["cam-2"]) == (JID, "test.ping", {})
        job.waiting["cam-1"].state = State.DELIVERED
        await gate.orders.take(published(str(FIRST_JID + 2), "saltutil.find_job", [JID], tgt="cam-1"), MASTER)
        assert gate.told.values()["cam-1"] == {}, "a device that never said that it runs it is not busy"
        assert gate.rooms.open_jobs.get(probe.jid) is None


async def test_a_job_that_has_not_started_is_cancelled_and_one_that_runs_is_for_its_device(
    tmp_path: Path, clock: HandClock
) -> None:
    async with opened(tmp_path, clock, "looks", "saltutil.*") as gate:
        gate.hello("cam-1")
        await gate.orders.take(published(JID), MASTER)
        gate.waiting("cam-1").state = State.RUNNING
        kill = str(FIRST_JID + 1)
        await gate.orders.take(published(kill, "saltutil.kill_job", [JID]), MASTER)
        assert gate.rooms.open_jobs.get(kill) is not None, "it is for the device"
        assert not gate.cancelled()
        gate.waiting("cam-1").state = State.QUEUED
        await gate.orders.take(published(str(FIRST_JID + 2), "saltutil.term_job", [JID]), MASTER)
        assert gate.cancelled()
        assert "cancelled" in gate.told.values()["cam-1"]
        assert (f"root@{MASTER}", "salt", "cancel", "allow") in await gate.audited()


@pytest.mark.parametrize("fun", ["saltutil.kill_job", "saltutil.term_job"])
@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING])
async def test_who_was_not_granted_to_cancel_does_not(state: State, fun: str, tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1")
        await gate.orders.take(published(JID), MASTER)
        gate.waiting("cam-1").state = state
        await gate.orders.take(published(str(FIRST_JID + 1), fun, [JID]), MASTER)
        why = (await gate.outcomes())["cam-1"].why
        assert f"{fun} is not granted" in why
        assert "--origin salt" in why
        assert not gate.cancelled()
        assert (f"root@{MASTER}", "salt", "run", "deny") in await gate.audited()


async def test_one_salt_master_does_not_cancel_what_another_ordered(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks", "saltutil.*") as gate:
        gate.hello("cam-1")
        await gate.orders.take(published(JID), MASTER)
        gate.waiting("cam-1").state = State.QUEUED
        await gate.orders.take(published(str(FIRST_JID + 1), "saltutil.kill_job", [JID]), OTHER)
        assert "another Salt master" in gate.told.values()["cam-1"]
        assert not gate.cancelled()
        assert (f"root@{OTHER}", "salt", "run", "deny") in await gate.audited()


async def test_salt_does_not_cancel_what_the_site_ordered_itself(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks", "saltutil.*") as gate:
        gate.hello("cam-1")
        jid = await gate.rooms.acceptance.submit(JobRequest(tgt="cam-1", fun="test.ping"), "ops")
        job = gate.rooms.open_jobs.get(jid)
        assert job is not None
        job.waiting["cam-1"].state = State.QUEUED
        await gate.orders.take(published(JID, "saltutil.kill_job", [jid]), MASTER)
        assert not job.cancelled
        assert "refused" in gate.told.values()["cam-1"]
        assert (f"root@{MASTER}", "salt", "run", "deny") in await gate.audited()


async def test_the_parts_of_a_batch_have_one_jid_and_each_device_is_ordered_once(
    tmp_path: Path, clock: HandClock
) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1", "cam-2", "cam-3")
        for names in (["cam-1"], ["cam-1", "cam-2"], ["cam-3"], ["cam-3"]):
            await gate.orders.take(published(JID, tgt=names, tgt_type="list"), MASTER)
        assert [(jid, ids) for _, jid, ids in gate.told.announced] == [
            (JID, ["cam-1"]),
            (JID, ["cam-2"]),
            (JID, ["cam-3"]),
        ]
        assert sorted(name for job in gate.rooms.open_jobs for name in job.waiting) == ["cam-1", "cam-2", "cam-3"]
        for part in await gate.book.parts(JID):
            kept = await gate.book.get(part)
            assert kept is not None
            assert (kept.told_as, kept.load["jid"]) == (JID, JID)
        for job in gate.rooms.open_jobs:
            for waiting in job.waiting.values():
                waiting.state = State.RUNNING
        probe = published(str(FIRST_JID + 100), "saltutil.find_job", [JID])
        await gate.orders.take(probe, MASTER)
        assert {value["jid"] for value in gate.told.values().values()} == {JID}
        await gate.orders.take(published(JID, "test.version"), MASTER)
        assert len(gate.told.announced) == 3


async def test_of_a_refused_order_little_is_kept_and_its_parts_are_known_all_the_same(
    tmp_path: Path, clock: HandClock
) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        gate.hello("cam-1", "cam-2")
        big = ["x" * 3_000_000]
        for names, arg in ((["cam-1"], big), (["cam-2"], ["y" * 3_000_000]), (["cam-2"], big)):
            order = published(
                JID, "cmd.run", arg, tgt=names, tgt_type="list", metadata={"m": "z" * 40_000}, ret="r" * 40_000
            )
            await gate.orders.take(order, MASTER)
        assert gate.rooms.metrics.counters["salt_orders_repeated"] == 1, "the one with other arguments is no part"
        assert sorted(await gate.outcomes()) == ["cam-1", "cam-2"]
        ((size,),) = await gate.rooms.reader.rows("SELECT max(length(load)) FROM salt_jobs")
        assert size < 2_000
        kept = await gate.book.get(JID)
        assert kept is not None
        assert kept.load["arg"][0].startswith("(3000006 bytes, too many to be kept; SHA-256 ")
        assert (list(kept.load["metadata"]), kept.load["tgt"]) == (["outstation"], ["cam-1"])


async def test_all_parts_of_a_batch_that_have_not_started_are_cancelled(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks", "saltutil.*") as gate:
        gate.hello("cam-1", "cam-2", "cam-3")
        for name in ("cam-1", "cam-2"):
            await gate.orders.take(published(JID, tgt=[name], tgt_type="list"), MASTER)
        for job in gate.rooms.open_jobs:
            for waiting in job.waiting.values():
                waiting.state = State.QUEUED
        kill = published(str(FIRST_JID + 100), "saltutil.kill_job", [JID], tgt=["cam-1"], tgt_type="list")
        await gate.orders.take(kill, MASTER)
        assert "waits for others" in gate.told.values()["cam-1"]
        assert not any(job.cancelled for job in gate.rooms.open_jobs)
        # Also when the first part has ended: the later ones are still of that jid.
        gate.job().waiting.clear()
        await gate.orders.take(published(str(FIRST_JID + 101), "saltutil.kill_job", [JID]), MASTER)
        values = gate.told.values()
        assert f"Job {JID} is cancelled" in values["cam-2"]
        assert (values["cam-1"], values["cam-3"]) == ("", "")
        assert all(job.cancelled for job in gate.rooms.open_jobs)


@pytest.mark.parametrize("question", [KNOWN, PARTS])
async def test_no_question_about_a_jid_reads_the_whole_book(question: str, tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks") as gate:
        plan = await gate.rooms.reader.rows(f"EXPLAIN QUERY PLAN {question}", (JID,) * question.count("?"))
        steps = [str(step) for *_, step in plan]
        assert any("SEARCH" in step for step in steps), steps
        assert not [step for step in steps if step.startswith("SCAN")], steps


async def test_what_ends_a_batch_tells_each_device_the_jid_that_it_knows(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, "looks", "saltutil.*") as gate:
        gate.hello("cam-1", "cam-2", "cam-3")
        for name in ("cam-1", "cam-2"):
            await gate.orders.take(published(JID, tgt=[name], tgt_type="list"), MASTER)
        (part,) = await gate.book.parts(JID)
        for job in gate.rooms.open_jobs:
            for waiting in job.waiting.values():
                waiting.state = State.RUNNING
        kill = published(str(FIRST_JID + 100), "saltutil.kill_job", [JID])
        for _ in range(2):
            await gate.orders.take(kill, MASTER)
        kills = {tuple(job.waiting): job.job for job in gate.rooms.open_jobs if job.job.fun == "saltutil.kill_job"}
        assert {names: job.arg for names, job in kills.items()} == {("cam-1", "cam-3"): [JID], ("cam-2",): [part]}
        assert gate.told.announced[2:] == [(MASTER, kill.jid, ["cam-1", "cam-2", "cam-3"])]
        of_part = await gate.book.get(kills["cam-2",].jid)
        assert of_part is not None
        assert (of_part.told_as, of_part.load["arg"]) == (kill.jid, [JID]), "it is answered as it was published"
