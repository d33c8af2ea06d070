"""What orchestration files say, as steps in their order: Salt's shapes, Salt's order, and what is wrong with a file."""

from __future__ import annotations

import pytest

from gateway.orchestrate.compiling import compiled
from gateway.orchestrate.words import SlsFile, Step
from gateway.render_names import step_names
from gateway.render_yaml import read

PING = "[{tgt: x}, {name: test.ping}"


def of(*texts: str, lines: dict[str, int] | None = None) -> tuple[list[Step], list[str]]:
    files = [
        SlsFile(
            env="base",
            sls=f"orch.f{number}",
            path=f"orch/f{number}.sls",
            data=read(text, step_names),
            lines=lines or {},
        )
        for number, text in enumerate(texts)
    ]
    found = compiled(files)
    return found.steps, found.errors


def ids(*texts: str) -> list[str]:
    steps, errors = of(*texts)
    assert errors == []
    return [step.id for step in steps]


def wrong(text: str) -> str:
    steps, errors = of(text)
    assert steps == []
    return "\n".join(errors)


def test_a_step_has_what_salt_calls_it_and_what_stands_under_it() -> None:
    (step,), errors = of("say: {salt.function: [{name: test.arg}, {tgt: 'cam-*'}, {arg: [1]}, {kwarg: {b: 2}}]}")
    assert errors == []
    assert step.tag == "salt_|-say_|-test.arg_|-function"
    assert step.args == {"tgt": "cam-*", "arg": [1], "kwarg": {"b": 2}}
    assert (step.sls, step.number, step.requisites) == ("orch.f0", 0, [])


def test_the_older_way_to_write_a_function_and_the_short_form() -> None:
    steps, errors = of("a: {salt: [function, {name: test.ping}, {tgt: x}]}\nb: test.nop\nc: {test: [nop]}")
    assert errors == []
    assert [step.said for step in steps] == ["salt.function", "test.nop", "test.nop"]
    assert [step.name for step in steps] == ["test.ping", "b", "c"]


def test_steps_come_as_they_are_written_and_files_one_after_another() -> None:
    assert ids("z: test.nop\na: test.nop", "m: test.nop") == ["z", "a", "m"]


@pytest.mark.parametrize("kind", ["require", "watch", "onfail", "onchanges", "require_any", "onfail_any", "onfail_all"])
def test_what_a_step_requires_comes_before_it(kind: str) -> None:
    assert ids(f"a: {{test.nop: [{{{kind}: [{{test: b}}]}}]}}\nb: test.nop") == ["b", "a"]
    assert ids(f"a: {{test.nop: [{{{kind}: [b]}}]}}\nb: test.nop") == ["b", "a"]


@pytest.mark.parametrize("kind", ["require_in", "watch_in", "onfail_in", "onchanges_in"])
def test_it_may_be_said_at_the_other_end(kind: str) -> None:
    assert ids(f"a: test.nop\nb: {{test.nop: [{{{kind}: [{{test: a}}]}}]}}") == ["b", "a"]
    steps, _ = of(f"a: test.nop\nb: {{test.nop: [{{{kind}: [a]}}]}}")
    assert [each.kind for each in steps[1].requisites] == [kind.removesuffix("_in").replace("watch", "require")]


def test_a_requisite_means_an_id_a_name_a_whole_file_or_all_that_a_glob_matches() -> None:
    other = "b1: {test.nop: [{name: other}]}\nb2: test.nop"
    for said, count in (("{test: other}", 1), ("{test: b1}", 1), ("{sls: orch.f1}", 2), ("{test: 'b*'}", 2), ("b2", 1)):
        steps, errors = of(f"a: {{test.nop: [{{require: [{said}]}}]}}", other)
        assert errors == []
        (step,) = [each for each in steps if each.id == "a"]
        assert len(step.requisites) == count, said


def test_order_is_a_number_first_last_or_from_the_end() -> None:
    said = ["{order: last}", "{order: -2}", "{order: 5}", "{order: first}", "{order: 1}", "{order: -1}"]
    texts = "\n".join(f"s{number}: {{test.nop: [{each}]}}" for number, each in enumerate(said))
    assert ids(f"{texts}\nplain: test.nop") == ["s3", "s4", "s2", "plain", "s1", "s5", "s0"]


def test_a_step_that_others_wait_for_is_as_early_as_they_are() -> None:
    text = "a: {test.nop: [{order: 1}, {require: [c]}]}\nb: {test.nop: [{order: 2}]}\nc: test.nop"
    assert ids(text) == ["c", "a", "b"]


def test_names_make_a_step_each_with_arguments_of_their_own() -> None:
    text = (
        "many: {salt.function: [{tgt: x}, {names: [test.ping, {test.arg: [{tgt: y}, {arg: [1]}]}, test.ping]}]}\n"
        "then: {test.nop: [{require: [{salt: test.arg}]}]}"
    )
    steps, errors = of(text)
    assert errors == []
    assert [(step.name, step.args) for step in steps] == [
        ("test.ping", {"tgt": "x"}),
        ("test.arg", {"tgt": "y", "arg": [1]}),
        ("then", {}),
    ]
    assert [each.step for each in steps[2].requisites] == [1]


def test_failhard_and_parallel_are_of_the_step_and_no_arguments() -> None:
    (step,), _ = of("a: {test.nop: [{failhard: true}, {parallel: true}]}")
    assert (step.failhard, step.parallel, step.args) == (True, True, {})


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "a: {test.nop: [{require: [{test: b}]}]}",
            "Referenced state does not exist for requisite [require: (test: b)]",
        ),
        ("a: {test.nop: [{require_in: [{test: b}]}]}", "Cannot extend ID 'b' in 'base:orch.f0'"),
        ("a: {test.nop: [{require: [{test.nop: b}]}]}", "did you mean 'test'?"),
        ("a: {test.nop: [{require: {test: b}}]}", "The require statement in state 'a' in SLS 'orch.f0' needs to be"),
        ("a: {test.nop: [{require: [{test: [b]}]}]}", "must have a string as the value"),
        ("a: {test.nop: [{require: [{x: b, y: c}]}]}", "is not formed as a single key dictionary"),
        ("a: {pkg.installed: []}", "State 'pkg.installed' was not found in SLS 'orch.f0'"),
        ("a: {salt.function: [{name: test.ping}]}", "Missing parameter tgt for state salt.function"),
        ("a: {salt.function: [{name: test.ping}, {tgt: x}, {tgt_type: moon}]}", "'moon' is no tgt_type"),
        ("a: {salt.function: [{name: test.ping}, {tgt: x}, {batch: 2}]}", "batch in state 'a' is not there"),
        ("a: {salt.wait_for_event: [{name: x}]}", "Missing parameter id_list for state salt.wait_for_event"),
        ("a: {salt.wait_for_event: [{id_list: [x]}, {timeout: soon}]}", "timeout is at most"),
        ("a: {test.nop: [{unless: ls}]}", "unless in state 'a' is not there in an orchestration"),
        ("a: {test: [{x: 1}]}", "No function declared in state 'a' in SLS 'orch.f0'"),
        ("a: {test: [nop, succeed]}", "Please choose one of the following: nop, succeed"),
        ("a: {test.nop: [two words]}", "has whitespace"),
        ("a: {test.nop: }", "contains a short declaration (test.nop) with a trailing colon"),
        ("a: {test.nop: {b: 1}}", "State 'a' in SLS 'orch.f0' is not formed as a list"),
        ("a: {test.nop: [], test.fail_without_changes: []}", "multiple state declarations of the same type"),
        ("a: {test.nop: [{names: x}]}", "The 'names' argument in state 'a'"),
        ("a: 5", "ID a in SLS orch.f0 is not a dictionary"),
        ("5: test.nop", "ID '5' in SLS 'orch.f0' is not formed as a string, but is type int"),
        ("[a, b]", "SLS orch.f0 does not render to a dictionary"),
        ("extend: {a: {}}", "extend is not there in an orchestration"),
    ],
)
def test_what_is_wrong_is_said_in_salts_words_and_nothing_is_run(text: str, what: str) -> None:
    assert what in wrong(text)


def test_every_error_has_its_file_and_line() -> None:
    _, errors = of("b: {pkg.installed: []}", lines={"b": 7})
    assert errors[0].startswith("base:orch/f0.sls:7: State 'pkg.installed'")


def test_an_id_is_there_once_in_all_files() -> None:
    _, errors = of("a: test.nop", "a: test.nop")
    assert "The conflicting ID is 'a' and is found in SLS 'base:orch.f0' and SLS 'base:orch.f1'" in errors[0]


def test_steps_that_wait_for_each_other_are_refused_and_the_round_is_named() -> None:
    text = "".join(f"{a}: {{test.nop: [{{require: [{b}]}}]}}\n" for a, b in ("ab", "bc", "ca", "da"))
    (error,) = of(text)[1]
    assert "Recursive requisites were found: ({'SLS': 'orch.f0', 'ID': 'a'}, 'require', " in error
    assert "'ID': 'd'" not in error
    (error,) = of("a: {test.nop: [{onfail: [a]}]}")[1]
    assert "Recursive requisites were found" in error


def test_too_many_steps_or_requisites_are_refused() -> None:
    _, errors = of("\n".join(f"s{number}: test.nop" for number in range(1001)))
    assert "an orchestration has at most 1,000 steps, and here are 1,001" in errors[0]
    every = "\n".join(f"s{number}: {{test.nop: [{{require: [{{test: 't*'}}]}}]}}" for number in range(400))
    _, errors = of(every + "\n" + "\n".join(f"t{number}: test.nop" for number in range(400)))
    assert "more than 100,000 requisites" in errors[0]
