"""Orchestrations on a real store: from the file to each step's job, its result, and on through a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import PolicyRefused, UsageInvalid
from gateway.calls.call import CallRequest
from gateway.devices.policy import Operator, Role
from gateway.orchestrate.orchestrator import MARGIN_SECONDS
from tests.peers.orchestrating import ADA, PINGED, Answers, Orchestrating, orchestrating, steps_of
from tests.peers.reacting import written
from tests.peers.waiting import until

COMPLEX = """\
{% set tag = salt.pillar.get('event_tag') %}
{% set data = salt.pillar.get('event_data') %}
do_first_thing:
  salt.runner:
    - name: test.arg
    - foo: {{ data.foo }}
    - tag: {{ tag }}
do_second_thing:
  salt.state:
    - tgt: {{ data.bar }}
    - sls:
      - do_thing_on_minion
    - kwarg:
        baz: {{ data.baz }}
    - pillar:
        baz: {{ data.baz }}
    - require:
      - salt: do_first_thing
"""
PILLAR = {"event_tag": "my/event", "event_data": {"foo": "Foo!", "bar": "cam*", "baz": "Baz!"}}
REFUSED: Answers = {**PINGED, "state.sls": ("refused", "unknown function: state.sls")}


async def test_a_runner_and_then_a_state_run_with_what_the_pillar_says(tmp_path: Path) -> None:
    files = {"orchestrate/do_complex_thing.sls": COMPLEX}
    async with orchestrating(tmp_path, files, REFUSED) as station:
        ended, steps = await station.ran("orchestrate.do_complex_thing", pillar=PILLAR)
        first, second = steps["do_first_thing"], steps["do_second_thing"]
        assert first["result"] is True
        assert first["changes"] == {"return": {"args": [], "kwargs": {"foo": "Foo!", "tag": "my/event"}}}
        assert (first["comment"], first["__run_num__"]) == ("Runner function 'test.arg' executed.", 0)
        (job,) = await station.jobs()
        assert (job.tgt, job.fun, job.arg, job.user) == ("cam*", "state.sls", ["do_thing_on_minion"], "ada")
        assert job.kwarg == {"pillar": {"baz": "Baz!"}, "queue": False, "concurrent": False}
        assert job.why == f"runner.state.orchestrate {ended.jid}"
        assert second["result"] is False
        assert second["comment"] == "Run failed on minions: cam-1\ncam-1: refused: unknown function: state.sls"
        assert second["__jid__"] == job.jid
        assert second["warnings"] == ["'kwarg' is an invalid keyword argument for 'salt.state'. Ignored."]
        assert (ended.state, ended.retcode, ended.value["retcode"]) == ("failed", 1, 1)
        assert list(ended.value["data"]["lisbon_master"]) == [
            "salt_|-do_first_thing_|-test.arg_|-runner",
            "salt_|-do_second_thing_|-do_second_thing_|-state",
        ]
        tag = f"salt/job/{ended.jid}/prog/lisbon_master/*"
        told = [(event.tag, event.data) for event in await station.station.rooms.bus.history(tag, 9)]
        assert told == [
            (
                f"salt/job/{ended.jid}/prog/lisbon_master/{number}",
                {"data": {"ret": step, "len": 2}, "id": "lisbon_master", "jid": ended.jid},
            )
            for number, step in enumerate([first, second])
        ]


FILES = {
    "orch/init.sls": "include: [.parts.one, dev: other]\nlast: test.nop\n",
    "orch/parts/one.sls": (
        "{% from 'lib/names.jinja' import name %}\n{{ name }}: {test.nop: [{require_in: [{test: last}]}]}\n"
    ),
    "lib/names.jinja": "{% set name = 'named' %}",
}


async def test_names_mean_files_and_folders_and_includes_come_first(tmp_path: Path) -> None:
    async with orchestrating(tmp_path, FILES) as station:
        written(tmp_path / "dev", {"other.sls": "other: test.nop\n"})
        ended, steps = await station.ran("orch")
        assert ended.ok, ended.value
        assert [(each["__id__"], each["__sls__"]) for each in steps.values()] == [
            ("named", "orch.parts.one"),
            ("other", "other"),
            ("last", "orch"),
        ]
        ended, steps = await station.ran(["other"], saltenv="dev", fun="state.orch")
        assert (ended.ok, list(steps), ended.value["retcode"]) == (True, ["other"], 0)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "a: {{ lacking }}",
            "Rendering SLS 'base:bad' failed: base:bad.sls:1: 'lacking' is undefined   [a: {{ lacking }}]",
        ),
        ("a: 1\nb: }", "Rendering SLS 'base:bad' failed: base:bad.sls:2: "),
        ("{% import 'no.jinja' as x %}", "Rendering SLS 'base:bad' failed: base:bad.sls"),
        ("{% for x in range(90000) %}{{ 'x' * 100 }}{% endfor %}", "it renders to more than 4194304 characters"),
        ("include: [other]", "Specified SLS other in saltenv base is not available"),
        ("include: other", "base:bad.sls:1: Include Declaration in SLS bad is not formed as a list"),
        ("include: [..other]", "goes beyond top level package"),
        ("\na:\n  pkg.installed: []", "base:bad.sls:2: State 'pkg.installed' was not found in SLS 'bad'"),
        ("a: {test.nop: [{require: [{test: b}]}]}", "base:bad.sls:1: Referenced state does not exist for requisite"),
    ],
)
async def test_what_is_wrong_is_named_with_file_and_line_and_nothing_is_done(
    text: str, what: str, tmp_path: Path
) -> None:
    async with orchestrating(tmp_path, {"bad.sls": text, "good.sls": "x: test.nop"}) as station:
        ended, steps = await station.ran("good,bad")
        assert (ended.state, ended.value["retcode"]) == ("failed", 1)
        assert what in "\n".join(steps[""])
        assert await station.steps() == {}


@pytest.mark.parametrize("named", [{"mods": ""}, {"mods": "a/b.sls"}, {"mods": "a", "exclude": "b"}])
async def test_arguments_that_make_no_sense(named: dict[str, Any], tmp_path: Path) -> None:
    async with orchestrating(tmp_path, {"a.sls": "x: test.nop"}) as station:
        ended = await station.end(await station.begin(**named))
        assert ended.state == "failed"
        with pytest.raises(UsageInvalid):
            await station.begin("a", pillar=[1])


REQUISITES = """\
bad: test.fail_without_changes
needs: {salt.function: [{name: test.ping}, {tgt: '*'}, {require: [{test: bad}]}]}
mends: {salt.function: [{name: test.ping}, {tgt: '*'}, {onfail: [{test: bad}]}]}
idle: {test.nop: [{onfail: [{salt: mends}]}]}
then: {test.nop: [{onchanges: [{salt: mends}]}]}
never: {test.nop: [{onchanges: [{test: then}]}]}
"""


async def test_a_step_that_failed_stops_those_that_need_it_and_starts_those_that_wait_for_that(tmp_path: Path) -> None:
    async with orchestrating(tmp_path, {"a.sls": REQUISITES}) as station:
        ended, steps = await station.ran("a")
        assert {name: each["result"] for name, each in steps.items()} == {
            "bad": False,
            "needs": False,
            "mends": True,
            "idle": True,
            "then": True,
            "never": True,
        }
        assert steps["needs"]["comment"] == "One or more requisite failed: a.bad"
        assert steps["idle"]["comment"] == "State was not run because onfail req did not change"
        assert steps["never"]["comment"] == "State was not run because none of the onchanges reqs changed"
        assert [steps[name].get("__state_ran__", True) for name in steps] == [True, False, True, False, True, False]
        assert len(await station.jobs()) == 1
        assert ended.state == "failed"


async def test_a_returner_that_is_not_here_is_a_warning_of_the_step(tmp_path: Path) -> None:
    step = "ask:\n  salt.function:\n    - name: test.ping\n    - tgt: cam-1\n    - ret: syslog\n"
    async with orchestrating(tmp_path, {"ask.sls": step}, PINGED) as station:
        _, steps = await station.ran("ask")
        assert steps["ask"]["result"] is True
        (warning,) = steps["ask"]["warnings"]
        assert "the job runs without the returners that are not here: syslog" in warning
        assert len(await station.jobs()) == 1


async def test_after_a_failhard_nothing_else_is_begun(tmp_path: Path) -> None:
    text = "a: test.nop\nb: {test.fail_without_changes: [{failhard: true}]}\nc: test.nop\n"
    async with orchestrating(tmp_path, {"a.sls": text}) as station:
        _, steps = await station.ran("a")
        assert list(steps) == ["a", "b"]


async def test_with_test_nothing_is_done(tmp_path: Path) -> None:
    text = "a: {salt.function: [{name: test.ping}, {tgt: '*'}]}\nb: {salt.runner: [{name: manage.up}]}\n"
    async with orchestrating(tmp_path, {"a.sls": text}) as station:
        ended, steps = await station.ran("a", test=True)
        assert [each["result"] for each in steps.values()] == [None, None]
        assert (ended.ok, await station.jobs()) == (True, [])


WAITS = """\
knock: {salt.function: [{name: test.ping}, {tgt: '*'}]}
wait:
  salt.wait_for_event:
    - name: site/*/start
    - id_list: [cam-1, cam-2, cam-3]
    - timeout: 100
    - require: [{salt: knock}]
"""


async def test_a_wait_ends_when_all_were_seen_also_while_what_it_requires_was_under_way(tmp_path: Path) -> None:
    async with orchestrating(tmp_path, {"a.sls": WAITS}, {}) as station:
        jid = await station.begin("a")
        await until(lambda: _begun(station, f"{jid}.0"), what="the first step is under way")
        await station.station.fire("site/x/start", id="cam-1")
        await station.station.fire("other/x/start", id="cam-2")
    async with orchestrating(tmp_path, {}) as station:
        await until(lambda: _begun(station, f"{jid}.1"), what="the second step is under way")
        await station.station.fire("site/y/start", data={"id": "cam-2"})
    async with orchestrating(tmp_path, {}) as station:
        await station.station.fire("site/y/start", id=["cam-3", "cam-1"])
        steps = steps_of(await station.end(jid))
        assert steps["wait"]["result"] is True
        assert steps["wait"]["changes"] == {"minions_seen": ["cam-1", "cam-2", "cam-3"]}
        assert steps["wait"]["comment"].startswith("All events seen in ")


async def _begun(station: Orchestrating, step: str) -> bool:
    return (await station.steps()).get(step) == "begun"


async def test_a_wait_for_returns_and_one_whose_time_is_over(tmp_path: Path) -> None:
    text = (
        "ping: {salt.function: [{name: test.ping}, {tgt: '*'}]}\n"
        "back: {salt.wait_for_event: [{name: salt/job/*/ret/*}, {id_list: [cam-1]}, {require: [ping]}]}\n"
        "gone: {salt.wait_for_event: [{name: salt/job/*/ret/*}, {id_list: [cam-9]}, {timeout: 0.5}]}\n"
    )
    async with orchestrating(tmp_path, {"a.sls": text}) as station:
        jid = await station.begin("a")
        await until(lambda: _begun(station, f"{jid}.2"), what="it waits")
        station.clock.move(1.0)
        steps = steps_of(await station.end(jid))
        assert steps["back"]["changes"] == {"minions_seen": ["cam-1"]}
        assert (steps["gone"]["result"], steps["gone"]["comment"]) == (False, "Timeout value reached. Not seen: cam-9")


async def test_a_clock_that_is_set_ends_no_wait(tmp_path: Path) -> None:
    text = "wait: {salt.wait_for_event: [{name: site/*}, {id_list: [cam-1, cam-2]}, {timeout: 60}]}\n"
    async with orchestrating(tmp_path, {"a.sls": text}) as station:
        jid = await station.begin("a")
        listening = station.station.rooms.bus._subscribers
        await until(lambda: any(each.pattern == "site/*" for each in listening), what="it waits")
        # As on a machine without a clock of its own, once it has reached a time server.
        station.clock.step_wall(86_400.0)
        (own,) = (each for each in listening if each.pattern == "site/*")
        await station.station.fire("site/x", id="cam-1")
        await until(lambda: not own.heard.is_set(), what="it has looked")
        await station.station.fire("site/x", id="cam-2")
        assert steps_of(await station.end(jid))["wait"]["result"] is True


DEVICES = ("cam-1", "cam-2", "cam-3")
THREE = """\
one: {salt.function: [{name: test.ping}, {tgt: '*'}]}
two: {salt.runner: [{name: test.arg}, {x: 1}, {require: [one]}]}
three: {salt.function: [{name: test.echo}, {tgt: '*'}, {arg: [said]}, {require: [two]}]}
"""


async def test_what_a_stop_cut_off_goes_on_and_no_step_is_two_jobs(tmp_path: Path) -> None:
    async with orchestrating(tmp_path, {"a.sls": THREE}, {}, devices=DEVICES) as station:
        jid = await station.begin("a")
        await until(lambda: _jobs(station, 1), what="the first step has its job")
    for answers in ({}, {"test.ping": ("ok", True)}, {}):
        # What the file says now is of no matter to what was begun.
        async with orchestrating(tmp_path, {"a.sls": "{{ broken"}, answers, devices=DEVICES) as station:
            if answers:
                await until(lambda: _jobs(station, 2), what="the third step has its job")
    async with orchestrating(tmp_path, {}, devices=DEVICES) as station:
        ended = await station.end(jid)
        assert ended.ok, ended.value
        steps = steps_of(ended)
        assert list(steps) == ["one", "two", "three"]
        assert steps["three"]["changes"] == {"ret": dict.fromkeys(DEVICES, "said")}
        assert [job.fun for job in await station.jobs()] == ["test.ping", "test.echo"]
        calls = await station.station.kept.own.book.newest(10)
        assert sorted(each.call.fun for each in calls) == ["state.orchestrate", "test.arg"]


async def _jobs(station: Orchestrating, count: int) -> bool:
    return len(await station.jobs()) == count


NESTED = "inner: {salt.runner: [{name: state.orchestrate}, {mods: a}]}\nafter: {test.nop: [{require: [inner]}]}\n"


async def test_one_within_another_goes_on_as_well(tmp_path: Path) -> None:
    files = {"a.sls": THREE, "outer.sls": NESTED}
    async with orchestrating(tmp_path, files, {}) as station:
        jid = await station.begin("outer")
        await until(lambda: _jobs(station, 1), what="the first step within has its job")
    async with orchestrating(tmp_path, files) as station:
        ended = await station.end(jid)
        assert ended.ok, ended.value
        inner = steps_of(ended)["inner"]["changes"]["return"]["data"]["lisbon_master"]
        assert [each["__id__"] for each in inner.values()] == ["one", "two", "three"]
        assert [job.fun for job in await station.jobs()] == ["test.ping", "test.echo"]
        assert set(await station.steps()) == {f"{jid}.0", f"{jid}.1", *(f"{jid}.0.{number}" for number in range(3))}


async def test_parallel_steps_are_under_way_at_the_same_time_and_who_requires_them_waits(tmp_path: Path) -> None:
    text = (
        "a: {salt.function: [{name: test.ping}, {tgt: '*'}, {parallel: true}]}\n"
        "b: {salt.function: [{name: test.echo}, {tgt: '*'}, {parallel: true}]}\n"
        "c: {test.nop: [{require: [a]}]}\n"
    )
    async with orchestrating(tmp_path, {"a.sls": text}, {"test.echo": ("ok", 1)}) as station:
        jid = await station.begin("a")
        await until(lambda: _jobs(station, 2), what="both are under way")
        assert (await station.steps())[f"{jid}.2"] == "waiting"
    async with orchestrating(tmp_path, {}) as station:
        assert list(steps_of(await station.end(jid))) == ["a", "b", "c"]


async def test_one_that_is_not_done_in_its_time_is_cut_and_says_at_which_step(tmp_path: Path) -> None:
    async with orchestrating(tmp_path, {"a.sls": THREE}, {}) as station:
        ended = await station.end(await station.begin("a", timeout=MARGIN_SECONDS + 6))
        steps = steps_of(ended)
        assert ended.state == "failed"
        assert steps["one"]["comment"].endswith("It was under way: what it began goes on.")
        assert steps["three"]["comment"].endswith("It was not run.")
        rows = await station.station.rooms.reader.rows("SELECT outcome, why FROM orchestrations")
        assert [(outcome, why.partition(" in ")[0]) for outcome, why in rows] == [("cut", "it was not done")]


async def test_what_would_be_run_is_shown_and_not_run(tmp_path: Path) -> None:
    async with orchestrating(tmp_path, {"a.sls": THREE}) as station:
        ended, steps = await station.ran("a", fun="state.orchestrate_show_sls")
        assert ended.ok
        assert [(each["fun"], each["place"]) for each in steps.values()] == [
            ("salt.function", "base:a.sls:1"),
            ("salt.runner", "base:a.sls:2"),
            ("salt.function", "base:a.sls:3"),
        ]
        assert steps["two"]["requisites"] == [{"require": "salt_|-one_|-test.ping_|-function"}]
        assert (await station.jobs(), await station.steps()) == ([], {})


async def test_the_arguments_of_steps_are_shown_to_nobody_who_may_only_look(tmp_path: Path) -> None:
    viewer = Operator("eve", frozenset[Role]({"viewer"}))
    async with orchestrating(tmp_path, {"a.sls": THREE}) as station:
        for fun in ("state.orchestrate_show_sls", "state.orch_show_sls"):
            with pytest.raises(PolicyRefused):
                await station.station.kept.own.calls.submit(CallRequest(fun=fun, kwarg={"mods": "a"}), viewer)


async def test_what_a_private_function_returned_is_neither_in_a_result_nor_in_an_event(tmp_path: Path) -> None:
    async with orchestrating(tmp_path, {"a.sls": "a: {salt.wheel: [{name: config.values}]}"}) as station:
        ended, steps = await station.ran("a")
        assert ended.ok, ended.value
        assert steps["a"]["changes"] == {"return": "for who asked alone"}
        told = await station.station.rooms.bus.history("*", 100)
        assert not any("file_roots" in str(event.data) for event in told)


async def test_other_runners_do_not_wait_for_orchestrations(tmp_path: Path) -> None:
    async with orchestrating(tmp_path, {"a.sls": THREE}, {}, calls={"at_once": 1}) as station:
        jids = [await station.begin("a") for _ in range(2)]
        await until(lambda: _jobs(station, 2), what="both are under way")
        calls = station.station.kept.own.calls
        assert (await station.end(await calls.submit(CallRequest(fun="test.arg"), ADA))).ok
        assert [calls.under_way(jid) is not None for jid in jids] == [True, True]


REACTION = """\
go:
  runner.state.orchestrate:
    - args:
      - mods: orchestrate.do_complex_thing
      - pillar:
          event_tag: {{ tag }}
          event_data: {{ data|json }}
"""


async def test_a_reaction_hands_its_event_to_an_orchestration(tmp_path: Path) -> None:
    path = written(tmp_path, {"some_event.sls": REACTION}) / "some_event.sls"
    files = {"orchestrate/do_complex_thing.sls": COMPLEX}
    rules, policy = [{"my/custom/event": str(path)}], "users: {reactor: admin}\n"
    async with orchestrating(tmp_path, files, REFUSED, reactor=rules, policy=policy) as station:
        await station.station.fire("my/custom/event", foo="Foo!", bar="cam*", baz="Baz!")
        (made,) = (await station.station.event("my/custom/event"))["reactions"]
        assert (made["state"], made["said"]) == ("issued", "runner.state.orchestrate")
        steps = steps_of(await station.end(made["jid"]))
        assert steps["do_first_thing"]["changes"]["return"]["kwargs"] == {"foo": "Foo!", "tag": "my/custom/event"}
        (job,) = await station.jobs()
        assert (job.user, job.kwarg["pillar"]) == ("reactor", {"baz": "Baz!"})
        assert job.why.startswith(f"reaction {made['key']} depth 0 ")


async def test_who_asks_for_events_as_salts_runner_does_is_told_what_prints_them(tmp_path: Path) -> None:
    async with orchestrating(tmp_path, {}) as station:
        calls = station.station.kept.own.calls
        asked = CallRequest(fun="state.event", arg=["salt/job/*"], kwarg={"pretty": True})
        with pytest.raises(
            PolicyRefused, match=r"runner.state.event is not supported: .* outstation events TAG-GLOB --pretty"
        ):
            await calls.submit(asked, ADA)
