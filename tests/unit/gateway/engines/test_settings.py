"""gateway/engines/settings.py: Salt's shapes of ``engines:``, and an error with its place for everything else."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.engines.settings import Engine, engines_in


def test_names_lists_and_mappings_are_taken_as_salt_does() -> None:
    options = {"port": 1}
    wanted = [Engine("a", "a", {}), Engine("b", "b", options)]
    assert engines_in(["a", {"b": options}]) == wanted
    assert engines_in({"a": None, "b": options}) == wanted
    assert engines_in([]) == []


def test_two_engines_of_one_module_have_names_of_their_own() -> None:
    found = engines_in([{"north": {"engine_module": "logtail", "path": "/n"}}, {"logtail": {"path": "/s"}}])
    assert found == [Engine("north", "logtail", {"path": "/n"}), Engine("logtail", "logtail", {"path": "/s"})]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ([{"a": {}, "b": {}}], r"engines\[0\]: an entry has one key"),
        ([{}], r"engines\[0\]: an entry has one key"),
        (["a", "a"], r"engines\[1\]: a is there twice; give one another name, and engine_module: a"),
        (["a", 7], r"engines\[1\]: '7' is no name of an engine"),
        ([{"a": ["x"]}], r"engines\[0\]: the options of a are a mapping"),
        ([{"a": {1: 2}}], r"engines\[0\]: the options of a are a mapping"),
        ([{"a.b": {}}], r"engines\[0\]: 'a.b' is no name of a module: set engine_module"),
        ([{"a": {"engine_module": "../x"}}], r"'../x' is no name of a module"),
        ({"a/b": {}}, r"engines\.a/b: 'a/b' is no name of an engine"),
        ([f"a{number}" for number in range(65)], r"engines\[64\]: at most 64"),
    ],
)
def test_what_is_no_engine_is_said_with_its_place(said: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        engines_in(said)
