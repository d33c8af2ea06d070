"""device_agent/system_text.py."""

from __future__ import annotations

import pytest

from device_agent import system_text

OTHER_ENDS = ("\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
"""Where ``str.splitlines()`` ends a line as well."""


@pytest.mark.parametrize("text", ["", "a", "\n", "a\n", "a\n\n", "\na\n\nb"])
def test_line_feeds_split_as_everywhere(text: str) -> None:
    assert system_text.lines(text) == text.splitlines()


@pytest.mark.parametrize("end", OTHER_ENDS)
def test_no_other_character_ends_a_line(end: str) -> None:
    assert system_text.lines(f"a{end}b\nc{end}\n") == [f"a{end}b", f"c{end}"]


@pytest.mark.parametrize("end", [*OTHER_ENDS, "\n", "\0"])
def test_a_text_that_some_reader_splits_is_not_one_line(end: str) -> None:
    assert system_text.is_one_line("Kamera Süd\tDock\u00a07")
    assert not system_text.is_one_line(f"a{end}b")
    assert not system_text.is_one_line(f"a{end}")


@pytest.mark.parametrize("blank", ["\u00a0", "\u2003", "\u3000", "\x85", "\x1f"])
def test_a_blank_that_c_does_not_know_separates_no_words(blank: str) -> None:
    assert system_text.words(f" a{blank}b \t c{blank}\v\f\r") == [f"a{blank}b", f"c{blank}"]
    assert system_text.fields(f"\ta{blank}b  c\r\v") == [f"a{blank}b", "c\r\v"]


def test_the_last_of_a_number_of_words_keeps_its_blanks() -> None:
    assert system_text.words("-rw  1 a  b ", 2) == ["-rw", "1", "a  b "]


def test_bytes_that_are_no_utf_8_and_lone_surrogates_are_parts_of_words() -> None:
    assert system_text.words("\udcff a\ud800") == ["\udcff", "a\ud800"]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"/mnt/usb\040stick", "/mnt/usb stick"),
        (r"/mnt/usb\302\240stick", "/mnt/usb\u00a0stick"),
        (r"/mnt/\134040", r"/mnt/\040"),
        (r"/mnt/\377", "/mnt/\udcff"),
        (r"/mnt/\777\08", r"/mnt/\777\08"),
        ("/mnt/\udcff\\011", "/mnt/\udcff\t"),
    ],
)
def test_an_octal_number_of_a_table_is_one_byte(written: str, read: str) -> None:
    assert system_text.unescaped(written) == read
