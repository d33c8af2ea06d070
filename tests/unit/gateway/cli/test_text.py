"""gateway/cli/text.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.protocol.outcomes import MEANING, Outcome
from gateway.cli.text import (
    SHOWN_CHARACTERS,
    SHOWN_LINES,
    STYLE,
    ago,
    dark_since,
    meaning,
    moment,
    safe,
    shown,
    tally,
    value_lines,
)

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("bell\x07", r"bell\x07"),
        ("\x9b2J", r"\x9b2J"),
        ("over\rwritten", r"over\rwritten"),
        ("two\nlines", r"two\nlines"),
        ("evil\u202egnp", r"evil\u202egnp"),
        ("\u2028", r"\u2028"),
        ("\ud800", r"\ud800"),
        ("[bold]Küche ✓[/bold]", "[bold]Küche ✓[/bold]"),
    ],
)
def test_what_a_terminal_would_obey_is_shown_as_an_escape(hostile: str, harmless: str) -> None:
    assert safe(hostile) == harmless


@given(anything, st.booleans())
def test_no_line_of_any_value_holds_anything_but_printable_text(value: object, cut: bool) -> None:
    assert all(line.isprintable() for line in value_lines(value, cut))
    assert shown(value).isprintable()


def test_text_is_shown_line_by_line_and_the_rest_as_compact_json() -> None:
    assert value_lines("a\r\nb\tc\n\n", cut=False) == ["a", "b       c"]
    assert value_lines({"a": [1, None, "ü"]}, cut=False) == ['{"a":[1,null,"ü"]}']


def test_a_long_value_is_cut_with_a_note_of_what_is_missing() -> None:
    assert value_lines("x" * 5000, cut=True) == [
        "x" * SHOWN_CHARACTERS,
        "… cut: 5,000 characters in 1 lines; --json or a pipe gives all",
    ]
    many = value_lines("\n".join(["line"] * 100), cut=True)
    assert many == ["line"] * SHOWN_LINES + ["… cut: 400 characters in 100 lines; --json or a pipe gives all"]


@pytest.mark.parametrize("size", [SHOWN_CHARACTERS - 1, SHOWN_CHARACTERS])
def test_a_value_that_just_fits_is_not_cut(size: int) -> None:
    assert value_lines("x" * size, cut=True) == ["x" * size]
    assert value_lines("x" * 5000, cut=False) == ["x" * 5000]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-5, "now"), (0.4, "now"), (1, "1s"), (119, "119s"), (120, "2m"), (7200, "2h"), (172_800, "2d")],
)
def test_an_age_has_one_unit(seconds: float, words: str) -> None:
    assert ago(seconds) == words


def test_a_time_says_how_long_ago_it_is() -> None:
    assert moment(1_795_230_900.0, 1_795_231_020.0) == "2026-11-21T03:15:00Z (2m ago)"
    assert moment(1_795_230_900.0, 1_795_230_900.0) == "2026-11-21T03:15:00Z (now)"
    assert moment(None, 0.0) == "never"


def test_a_site_is_dark_since_it_was_last_heard() -> None:
    assert dark_since(1_795_230_900.0) == "dark since 2026-11-21T03:15:00Z"
    assert dark_since(None) == "never heard"


def test_a_tally_is_in_the_order_of_the_glossary_and_keeps_what_it_does_not_know() -> None:
    assert tally({"unreachable": 1, "ok": 1002, "failed": 0, "melted": 2}) == "1,002 ok, 1 unreachable, 2 melted"


def test_every_outcome_has_its_words_and_its_colour() -> None:
    assert {meaning(outcome) for outcome in Outcome} == set(MEANING.values())
    assert set(STYLE) == set(Outcome)
    assert meaning("melted\x1b") == r"melted\x1b"
