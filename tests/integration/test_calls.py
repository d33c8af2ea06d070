"""Runners and wheels on a real store: what their events say, who may call them, and what a kill leaves of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import NotFound, PolicyRefused, UsageInvalid
from device_agent.protocol import limits
from device_agent.protocol.messages import encode_value
from gateway.calls.call import CallFailed, CallRequest
from gateway.calls.functions import Function
from gateway.calls.running import Running
from tests.peers.calling import ADA, BOB, EVE, called, events
from tests.peers.reacting import Reacting, reacting, written
from tests.peers.waiting import until


async def test_a_call_fires_what_salts_fires_when_it_begins_and_when_it_ends(tmp_path: Path) -> None:
    async with reacting(tmp_path, []) as station:
        ended = await called(station, "test.arg", "one", two=2)
        assert (ended.state, ended.value) == ("ok", {"args": ["one"], "kwargs": {"two": 2}})
        begun = {"fun": "runner.test.arg", "jid": ended.jid, "user": "ada", "fun_args": ["one", {"two": 2}]}
        assert await events(station, "salt/run/*") == [
            (f"salt/run/{ended.jid}/new", begun),
            (f"salt/run/{ended.jid}/ret", {**begun, "return": ended.value, "success": True}),
        ]


async def test_arguments_too_large_for_an_event_are_asked_for_by_the_jid(tmp_path: Path) -> None:
    async with reacting(tmp_path, []) as station:
        given = "x" * (limits.EVENT_DATA_BYTES // 3)
        ended = await called(station, "test.arg", given, more=given)
        told = [data for _, data in await events(station, "salt/run/*")]
        where = f"too large for an event: outstation runner jobs.list_job {ended.jid}"
        assert [data["fun_args"] for data in told] == [[where]] * 2
        assert all(len(encode_value(data)) <= limits.EVENT_DATA_BYTES for data in told)
        assert (await called(station, "jobs.list_job", ended.jid)).value["Arguments"] == [given, {"more": given}]


async def test_a_call_that_fails_in_any_way_has_one_end_that_says_why(tmp_path: Path) -> None:
    async def raises(_: Running) -> None:
        raise ValueError("broken")

    async def fails(_: Running) -> None:
        raise CallFailed({"no": "luck"}, 7)

    async def large(_: Running) -> str:
        return "x" * 5000

    async def no_value(_: Running) -> object:
        return object()

    async def for_ever(_: Running) -> None:
        await asyncio.Event().wait()

    made = [raises, fails, large, no_value, for_ever]
    async with reacting(tmp_path, [], calls={"result_bytes": 4096}) as station:
        functions = station.kept.own.functions
        functions.add("runner", [Function(f"bad.{each.__name__}", each, seconds=2.0) for each in made])
        ends = {each.__name__: await called(station, f"bad.{each.__name__}") for each in made}
        assert ends["raises"].value == "Exception occurred in runner bad.raises: ValueError('broken')"
        assert (ends["fails"].value, ends["fails"].retcode) == ({"no": "luck"}, 7)
        assert "calls.result_bytes" in ends["large"].value
        assert "cannot be a value" in ends["no_value"].value
        assert ends["for_ever"].state == "timed_out"
        told = [data for tag, data in await events(station, "salt/run/*/ret")]
        assert [data["success"] for data in told] == [False] * len(made)
        assert [data["retcode"] for data in told] == [1, 7, 1, 1, 1]


async def test_what_cannot_be_called_is_refused_before_there_is_a_row(tmp_path: Path) -> None:
    async with reacting(tmp_path, []) as station:
        with pytest.raises(NotFound, match=r"unknown function: runner.manage.upp"):
            await called(station, "manage.upp")
        with pytest.raises(UsageInvalid, match="has no argument 'taget'"):
            await called(station, "manage.up", taget="*")
        for fun, by in (("manage.up", EVE), ("reactor.add", BOB), ("reactor.set_leader", EVE)):
            with pytest.raises(PolicyRefused):
                await called(station, fun, *(["a", "/b"] if fun == "reactor.add" else []), by=by)
        assert await station.kept.own.book.newest(10) == []
        assert (await called(station, "manage.present", by=EVE)).ok
        denied = await station.rooms.reader.rows("SELECT user, fun, verdict FROM audit ORDER BY at")
        assert ("bob", "runner.reactor.add", "deny") in denied


async def test_the_rules_of_the_policy_name_runners(tmp_path: Path) -> None:
    policy = "users: {bob: operator, ada: admin}\nrules:\n  operator:\n    - functions: ['runner.test.*']\n"
    async with reacting(tmp_path, [], policy=policy) as station:
        assert (await called(station, "test.arg", by=BOB)).ok
        station.kept.own.functions.add("runner", [Function("test2.arg", _nothing)])
        with pytest.raises(PolicyRefused, match=r"no rule grants runner\.test2"):
            await called(station, "test2.arg", by=BOB)
        ended = await called(station, "event.send", "site/x", by=BOB)
        assert (ended.state, "no rule grants event.send" in ended.value) == ("failed", True)


async def _nothing(_: Running) -> None:
    """Nothing."""


async def test_only_so_many_run_at_once_and_wait(tmp_path: Path) -> None:
    going = asyncio.Event()
    running: list[str] = []

    async def waits(call: Running) -> None:
        running.append(call.jid)
        await going.wait()

    async with reacting(tmp_path, [], calls={"at_once": 2, "waiting": 3}) as station:
        calls = station.kept.own.calls
        calls.functions.add("runner", [Function("slow.waits", waits)])
        jids = [await calls.submit(CallRequest(fun="slow.waits"), ADA) for _ in range(3)]
        await until(lambda: len(running) == 2, what="two of them run")
        with pytest.raises(PolicyRefused, match="too many calls are open"):
            await calls.submit(CallRequest(fun="slow.waits"), ADA)
        going.set()
        assert [(await calls.wait(jid)).state for jid in jids] == ["ok"] * 3
        assert running == jids


async def test_a_call_that_another_made_ends_with_it_and_keeps_what_is_private(tmp_path: Path) -> None:
    async def secret(_: Running) -> str:
        return "hunter2"

    async def waits(_: Running) -> None:
        await asyncio.Event().wait()

    async def asks(call: Running, fun: str) -> Any:
        return await call.runner(fun)

    async with reacting(tmp_path, []) as station:
        calls = station.kept.own.calls
        made = [Function("in.secret", secret, private=True), Function("in.waits", waits)]
        calls.functions.add("runner", [*made, Function("in.asks", asks, seconds=1.0)])
        assert (await called(station, "in.asks", "in.secret")).value == "for who asked alone"
        assert (await called(station, "in.asks", "in.waits")).state == "timed_out"

        async def is_over() -> bool:
            return not await station.kept.own.book.open()

        await until(is_over, what="both have an end")
        inner = next(kept for kept in await station.kept.own.book.newest(10) if kept.call.fun == "in.waits")
        assert inner.ended.state == "interrupted"
        told = [data for _, data in await events(station, f"salt/run/{inner.call.jid}/ret")]
        assert [data["success"] for data in told] == [False]
        assert "hunter2" not in str(await events(station, "*"))


SEND = "send: {runner.event.send: [{args: {tag: site/answer, data: {of: {{ tag }}}}}]}\n"


async def test_a_reaction_calls_a_runner_and_why_tells_its_end(tmp_path: Path) -> None:
    path = written(tmp_path, {"a.sls": SEND}) / "a.sls"
    async with reacting(tmp_path, [{"site/*": str(path)}], reactions={"depth": 2}) as station:
        await station.fire("site/a")
        (made,) = (await station.event("site/a"))["reactions"]
        assert made["state"] == "issued"
        await station.kept.own.calls.wait(made["jid"])
        told = (await station.kept.explain.why(made["jid"]))["events"][0]
        (outcome,) = told["reactions"][0]["outcomes"]
        assert (outcome["device"], outcome["outcome"], outcome["value"]) == ("lisbon-station", "ok", True)
        # What it fires matches its own rule: the chain is known from the call, and stops at the depth.
        last = await station.event("site/answer", "stopped")
        assert last["depth"] == 3
        answers = [data for _, data in await events(station, "site/answer")]
        assert answers == [{"of": "site/a"}, {"of": "site/answer"}, {"of": "site/answer"}]
        users = {data["user"] for _, data in await events(station, "salt/run/*")}
        assert users == {"Reactor"}


@pytest.mark.parametrize(
    ("body", "fun_args"),
    [
        ("[{tgt: x}, {show: 1}]", [{"tgt": "x", "show": 1}]),
        ("[{args: [{tgt: x}, {show: 1}]}]", [{"tgt": "x", "show": 1}]),
        ("[{args: {tgt: x}}]", [{"tgt": "x"}]),
        ("[{arg: [x]}, {kwarg: {show: 1}}]", ["x", {"show": 1}]),
    ],
)
async def test_arguments_of_a_reaction_in_every_form(body: str, fun_args: list[Any], tmp_path: Path) -> None:
    path = written(tmp_path, {"a.sls": f"a: {{runner.test.arg: {body}}}\n"}) / "a.sls"
    async with reacting(tmp_path, [{"site/*": str(path)}]) as station:
        await station.fire("site/a")
        (made,) = (await station.event("site/a"))["reactions"]
        kept = await station.kept.own.book.one(made["jid"])
        assert kept is not None
        assert kept.call.fun_args == fun_args


async def test_what_a_stop_cut_off_is_made_again_for_a_reaction_and_interrupted_for_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, bool]] = []
    going = asyncio.Event()

    async def slow(call: Running) -> str:
        ran.append((call.jid, call.repeated))
        if not await call.has_fired():
            await call.fire("effect/made", {"jid": call.jid})
        await going.wait()
        return "done"

    path = written(tmp_path, {"a.sls": "a: {runner.slow.slow: []}\n"}) / "a.sls"
    said = [{"site/*": str(path)}]
    async with reacting(tmp_path, said) as station:
        calls = station.kept.own.calls
        calls.functions.add("runner", [Function("slow.slow", slow)])
        monkeypatch.setattr(calls, "drain_seconds", 0.05)
        typed = await calls.submit(CallRequest(fun="slow.slow"), ADA)
        await station.fire("site/a")
        (made,) = (await station.event("site/a"))["reactions"]
        await until(lambda: _fired(station, 2), what="both have done something")
    going.set()
    async with reacting(tmp_path, said, before=[Function("slow.slow", slow)]) as station:
        calls = station.kept.own.calls
        assert (await calls.wait(made["jid"])).value == "done"
        ended = await calls.wait(typed)
        assert (ended.state, "not known" in ended.value) == ("interrupted", True)
        assert ran[2:] == [(made["jid"], True)]
        assert len(await events(station, "effect/made")) == 2
        told = {data["jid"]: data["success"] for _, data in await events(station, "salt/run/*/ret")}
        assert told == {typed: False, made["jid"]: True}


async def test_what_the_stop_itself_refused_is_done_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, {"a.sls": "a: {runner.salt.execute: [{args: {tgt: cam-1, fun: test.ping}}]}\n"}) / "a.sls"
    said = [{"site/*": str(path)}]
    async with reacting(tmp_path, said) as station:
        calls = station.kept.own.calls
        monkeypatch.setattr(calls, "drain_seconds", 0.05)
        assert (await called(station, "queue.insert_runner", "event.send", ["site2/queued"])).ok
        # As on SIGTERM: jobs are refused at once, calls somewhat later.
        station.rooms.acceptance.draining = True
        await station.fire("site/a")
        (made,) = (await station.event("site/a"))["reactions"]
        typed = await called(station, "salt.execute", "cam-1", "test.ping")
        assert (typed.state, "stopping" in typed.value) == ("failed", True), "who typed it is told, and may ask again"
        submitted = await calls.submit(CallRequest(fun="queue.process_runner"), ADA)
        calls._draining = True
    async with reacting(tmp_path, said) as station:
        calls = station.kept.own.calls
        (job,) = await station.jobs_are(1)
        assert (job.fun, job.why.startswith(f"reaction {made['key']} ")) == ("test.ping", True)
        assert (await calls.wait(submitted)).value == [True]
        assert await events(station, "site2/queued") == [("site2/queued", {})]


async def _fired(station: Reacting, count: int) -> bool:
    return len(await events(station, "effect/made")) == count


async def test_a_password_is_for_the_function_alone(tmp_path: Path) -> None:
    async with reacting(tmp_path, []) as station:
        ended = await called(station, "http.query", "http://127.0.0.1:1/", username="ada", password="canary")
        assert ended.state == "failed"
        shown = (await called(station, "jobs.list_job", ended.jid)).value
        assert shown["Arguments"][1] == {"username": "ada", "password": "**********"}
        audit = await station.rooms.reader.rows("SELECT * FROM audit")
        assert "http.query" in repr(audit)
        assert "canary" not in repr([shown, audit, await events(station, "*")])
