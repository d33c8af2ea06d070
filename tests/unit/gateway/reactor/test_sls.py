"""What rendered files say, as reactions: Salt's shapes, old and new, and what is wrong in one id."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.reactor.settings import Order
from gateway.reactor.sls import Reaction, RenderedFile, Trouble, all_or_none, compiled
from gateway.render_names import reaction_names
from gateway.render_yaml import read


def of(*texts: str, order: Order = "type") -> tuple[list[Reaction], list[Trouble]]:
    files = [RenderedFile(f"/{number}.sls", "r", read(text, reaction_names)) for number, text in enumerate(texts)]
    found = compiled(files, order)
    return found.reactions, found.troubles


def one(text: str) -> Reaction:
    (reaction,), troubles = of(text)
    assert troubles == []
    return reaction


def wrong(text: str) -> str:
    reactions, (trouble,) = of(text)
    assert reactions == []
    assert trouble.level == "error"
    return trouble.what


@pytest.mark.parametrize(
    ("text", "arg", "kwarg"),
    [
        ("a: {local.test.arg: [{tgt: x}, {args: [{b: 1}, {c: [2]}]}]}", [], {"b": 1, "c": [2]}),
        ("a: {local.test.arg: [{tgt: x}, {args: {b: 1, c: 2}}]}", [], {"b": 1, "c": 2}),
        ("a: {local.test.arg: [{tgt: x}, {arg: [1, two]}, {kwarg: {b: 3}}]}", [1, "two"], {"b": 3}),
        ("a: {local.test.arg: [{tgt: x}, {arg: one}]}", ["one"], {}),
        ("a: {local.test.arg: [{tgt: x}]}", [], {}),
        ("a: {runner.test.arg: [{args: [{b: 1}]}]}", [], {"b": 1}),
        ("a: {runner.test.arg: [{b: 1}, {c: 2}]}", [], {"b": 1, "c": 2}),
        ("a: {wheel.key.accept: [{match: cam-1}]}", [], {"match": "cam-1"}),
        ("a: {wheel.key.accept: [{arg: [cam-1]}, {kwarg: {b: 1}}]}", ["cam-1"], {"b": 1}),
        ("a: {caller.test.arg: [{args: [1, two]}]}", [1, "two"], {}),
        ("a: {caller.test.arg: [{args: [{b: 1}]}]}", [], {"b": 1}),
        ("a: runner.test.arg", [], {}),
        ("a: {runner.test.arg: }", [], {}),
        ("a: {runner: [test.arg, {b: 1}]}", [], {"b": 1}),
    ],
)
def test_arguments_are_read_in_every_shape_that_salt_reads(text: str, arg: list[Any], kwarg: dict[str, Any]) -> None:
    found = one(text)
    assert (found.arg, found.kwarg) == (arg, kwarg)


@pytest.mark.parametrize("said", ["local.test.arg", "caller.test.arg", "runner.test.arg", "wheel.key.accept"])
def test_the_data_of_an_event_names_no_argument(said: str) -> None:
    listed = ["runas=root", "3", "[a]", "a\nb=1"]
    target = "{tgt: x}, " if said.startswith("local") else ""
    found = one(f"a: {{{said}: [{target}{{arg: {listed!r}}}]}}".replace("'a\\nb=1'", '"a\\nb=1"'))
    assert (found.arg, found.kwarg) == (listed, {})


@pytest.mark.parametrize(
    ("said", "kind", "fun"),
    [
        ("local.state.apply", "local", "state.apply"),
        ("cmd.state.apply", "local", "state.apply"),
        ("cmd.cmd.run", "local", "cmd.run"),
        ("local.cmd.run", "local", "cmd.run"),
        ("runner.jobs.list_jobs", "runner", "jobs.list_jobs"),
        ("wheel.key.accept", "wheel", "key.accept"),
        ("caller.test.ping", "caller", "test.ping"),
    ],
)
def test_the_first_word_is_the_type_and_the_rest_the_function(said: str, kind: str, fun: str) -> None:
    found = one(f"a: {{{said}: [{{tgt: x}}]}}")
    assert (found.kind, found.fun) == (kind, fun)


@pytest.mark.parametrize(
    ("options", "tgt", "kind"),
    [
        ("[{tgt: 'cam-*'}]", "cam-*", "glob"),
        ("[{tgt: 'os:Linux'}, {tgt_type: grain}]", "os:Linux", "grain"),
        ("[{tgt: 'os:Linux'}, {expr_form: grain}]", "os:Linux", "grain"),
        ("[{tgt: x}, {tgt_type: list}, {expr_form: grain}]", "x", "list"),
        ("[{tgt: [a, b]}]", "a,b", "list"),
        ("[{tgt: 7}]", "7", "glob"),
    ],
)
def test_the_target_is_read_by_its_new_and_its_old_name(options: str, tgt: str, kind: str) -> None:
    found = one(f"a: {{local.test.ping: {options}}}")
    assert (found.tgt, found.tgt_type) == (tgt, kind)


def test_the_later_file_counts_where_two_have_the_same_id() -> None:
    reactions, troubles = of("a: runner.a.a\nb: runner.b.b", "a: runner.c.c")
    assert troubles == []
    assert {(each.id, each.fun, each.file) for each in reactions} == {("a", "c.c", "/1.sls"), ("b", "b.b", "/0.sls")}


def test_by_default_the_order_is_by_type_then_by_id_and_otherwise_as_it_is_written() -> None:
    text = (
        "z: {wheel.w.w: []}\nb: runner.r.r\na: runner.r.r\n"
        "c: {local.l.l: [{tgt: x}]}\nd: {cmd.c.c: [{tgt: x}]}\ne: caller.c.c"
    )
    by_type, _ = of(text)
    assert [each.id for each in by_type] == ["e", "d", "c", "a", "b", "z"]
    as_written, _ = of(text, order="file")
    assert [each.id for each in as_written] == ["z", "b", "a", "c", "d", "e"]
    assert [each.order for each in as_written] == list(range(6))


@pytest.mark.parametrize("order", ["type", "file"])
def test_an_order_that_is_given_comes_before_all_that_have_none(order: Order) -> None:
    reactions, _ = of(
        "n: runner.a.a\nl: {runner.a.a: [{order: last}]}\nt: {runner.a.a: [{order: 2}]}\n"
        "o: {runner.a.a: [{order: 1}]}\nf: {runner.a.a: [{order: first}]}",
        order=order,
    )
    assert [each.id for each in reactions] == ["f", "o", "t", "n", "l"]


def test_names_make_one_reaction_for_each_with_what_it_says_otherwise() -> None:
    text = (
        "a:\n  local.test.echo:\n    - tgt: x\n    - arg: [one]\n"
        "    - names: [b, {c: [{tgt: y}, {arg: [two]}]}, b, {d: {tgt: z}}]\n"
    )
    reactions, troubles = of(text)
    assert troubles == []
    assert [(each.id, each.name, each.tgt, each.arg) for each in reactions] == [
        ("a", "b", "x", ["one"]),
        ("a", "c", "y", ["two"]),
        ("a", "d", "z", ["one"]),
    ]
    runner = one("a: {runner.cache.clear_all: [{tgt: x}, {names: [b]}]}")
    assert (runner.name, runner.kwarg) == ("b", {"tgt": "x"})


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ("b", "names of local.test.ping is a list"),
        ("[{b: 1, c: 2}]", "a mapping has one name"),
        ("[{b: 1}]", "names of local.test.ping are texts"),
        ("[[b]]", "names of local.test.ping are texts"),
        ("[{b: [{tgt_type: nonsense}]}]", "b: 'nonsense' is no tgt_type"),
        (str(list(range(2000))), "has 2000 entries, at most 1000"),
    ],
)
def test_names_that_are_wrong_are_named(names: str, why: str) -> None:
    assert why in wrong(f"a: {{local.test.ping: [{{tgt: x}}, {{names: {names}}}]}}")


def test_several_names_are_sorted_as_salt_sorts_them() -> None:
    plain = "a: {runner.r.r: [{names: [z, c]}]}\nb: runner.r.r"
    assert [each.name or each.id for each in of(plain)[0]] == ["b", "c", "z"]
    assert [each.name or each.id for each in of(plain, order="file")[0]] == ["z", "c", "b"]
    ordered = "a: {runner.r.r: [{names: [z, c]}, {order: 1}]}\nb: {runner.r.r: [{order: 2}]}"
    assert [each.name or each.id for each in of(ordered)[0]] == ["z", "c", "b"]


def test_as_in_salt_one_wrong_id_takes_the_whole_event_along_where_that_is_wanted() -> None:
    files = [RenderedFile("/a.sls", "r", read("a: {local.test.ping: {tgt: x}}\nb: runner.b.b"))]
    found = all_or_none(compiled(files))
    assert found.reactions == []
    assert "1 reactions are left out because of a" in found.troubles[-1].what
    right = compiled([RenderedFile("/a.sls", "r", read("b: runner.b.b"))])
    assert all_or_none(right) is right


def test_what_is_empty_sets_off_nothing() -> None:
    for text in ("", "{}", "[]"):
        assert of(text) == ([], [])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: {local.test.ping: {tgt: x}}", "is a list, and here is a mapping"),
        ("a: [local.test.ping]", "type.function"),
        ("a: {local.test.ping: []}", "no tgt"),
        ("a: {local.test.ping: [{tgt: x}, {tgt_type: nonsense}]}", "'nonsense' is no tgt_type"),
        ("a: {local.test.ping: [{tgt: x, args: []}]}", "one name with its value"),
        ("a: {local.test.ping: [{tgt: x}, {args: [1]}]}", "args of local.test.ping"),
        ("a: {runner.test.arg: [{args: [1, {b: 2}]}]}", "args of runner.test.arg"),
        ("a: {nonsense.test.ping: []}", "'nonsense' is no type"),
        ("a: {cmd.run: [{tgt: x}]}", "write local.cmd.run"),
        ("a: {local: [{tgt: x}]}", "names no function"),
        ("include: [b]", "has no meaning"),
        ("- a", "no mapping of ids"),
    ],
)
def test_what_is_wrong_is_named(text: str, why: str) -> None:
    assert why in wrong(text)


def test_what_is_wrong_in_one_id_harms_no_other() -> None:
    reactions, troubles = of("a: {local.test.ping: {tgt: x}}\nb: runner.b.b", "- no mapping", "c: runner.c.c")
    assert [each.id for each in reactions] == ["b", "c"]
    assert {(trouble.file, trouble.id) for trouble in troubles} == {("/0.sls", "a"), ("/1.sls", "")}


@pytest.mark.parametrize(
    ("said", "names"), [("smtp", ["smtp"]), ("smtp, webhook", ["smtp", "webhook"]), ("[smtp]", ["smtp"])]
)
def test_the_returners_of_a_job_are_its_own_names(said: str, names: list[str]) -> None:
    reactions, troubles = of(
        f"a: {{local.test.arg: [{{tgt: x}}, {{ret: {said!r}}}]}}"
        if "[" not in said
        else f"a: {{local.test.arg: [{{tgt: x}}, {{ret: {said}}}]}}"
    )
    assert not troubles
    assert reactions[0].ret == names


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: {local.test.arg: [{tgt: x}, {args: {b: 1}}, {arg: [2]}]}", "ignored beside args"),
        ("a: {local.test.arg: [{tgt: x}, {timeout: 5}]}", "timeout of local.test.arg is not used"),
        ("a: {local.a.a: [{tgt: x}], local.b.b: [{tgt: x}]}", "one function of each type"),
    ],
)
def test_what_is_ignored_is_a_warning_and_the_reaction_is_made(text: str, why: str) -> None:
    reactions, (trouble,) = of(text)
    assert len(reactions) == 1
    assert trouble.level == "warning"
    assert why in trouble.what
    assert 2 not in reactions[0].arg


def test_an_event_sets_off_a_bounded_number() -> None:
    reactions, troubles = of("\n".join(f"a{number}: runner.a.a" for number in range(1500)))
    assert len(reactions) == 1000
    assert "at most 1000" in troubles[0].what
