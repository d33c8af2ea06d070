"""gateway/render_yaml.py: whatever a document says, its reader ends with a value or an error of its own."""

from __future__ import annotations

import pytest
import yaml

from gateway.calls.call import CallFailed
from gateway.render_yaml import DEPTH, TooLarge, read
from gateway.runners.http import _decoded

LEVELS = 100_000
"""libyaml ends the process at some 30,000."""


@pytest.mark.parametrize("start", ["[", "{a: ", "- ", "? ", "[{"])
def test_deep_nesting_is_too_large(start: str) -> None:
    with pytest.raises(TooLarge, match=f"nested more than {DEPTH} deep"):
        read(start * LEVELS)


def test_a_long_document_of_few_levels_is_read() -> None:
    assert read("- [a, {b: c}]\n" * 5000) == [["a", {"b": "c"}]] * 5000
    with pytest.raises(yaml.YAMLError):
        read("- [a\n" * 5000)


@pytest.mark.parametrize("text", ["!!bool maybe", "!!int abc", "!!int ''", "!!float x", "!!int '_'"])
def test_text_that_does_not_fit_its_tag_is_an_error_with_its_line(text: str) -> None:
    with pytest.raises(yaml.constructor.ConstructorError) as error:
        read(f"a: 1\nb: {text}")
    assert error.value.problem_mark is not None
    assert error.value.problem_mark.line == 1


@pytest.mark.parametrize("body", ["[" * LEVELS, "a: !!bool maybe", "{a: 1, a: 2}"])
def test_an_answer_over_http_that_is_no_yaml_fails_the_call(body: str) -> None:
    with pytest.raises(CallFailed, match="cannot be decoded"):
        _decoded(body, "auto", {"Content-Type": "application/yaml"})
