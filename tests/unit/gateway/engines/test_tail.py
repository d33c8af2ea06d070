"""gateway/engines/tail.py: each line once, through rotation, cutting and lines without an end."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.engines.tail import LINE_BYTES, Tail


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "log"


def add(place: Path, text: str) -> None:
    with place.open("a") as file:
        file.write(text)


def test_it_begins_at_the_end_and_tells_each_line_when_it_is_whole(place: Path) -> None:
    add(place, "old\n")
    tail = Tail(place)
    assert tail.lines() == []
    add(place, "one\ntw")
    assert tail.lines() == ["one"]
    add(place, "o\n")
    assert tail.lines() == ["two"]
    assert tail.lines() == []


def test_from_the_start_is_the_whole_file(place: Path) -> None:
    add(place, "old\n")
    assert Tail(place, from_start=True).lines() == ["old"]


def test_of_a_file_that_comes_later_nothing_is_left_out(place: Path) -> None:
    tail = Tail(place)
    assert tail.lines() == []
    add(place, "first\n")
    assert tail.lines() == ["first"]


def test_a_file_that_was_rotated_is_read_to_its_end_and_then_the_new_one(place: Path) -> None:
    add(place, "old\n")
    tail = Tail(place)
    tail.lines()
    add(place, "last\n")
    place.rename(place.with_name("log.1"))
    add(place, "first\n")
    found = [*tail.lines(), *tail.lines(), *tail.lines()]
    assert found == ["last", "first"]


def test_a_file_that_was_cut_is_read_from_its_new_beginning(place: Path) -> None:
    add(place, "one\ntwo\n")
    tail = Tail(place)
    tail.lines()
    place.write_text("x\n")
    assert [*tail.lines(), *tail.lines()] == ["x"]


def test_a_line_that_does_not_end_is_told_once_cut_and_counted(place: Path) -> None:
    add(place, "")
    tail = Tail(place)
    tail.lines()
    add(place, "y" * (3 * LINE_BYTES))
    assert tail.lines() == ["y" * LINE_BYTES]
    add(place, "y" * (3 * LINE_BYTES))
    assert tail.lines() == []
    add(place, "end\nnext\n")
    assert tail.lines() == ["next"]
    assert tail.cut == 1


def test_bytes_that_are_no_text_are_shown_as_such(place: Path) -> None:
    place.write_bytes(b"\xff\xfeok\n")
    assert Tail(place, from_start=True).lines() == ["\ufffd\ufffdok"]
