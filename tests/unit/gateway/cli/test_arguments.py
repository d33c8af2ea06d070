"""gateway/cli/arguments.py."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.command_line.durations import UNITS
from device_agent.errors import UsageInvalid
from gateway.cli.arguments import duration, written
from gateway.typed_arguments import split_arguments, value


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("3", 3),
        ("-2.5", -2.5),
        ("0644", 644),
        ("{mode: 0644, at: [12:30, 1_000, 0x1f]}", {"mode": 644, "at": ["12:30", "1_000", 31]}),
        ("9223372036854775808", 2**63),
        ("[18446744073709551615, 18446744073709551616]", [2**64 - 1, "18446744073709551616"]),
        ("[2026-11-21]", ["2026-11-21"]),
        ("1.", 1.0),
        ("!!float 3", 3.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("None", None),
        ("eth0", "eth0"),
        ('"3"', "3"),
        ("'true'", "true"),
        ("[1, two]", [1, "two"]),
        ("{a: 1, b: [x]}", {"a": 1, "b": ["x"]}),
    ],
)
def test_numbers_words_lists_and_dicts_are_what_they_look_like(typed: str, read: Any) -> None:
    assert value(typed) == read
    assert type(value(typed)) is type(read)


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "  ",
        "|",
        "!",
        "a: b",
        "- a",
        "echo # not a comment",
        "# all of it",
        "1_000",
        " 1_000 ",
        "12:30:45",
        "2026-11-21",
        ".inf",
        ".nan",
        "!!binary aGVsbG8=",
        " {a: 1}",
        "{a: 1, a: 2}",
        "!!bool maybe",
        "!!int ''",
        "[!!binary aGk]",
        "! test -f /etc/x",
        "&name text",
        "--- a",
        ">-",
        "[unclosed",
        "*",
        "!!python/object/apply:os.system [ls]",
        "ls -l /var; uptime",
        "20261122223023469026",
        "1.10",
        "+0530",
        "-0600",
        "-9223372036854775809",
        "[" * 101,
        "- [" * 2000,
    ],
)
def test_text_that_yaml_would_lose_or_json_cannot_carry_stays_text(typed: str) -> None:
    assert value(typed) == typed


def test_a_key_that_is_not_text_is_an_error_that_says_how_to_write_it() -> None:
    with pytest.raises(UsageInvalid, match=r"write '1' in quotes"):
        value("{1: a}")


def test_an_argument_that_contains_itself_is_an_error() -> None:
    with pytest.raises(UsageInvalid, match="contains itself"):
        value("[&a [*a]]")


def test_named_arguments_are_told_from_text_with_an_equals_sign() -> None:
    typed = ["a=1", "b=x=y", "1=2", "c==d", "e.f=3", "g-h=", "--h=1", "é=true", "i=1\n2", "j=1\n"]
    by_name = {"a": 1, "b": "x=y", "e.f": 3, "g-h": "", "é": True, "j": "1\n"}
    assert split_arguments(typed) == (["1=2", "c==d", "--h=1", "i=1\n2"], by_name)


@pytest.mark.parametrize(
    "text", ["a\nb", "a\n", "[1,\n2]", "3\n", "a\tb", "3\t", "a\r\nb", "'a\nb'", "a\x85b", "a\u2028b"]
)
def test_text_with_a_line_break_or_a_tab_is_not_read(text: str) -> None:
    assert value(text) == text


def test_an_integer_as_long_as_a_jid_is_text_by_position_as_with_salt() -> None:
    assert split_arguments(["12345678901234567890", "x=12345678901234567890"]) == (
        ["12345678901234567890"],
        {"x": 12345678901234567890},
    )


def test_an_argument_that_is_nested_too_deep_is_an_error() -> None:
    with pytest.raises(UsageInvalid, match="nested more than 100 deep"):
        value("[" * 101 + "]" * 101)
    with pytest.raises(UsageInvalid, match="nested more than 100 deep"):
        value("[" * 100_000)


def test_an_argument_given_twice_is_an_error() -> None:
    with pytest.raises(UsageInvalid, match="timeout is given twice"):
        split_arguments(["timeout=1", "timeout=2"])


@given(st.text())
def test_whatever_is_typed_becomes_a_value_that_json_carries_or_a_typed_error(typed: str) -> None:
    try:
        read = value(typed)
    except UsageInvalid:
        return
    assert json.loads(json.dumps(read, allow_nan=False)) == read


@pytest.mark.parametrize(
    ("typed", "seconds"), [("30s", 30), ("5m", 300), ("2h", 7200), ("1d", 86_400), ("1.5h", 5400), ("0.5s", 0.5)]
)
def test_a_length_of_time_has_a_unit(typed: str, seconds: float) -> None:
    assert duration("--for", typed) == seconds


@pytest.mark.parametrize("typed", ["", "5", "m", "0s", "-3m", "5 m", "5min", "1h30m", "٣s", "5m\n", "infs", "1e3s"])
def test_what_is_no_length_of_time_is_refused_with_examples(typed: str) -> None:
    with pytest.raises(UsageInvalid, match="30s, 5m, 2h or 1d"):
        duration("--for", typed)


def test_a_wrong_length_of_time_names_its_option_and_what_was_probably_meant() -> None:
    with pytest.raises(UsageInvalid) as refused:
        duration("--for", "10", longest=86_400.0)
    assert str(refused.value).splitlines() == [
        "--for takes a length of time",
        "  found:   '10'",
        "  allowed: a number and a unit: 30s, 5m, 2h or 1d; at most 1d",
        "  try:     --for 10m",
    ]
    with pytest.raises(UsageInvalid, match="too long for --for") as refused:
        duration("--for", "2d", longest=86_400.0)
    assert refused.value.hint is None


@given(st.integers(1, 10_000), st.sampled_from(sorted(UNITS)))
def test_a_length_of_time_reads_as_it_was_written(count: int, unit: str) -> None:
    assert duration("--for", written(count * UNITS[unit])) == count * UNITS[unit]
