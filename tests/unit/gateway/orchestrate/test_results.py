"""What steps do and what becomes of their results: Salt's arguments, words and shapes."""

from __future__ import annotations

from typing import Any

import pytest

from device_agent.protocol.messages import encode_value
from gateway.orchestrate.bounds import fitting, flat
from gateway.orchestrate.deeds import CallDeed, JobDeed, WaitDeed, WordsDeed, deed
from gateway.orchestrate.results import Answered, check_result, of_call, of_job, told
from gateway.orchestrate.words import Step


def step(said: str, name: str, **args: Any) -> Step:
    state, fun = said.split(".")
    return Step(number=0, id="say", name=name, state=state, fun=fun, sls="orch.a", place="", args=args)


def job(said: str, name: str = "test.ping", **args: Any) -> JobDeed:
    made = deed(step(said, name, **args), test=False)
    assert isinstance(made, JobDeed)
    return made


def answer(device: str, value: Any = True, outcome: str = "ok", retcode: int = 0, why: str = "") -> Answered:
    return Answered(device=device, site="lisbon", outcome=outcome, retcode=retcode, value=value, why=why)


@pytest.mark.parametrize(
    ("args", "fun", "arg", "kwarg"),
    [
        ({"highstate": True}, "state.highstate", [], {"queue": False, "concurrent": False}),
        ({"sls": ["a", "b.c"]}, "state.sls", ["a,b.c"], {"queue": False, "concurrent": False}),
        ({"sls": "a", "test": True}, "state.sls", ["a"], {"test": True, "queue": False, "concurrent": False}),
        (
            {"sls": "a", "pillar": {"x": 1}, "saltenv": "dev", "pillarenv": "p", "queue": True, "concurrent": True},
            "state.sls",
            ["a"],
            {"pillar": {"x": 1}, "pillarenv": "p", "saltenv": "dev", "queue": True, "concurrent": True},
        ),
        ({"top": "top2.sls"}, "state.top", ["top2.sls"], {"queue": False, "concurrent": False}),
        ({"sls": "a", "exclude": "b"}, "state.sls", ["a"], {"exclude": "b", "queue": False, "concurrent": False}),
    ],
)
def test_a_state_run_is_the_job_that_salt_sends(
    args: dict[str, Any], fun: str, arg: list[Any], kwarg: dict[str, Any]
) -> None:
    made = job("salt.state", "say", tgt="cam-*", **args)
    assert (made.fun, made.arg, made.kwarg, made.tgt) == (fun, arg, kwarg, "cam-*")


def test_a_function_is_its_name_with_arguments() -> None:
    made = job("salt.function", "cmd.run", tgt=["a", "b"], arg="ls -l", kwarg={"cwd": "/"}, timeout=7200, ret="smtp")
    assert (made.fun, made.tgt, made.tgt_type, made.arg, made.kwarg) == (
        "cmd.run",
        "a,b",
        "list",
        ["ls", "-l"],
        {"cwd": "/"},
    )
    assert made.run_limit == 7200
    assert made.ret == ["smtp"]
    assert made.warnings == ["Please specify 'arg' as a list of arguments."]


def test_text_in_the_arguments_of_a_step_keeps_its_type_and_its_place() -> None:
    listed = ["runas=root", "3", "[a]", "a\nb=1"]
    assert (made := job("salt.function", "test.arg", tgt="x", arg=listed)).arg == listed
    assert made.kwarg == {}
    for kind in ("runner", "wheel"):
        called = deed(step(f"salt.{kind}", "test.arg", arg=listed), test=False)
        assert called == CallDeed(kind=kind, fun="test.arg", arg=listed, kwarg={})


def test_runners_wheels_and_waits() -> None:
    made = deed(step("salt.runner", "manage.up", timeout=5, kwarg={"tgt": "x"}), test=False)
    assert made == CallDeed(kind="runner", fun="manage.up", arg=[], kwarg={"timeout": 5, "tgt": "x"})
    made = deed(step("salt.wheel", "key.accept", match="frank"), test=False)
    assert made == CallDeed(kind="wheel", fun="key.accept", arg=[], kwarg={"match": "frank"})
    made = deed(step("salt.wait_for_event", "salt/minion/*/start", id_list=["a"], event_id="name"), test=False)
    assert made == WaitDeed(pattern="salt/minion/*/start", ids=["a"], key="name", seconds=300.0)


@pytest.mark.parametrize("said", ["salt.function", "salt.runner", "salt.wheel", "salt.wait_for_event"])
def test_with_test_nothing_is_done(said: str) -> None:
    made = deed(step(said, "test.ping", tgt="x", id_list=["x"]), test=True)
    assert isinstance(made, WordsDeed)
    assert made.result is None


def test_with_test_a_state_run_is_told_so() -> None:
    made = deed(step("salt.state", "say", tgt="x", sls="a"), test=True)
    assert isinstance(made, JobDeed)
    assert made.kwarg["test"] is True


@pytest.mark.parametrize(
    ("args", "comment"),
    [
        ({}, "No highstate or sls specified, no execution made"),
        ({"sls": "a", "concurrent": 1}, "Must pass in boolean for value of 'concurrent'"),
        ({"sls": "a", "allow_fail": "x"}, "Passed invalid value for 'allow_fail', must be an int"),
    ],
)
def test_a_state_run_that_salt_would_not_send_is_not_sent(args: dict[str, Any], comment: str) -> None:
    assert deed(step("salt.state", "say", tgt="x", **args), test=False) == WordsDeed(result=False, comment=comment)


def test_a_function_that_ran_everywhere() -> None:
    bare = of_job(job("salt.function", tgt="*"), "1", [answer("a"), answer("b", {"x": 1})])
    assert (bare.result, bare.comment) == (True, "Function ran successfully. Function test.ping ran on a, b.")
    assert (bare.changes, bare.jid) == ({"ret": {"a": True, "b": {"x": 1}}}, "1")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (answer("b", None, "unreachable", 1, "not connected"), "\nb: unreachable: not connected"),
        (answer("b", None, "refused", 1, "unknown function"), "\nb: refused: unknown function"),
        (answer("b", None, "timed_out", 1), "\nb: timed_out: it started and did not end in time"),
        (answer("b", "no", "failed", 2), ""),
        (answer("b", False), ""),
    ],
)
def test_a_function_that_failed_somewhere_says_where_and_why(bad: Answered, reason: str) -> None:
    bare = of_job(job("salt.function", tgt="*"), "1", [answer("a"), bad])
    assert bare.result is False
    assert bare.comment == (f"Running function test.ping failed on minions: b Function test.ping ran on a, b.{reason}")


def test_devices_that_may_fail_and_nobody_there() -> None:
    bad = answer("b", None, "unreachable", 1, "away")
    assert of_job(job("salt.function", tgt="*", fail_minions="x, b"), "1", [answer("a"), bad]).result is True
    bare = of_job(job("salt.function", tgt="*"), "1", [])
    assert (bare.result, bare.comment) == (False, "No minions responded")
    bare = of_job(job("salt.state", "s", tgt="*", sls="a"), "1", [])
    assert (bare.result, bare.comment) == (False, "No minions returned")
    bare = of_job(job("salt.state", "s", tgt="*", sls="a", expect_minions=False), "1", [])
    assert (bare.result, bare.comment) == (True, "States ran successfully.")


SAME = {"file_|-a_|-a_|-managed": {"result": True, "changes": {}}}
OTHER = {"file_|-a_|-a_|-managed": {"result": True, "changes": {"diff": "x"}}}
BAD = {"file_|-a_|-a_|-managed": {"result": False, "changes": {}}}


def test_a_state_run_says_who_changed_who_did_not_and_who_failed() -> None:
    made = job("salt.state", "s", tgt="*", sls="a")
    bare = of_job(made, "1", [answer("a", OTHER), answer("b", SAME)])
    assert bare.comment == "States ran successfully. Updating a. No changes made to b."
    assert bare.changes == {"out": "highstate", "ret": {"a": OTHER}}
    bare = of_job(made, "1", [answer("a", BAD, "failed", 2), answer("b", SAME)])
    assert (bare.result, bare.comment) == (False, "Run failed on minions: a")
    bare = of_job(made, "1", [answer("a", None, "refused", 1, "unknown function: state.sls")])
    assert bare.comment == "Run failed on minions: a\na: refused: unknown function: state.sls"
    assert of_job(job("salt.state", "s", tgt="*", sls="a", allow_fail=1), "1", [answer("a", BAD)]).result is True
    assert of_job(job("salt.state", "s", tgt="*", sls="a", test=True), "1", [answer("a", OTHER)]).result is None


def test_devices_of_two_sites_with_one_name_are_told_apart() -> None:
    other = Answered(device="a", site="porto", outcome="ok", retcode=0, value=2, why="")
    bare = of_job(job("salt.function", tgt="*"), "1", [answer("a", 1), other])
    assert bare.changes == {"ret": {"lisbon/a": 1, "porto/a": 2}}


def test_what_a_runner_returned() -> None:
    bare = of_call("runner", "manage.up", "1", ok=True, value=["a"])
    assert (bare.result, bare.comment, bare.changes) == (
        True,
        "Runner function 'manage.up' executed.",
        {"return": ["a"]},
    )
    bare = of_call("wheel", "key.accept", "1", ok=False, value="no")
    assert (bare.result, bare.comment) == (False, "Wheel function 'key.accept' failed.\nno")
    assert of_call("runner", "x.y", "1", ok=True, value={"Error": "no"}).result is False


@pytest.mark.parametrize(
    ("value", "good"),
    [
        ({}, False),
        (None, False),
        ([], False),
        (SAME, True),
        (BAD, False),
        ({"a": {"b": SAME}}, True),
        ({"a": BAD}, False),
    ],
)
def test_a_tree_of_states_is_good_when_nothing_in_it_failed(value: Any, good: bool) -> None:
    assert check_result(value) is good


def test_a_result_has_salts_shape() -> None:
    bare = of_call("runner", "manage.up", "7", ok=True, value=[])
    assert told(step("salt.runner", "manage.up"), bare, start_time="10:00:00.000000", duration=1.23456) == {
        "name": "manage.up",
        "changes": {"return": []},
        "result": True,
        "comment": "Runner function 'manage.up' executed.",
        "__sls__": "orch.a",
        "__run_num__": 0,
        "__id__": "say",
        "start_time": "10:00:00.000000",
        "duration": 1.235,
        "__jid__": "7",
    }


def test_what_is_too_deep_or_too_large_gives_way_and_says_so() -> None:
    deep: Any = 1
    for _ in range(30):
        deep = {"a": deep}
    assert encode_value(flat(deep)) != encode_value(deep)
    assert flat({"a": [1, {"b": 2}]}) == {"a": [1, {"b": 2}]}
    result = {"comment": "c", "changes": {"ret": {f"d{n}": "x" * 1000 for n in range(50)}}, "__jid__": "7"}
    small = fitting(result, 10_000)
    assert len(encode_value(small)) <= 10_000
    left = 50 - len(small["changes"]["ret"])
    assert f"The values of {left} devices are too large to be told here: outstation jobs show 7" in small["comment"]
    assert fitting(result, 100_000) is result
    small = fitting({"comment": "c", "changes": {"return": "x" * 10_000}}, 5_000)
    assert small["changes"] == {}
    assert "What it returned is too large to be told here" in small["comment"]
