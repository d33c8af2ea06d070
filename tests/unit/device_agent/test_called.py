"""device_agent/called.py: a device calls several functions one after another, and says one end for all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import UNSET

from device_agent import loader
from device_agent.called import Called
from device_agent.ended import Ended, Restart
from device_agent.functions import saltutil
from device_agent.no_host import NOWHERE
from device_agent.own import Own
from device_agent.protocol import limits
from device_agent.protocol.messages import DeviceOutcome, Return
from device_agent.protocol.several import SEVERAL
from tests.peers.device_bench import Bench, deliver, job, turns

LOST: dict[str, DeviceOutcome] = {"away": "unreachable", "lost": "unknown"}


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 1


# Each can be sent alone. Two of the large ones, or a deep one beneath its name, cannot.
UNFIT = {"large": "x" * 200_000, "deep": nested(limits.VALUE_DEPTH)}


async def begin() -> None:
    raise AssertionError("it was restarted")


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was called, as words; how each ends is in its first argument."""
    seen: list[str] = []

    async def call(name: str, _host: Any, arg: list[Any], kwarg: dict[str, Any], *_: Any) -> Ended:
        seen.append(" ".join([name, *map(str, arg), *kwarg]))
        how = arg[0] if arg else ""
        if how == "wait":
            await asyncio.Event().wait()
        if how == "restart":
            return Ended("soon", restart=Restart("boot", 60.0, begin))
        if how == "exit 3":
            return Ended("said", 3, "failed", "")
        if how == "nobody":
            return Ended(None, 1, "refused", "unknown_function: there is none")
        if how in UNFIT:
            alone = loader.checked(Ended(UNFIT[how]))
            assert (alone.outcome, alone.value) == ("ok", UNFIT[how])
            return alone
        if how in LOST:
            return Ended(None, 1, LOST[how], "the connection went")
        return Ended(f"{name} is done", int(how == "retcode") * 7)

    monkeypatch.setattr(loader, "call", call)
    return seen


async def ended(bench: Bench, *calls: list[Any], **changed: Any) -> Return:
    bench.join()
    bench.give(deliver(job(1, fun=SEVERAL, arg=list(calls), **changed)))
    await bench.settle()
    (told,) = (each for each in bench.taken() if isinstance(each, Return))
    return told


async def test_each_is_called_in_the_order_given_and_the_answer_is_one(bench: Bench, called: list[str]) -> None:
    told = await ended(bench, ["b.b", ["x"], {"y": 1}], ["a.a", [], {}], ["c.c", [], {}])
    assert called == ["b.b x y", "a.a", "c.c"]
    assert (told.fun, told.outcome, told.retcode, told.why, told.executions) == ("b.b,a.a,c.c", "ok", 0, "", 1)
    assert told.value == {name: f"{name} is done" for name in ("b.b", "a.a", "c.c")}
    assert list(told.value) == ["b.b", "a.a", "c.c"]


async def test_one_that_fails_does_not_keep_the_others(bench: Bench, called: list[str]) -> None:
    told = await ended(bench, ["a.a", ["exit 3"], {}], ["b.b", ["nobody"], {}], ["c.c", [], {}])
    assert len(called) == 3
    assert (told.outcome, told.retcode, told.executions) == ("failed", 3, 1)
    assert told.value == {"a.a": "said", "b.b": "unknown_function: there is none", "c.c": "c.c is done"}
    assert told.why == "a.a: retcode 3; b.b: unknown_function: there is none"
    assert told.retcodes == {"a.a": 3, "b.b": 1, "c.c": 0}


async def test_of_two_of_one_name_the_later_value_counts_and_the_worst_retcode(bench: Bench, called: list[str]) -> None:
    told = await ended(bench, ["a.a", ["exit 3"], {}], ["a.a", [], {}])
    assert (told.value, told.outcome, told.retcode) == ({"a.a": "a.a is done"}, "failed", 3)
    assert len(called) == 2
    assert told.retcodes == {"a.a": 3}


async def test_a_retcode_of_one_that_did_not_fail_is_kept(bench: Bench, called: list[str]) -> None:
    told = await ended(bench, ["a.a", ["retcode"], {}], ["b.b", [], {}])
    assert (told.outcome, told.retcode, len(called)) == ("ok", 7, 2)


async def test_where_each_is_refused_nothing_ran(bench: Bench, called: list[str]) -> None:
    told = await ended(bench, ["a.a", ["nobody"], {}], ["b.b", ["nobody"], {}])
    assert (told.outcome, told.executions, len(called)) == ("refused", 0, 2)


@pytest.mark.parametrize(
    ("first", "how", "outcome"),
    [("away", "", "unreachable"), ("", "away", "failed"), ("lost", "", "unknown"), ("", "lost", "unknown")],
)
async def test_where_the_device_is_lost_nothing_more_is_tried(
    first: str, how: str, outcome: str, bench: Bench, called: list[str]
) -> None:
    hows = {"a.a": first, **({"b.b": how} if how else {})}
    told = await ended(bench, *([fun, [each], {}] for fun, each in hows.items()), ["c.c", [], {}])
    assert called == [f"{fun} {each}" for fun, each in hows.items()]
    assert told.outcome == outcome
    assert told.why.endswith("not called: c.c")
    assert told.retcodes == {fun: int(bool(each)) for fun, each in hows.items()} | {"c.c": 1}


async def test_what_restarts_the_device_is_not_begun_among_others(bench: Bench, called: list[str]) -> None:
    told = await ended(bench, ["a.a", [], {}], ["b.b", ["restart"], {}], ["c.c", [], {}])
    assert (told.outcome, len(called)) == ("failed", 3)
    assert told.why == "b.b: it restarts the device: order it by itself"


async def test_what_had_ended_when_the_time_was_over_is_in_the_answer(bench: Bench, called: list[str]) -> None:
    told = await ended(bench, ["a.a", [], {}], ["b.b", ["wait"], {}], ["c.c", [], {}], run_limit=0.01)
    assert (told.outcome, told.value) == ("timed_out", {"a.a": "a.a is done"})
    assert (told.retcode, told.retcodes) == (1, {"a.a": 0, "b.b": 1, "c.c": 1})
    assert called == ["a.a", "b.b wait"]


@pytest.mark.parametrize(
    ("how", "says"), [("large", "result_too_large"), ("deep", "result_not_plain: values nest at most")]
)
@pytest.mark.parametrize(("last", "outcome"), [("", "failed"), ("wait", "timed_out"), ("lost", "unknown")])
async def test_what_can_be_sent_alone_and_not_together_is_said_in_words(
    how: str, says: str, last: str, outcome: str, bench: Bench, called: list[str]
) -> None:
    limit = 0.05 if last == "wait" else 30.0
    told = await ended(bench, ["a.a", [how], {}], ["b.b", [how], {}], ["c.c", [last], {}], run_limit=limit)
    assert len(called) == 3
    assert (told.outcome, told.value, told.retcode, told.retcodes) == (outcome, None, 1, UNSET)
    assert told.why.startswith(says)
    assert ("stopped after 0.05 s" in told.why) is (last == "wait")


async def test_what_was_killed_can_be_sent(bench: Bench, called: list[str]) -> None:
    bench.join()
    given = [["a.a", ["large"], {}], ["b.b", ["large"], {}], ["c.c", ["wait"], {}]]
    bench.give(deliver(job(1, fun=SEVERAL, arg=given, run_limit=30.0)))
    await turns()
    assert bench.device.jobs.stop(job(1).jid, "stopped by hand")
    await bench.settle()
    (told,) = (each for each in bench.taken() if isinstance(each, Return))
    assert (told.outcome, told.value) == ("failed", None)
    assert told.why.startswith("result_too_large")
    assert told.why.endswith("; stopped by hand")


async def test_what_is_no_list_of_calls_is_refused_in_words(bench: Bench, called: list[str]) -> None:
    told = await ended(bench, ["test.ping,cmd.run", [], {}])
    assert (told.outcome, called) == ("refused", [])
    assert told.why.startswith("malformed")


@pytest.mark.parametrize(("glob", "found"), [("b.*", True), ("a.a", True), ("c.*", False)])
async def test_it_is_found_by_the_name_of_each_while_it_runs(
    glob: str, found: bool, bench: Bench, called: list[str]
) -> None:
    bench.join()
    bench.give(deliver(job(1, fun=SEVERAL, arg=[["a.a", ["wait"], {}], ["b.b", [1], {}]], run_limit=30.0)))
    await turns()
    assert called == ["a.a wait"]
    own = Own(jobs=bench.device.jobs)
    running = await saltutil.is_running(NOWHERE, glob, own=own)
    assert [(each["fun"], each["arg"]) for each in running] == ([("a.a,b.b", [["wait"], [1]])] if found else [])
    assert (await saltutil.kill_all_jobs(NOWHERE, own=own)) != []
    await bench.settle()
    (told,) = (each for each in bench.taken() if isinstance(each, Return))
    assert (told.outcome, told.value, told.why) == ("failed", {}, "stopped by saltutil.kill_all_jobs")
    assert (told.retcode, told.retcodes) == (1, {"a.a": 1, "b.b": 1})


def test_how_far_a_function_of_the_site_reached_is_kept_for_each() -> None:
    asked: list[str] = []

    def custom(fun: str) -> None:
        asked.append(fun)

    one = Called(job(1, fun=SEVERAL, arg=[["a.a", [1], {}], ["b.b", [], {"c": 2}]]), custom)
    assert asked == ["a.a", "b.b"]
    assert (one.title, one.arg, one.kwarg) == ("a.a,b.b", [[1], [{"c": 2, "__kwarg__": True}]], {})
