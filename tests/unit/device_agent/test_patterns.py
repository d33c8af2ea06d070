"""device_agent/protocol/patterns.py and linear_pattern.py: expressions that cannot hang, beside ``re``."""

from __future__ import annotations

import fnmatch
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.protocol.linear_pattern import LinearPattern
from device_agent.protocol.pattern_tree import Unreadable, read_tree
from device_agent.protocol.patterns import compile_pattern

atoms = st.sampled_from(["^", "$", r"\b", r"\B", r"\A", r"\Z", "(?#x)"]) | st.sampled_from(
    ["a", "b", "1", "[ab]", "[^a]", "[]a]", r"[\]b]", ".", r"\w", r"\d", r"\D", r"\x61", r"\-", "{", "é", "\n", ""]
)
counts = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{,2}", "{2,}", "*?", "+?", "??"])
regular = st.recursive(
    atoms,
    lambda inner: (
        st.tuples(inner, inner).map("".join)
        | st.tuples(inner, inner).map(lambda both: f"(?:{both[0]}|{both[1]})")
        | inner.map(lambda text: f"({text})")
        | inner.map(lambda text: f"(?P<n{abs(hash(text))}>{text})")
        | st.tuples(st.sampled_from(["i", "s", "m", "-i", "s-i"]), inner).map(lambda both: f"(?{both[0]}:{both[1]})")
        | st.tuples(inner, counts).map(lambda both: f"(?:{both[0]}){both[1]}")
    ),
    max_leaves=8,
)
texts = st.text("abAB1-_é\n", max_size=7)


@given(flags=st.sampled_from(["", "(?i)", "(?m)", "(?s)", "(?a)"]), inner=regular, text=texts)
def test_the_machine_says_what_python_says(flags: str, inner: str, text: str) -> None:
    pattern = flags + inner
    try:
        compiled = re.compile(pattern)
        machine = LinearPattern(read_tree(pattern, compiled.flags))
    except (re.error, Unreadable):
        return
    assert machine.match(text) == (compiled.match(text) is not None)
    assert compile_pattern(pattern)(text) == (compiled.match(text) is not None)


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        (r"(a+)+$", "a" * 128),
        (r"(a|a)*b", "a" * 127 + "b"),
        (r"(x+x+)+y", "x" * 127 + "y"),
        (r"(a?){30}a{30}", "a" * 30),
        (r".*a.*b.*c.*d.*e.*f$", "abcdef" * 20),
        (r"(.*)*x", "y" * 127 + "x"),
        (r"((a*)*)*$", "a" * 128),
        (r"([a-z]+)*\d", "a" * 127 + "1"),
    ],
)
def test_an_expression_that_hangs_python_is_answered_with_yes_and_with_no(pattern: str, meant: str) -> None:
    test = compile_pattern(pattern)
    for _ in range(1000):
        assert test(meant)
        assert not test(meant[:-1] + "!")


@pytest.mark.parametrize(
    "pattern",
    [
        r"(.*)\1.*b.*",
        r"(?=.*x)(a*)*$",
        r"(?:(?:(?:){1000}){1000}){1000}",
        r"(?:(?:a{900}){900}){900}",
        r"a{1001}",
        r"(?:){4294967290}",
        r"(?x) a",
        r"(a)?(?(1)b|c)",
        "(" * 40 + "a" + ")" * 40,
    ],
)
def test_what_neither_can_answer_is_refused_before_it_is_tried(pattern: str) -> None:
    with pytest.raises(Unreadable):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "text", "meant"),
    [
        (r"(?!cam-1$)cam-.*", "cam-10", True),
        (r"(?!cam-1$)cam-.*", "cam-1", False),
        (r"^(?!.*test)cam-.*", "cam-test", False),
        (r"(a|b)-\1$", "a-a", True),
        (r"(?P<x>a|b)-(?P=x)$", "a-b", False),
        (r"(?<!a)c?am", "am", True),
        (r"a*+b", "aab", True),
        (fnmatch.translate("*a*b*c*d*"), "xaxbxcxd", True),
    ],
)
def test_looks_and_references_with_few_ways_are_left_to_python(pattern: str, text: str, meant: bool) -> None:
    assert compile_pattern(pattern)(text) is meant


def test_a_machine_that_has_seen_much_forgets_and_goes_on() -> None:
    test = compile_pattern(r"(.+)+(.+)+x$")
    for number in range(3000):
        assert test(f"{chr(0x4E00 + number)}{chr(0x8E00 + number)}ax")
