"""docs/functions.md lists what there is, and what differs from Salt."""

from __future__ import annotations

from device_agent import loader
from tests.peers import functions_page
from tests.peers.function_stories import WITH_SALT, steps


def test_the_page_lists_exactly_the_functions_there_are() -> None:
    rows = [row[0][0] for row in functions_page.listed("What there is")]
    assert sorted(rows) == list(loader.names())


def test_what_the_page_says_of_salt_is_about_functions_there_are() -> None:
    tables = ("Answers", "Not asked of Salt", "Arguments", "Not taken")
    assert set().union(*map(functions_page.named, tables)) <= set(loader.names())


def test_what_a_story_does_otherwise_than_salt_is_on_the_page() -> None:
    assert steps("differs", "no", stories=WITH_SALT) <= functions_page.named("Answers")
