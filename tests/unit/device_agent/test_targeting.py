"""device_agent/protocol/targeting.py, globs.py and grain_match.py: Salt's targets, from a table and from chance."""

from __future__ import annotations

import fnmatch
import warnings
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import UsageInvalid
from device_agent.protocol import compound, limits, target_terms
from device_agent.protocol.globs import compile_glob
from device_agent.protocol.messages import TargetType
from device_agent.protocol.targeting import compile_target

VECTORS: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parents[2] / "vectors" / "targeting.yaml").read_text(encoding="utf-8")
)


def case(vector: dict[str, Any]) -> str:
    return f"{vector['type']}:{vector['tgt'][:40]}"


@pytest.mark.parametrize("vector", VECTORS["matches"], ids=case)
def test_a_target_means_the_devices_it_means_in_salt(vector: dict[str, Any]) -> None:
    target = compile_target(vector["tgt"], vector["type"])
    found = [device for device, grains in VECTORS["devices"].items() if target.matches(device, grains)]
    assert found == vector["expected"]


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=case)
def test_a_target_that_does_not_parse_says_what_is_wrong_and_where(vector: dict[str, Any]) -> None:
    with pytest.raises(UsageInvalid) as caught:
        compile_target(vector["tgt"], vector["type"])
    error = caught.value
    for part in ("what", "where", "found", "allowed", "hint"):
        if part in vector:
            assert vector[part] in str(getattr(error, part)), part
    assert error.where
    assert error.found is not None
    assert error.allowed


def test_a_target_over_its_bounds_is_refused_with_the_bound() -> None:
    for tgt, tgt_type, bound in [
        ("a" * (limits.TARGET_CHARACTERS + 1), "list", limits.TARGET_CHARACTERS),
        ("a" * (target_terms.PATTERN_CHARACTERS + 1), "glob", target_terms.PATTERN_CHARACTERS),
        ("a" * (target_terms.PATTERN_CHARACTERS + 1), "pcre", target_terms.PATTERN_CHARACTERS),
        ("a:" + "a" * target_terms.PATTERN_CHARACTERS, "grain", target_terms.PATTERN_CHARACTERS),
        (" or ".join(["a"] * (limits.TARGET_TERMS + 1)), "compound", limits.TARGET_TERMS),
        ("( " * 60_000, "compound", compound.NESTING),
    ]:
        with pytest.raises(UsageInvalid) as caught:
            compile_target(tgt, tgt_type)  # type: ignore[arg-type]  # the table pairs texts
        assert str(bound) in str(caught.value.allowed)
        assert len(str(caught.value)) < 1000


def test_a_target_at_its_bounds_is_taken() -> None:
    ids = [f"device-{number:04}" for number in range(8000)]
    many = compile_target(",".join(ids), "list")
    assert many.matches(ids[-1], {})
    assert compile_target(" or ".join(["x"] * limits.TARGET_TERMS), "compound").matches("x", {})
    deep = "( " * compound.NESTING + "x" + " )" * compound.NESTING
    assert compile_target(deep, "compound").matches("x", {})


def test_the_same_target_is_compiled_once() -> None:
    assert compile_target("cam-*", "glob") is compile_target("cam-*", "glob")
    assert compile_target("cam-1,cam-2", "list") is not compile_target("cam-1,cam-2", "glob")


def test_a_glob_full_of_stars_costs_a_bounded_number_of_steps() -> None:
    # With a matcher that tries every split this would take longer than the universe is old.
    assert not compile_glob("*a" * 500 + "b")("a" * 128)
    assert not compile_target("*:" * (target_terms.GRAIN_PARTS - 1) + "x", "grain").matches(
        "d", {str(key): {str(inner): {"deep": {"er": [1]}} for inner in range(5)} for key in range(5)}
    )


@given(pattern=st.text("ab*?[]!-.^\\|&~", max_size=12), text=st.text("ab-.^\\|&~]", max_size=8))
def test_a_compiled_glob_agrees_with_fnmatch(pattern: str, text: str) -> None:
    assert compile_glob(pattern)(text) == fnmatch.fnmatchcase(text, pattern)


keys = st.text("ab:*", min_size=1, max_size=3)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("ab:*", max_size=4) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)
foreign = st.recursive(
    plain | st.complex_numbers() | st.just(object()) | st.sets(st.integers(), max_size=3),
    lambda inner: st.tuples(inner) | st.dictionaries(st.integers() | st.none(), inner, max_size=3),
    max_leaves=6,
)


@given(grains=st.dictionaries(keys, plain | foreign, max_size=4), expression=st.text("ab:*0", min_size=1, max_size=12))
def test_no_grains_make_a_grain_target_raise(grains: dict[str, Any], expression: str) -> None:
    for tgt, tgt_type in [(expression, "grain"), (f"G@{expression} or x", "compound")]:
        try:
            target = compile_target(tgt, tgt_type)  # type: ignore[arg-type]  # the table pairs texts
        except UsageInvalid:
            continue
        assert isinstance(target.matches("cam-1", grains), bool)


def test_grains_that_nest_for_ever_or_hold_themselves_or_have_no_text_do_not_raise() -> None:
    endless: list[Any] = []
    for _ in range(5000):
        endless = [endless]
    loop: dict[str, Any] = {}
    loop["a"] = loop
    for grains in ({"a": endless}, loop, {"a": 10**5000}):
        for expression in ("a:b", "a:*:b", "*:*:*:b", "a:0:0:b"):
            assert compile_target(expression, "grain").matches("cam-1", grains) in {True, False}


@given(tgt=st.text(max_size=40), tgt_type=st.sampled_from(get_args(TargetType)))
def test_any_text_is_a_target_or_a_usage_error(tgt: str, tgt_type: TargetType) -> None:
    try:
        target = compile_target(tgt, tgt_type)
    except UsageInvalid as error:
        facts = error.fields()
        assert {"what", "where", "found", "allowed"} <= facts.keys()
    else:
        assert isinstance(target.matches("cam-1", {"os": "Debian"}), bool)


def test_a_regular_expression_python_only_warns_of_is_taken_silently() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compile_target("cam-[[1]", "pcre").matches("cam-1", {})


words = st.sampled_from(["and", "or", "not", "(", ")", "cam-1", "cam-*", "G@os:Debian", "E@cam", "L@cam-1,b", "x"])


@given(parts=st.lists(words, min_size=1, max_size=12))
def test_a_compound_that_parses_means_what_python_makes_of_its_words(parts: list[str]) -> None:
    tgt = " ".join(parts)
    try:
        target = compile_target(tgt, "compound")
    except UsageInvalid:
        return
    grains = {"os": "Debian"}
    spoken: list[str] = []
    for word in parts:
        if word == "not" and spoken and spoken[-1] not in {"and", "or", "("}:
            spoken.append("and")
        term = word in {"and", "or", "not", "(", ")"}
        spoken.append(word if term else str(compile_target(word, "compound").matches("cam-1", grains)))
    assert target.matches("cam-1", grains) == eval(" ".join(spoken))
