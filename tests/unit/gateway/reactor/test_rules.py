"""The ``reactor:`` map: which entries are rules, and which tags they match."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.reactor.rules import Rule, parsed, parsed_text


@pytest.mark.parametrize(
    ("glob", "tag", "matches"),
    [
        ("salt/beacon/*", "salt/beacon/m1/inotify//etc/x", True),
        ("salt/beacon/*", "salt/beacon/", True),
        ("a[0-9]", "a5", True),
        ("a[0-9]", "ab", False),
        ("a[!0-9]", "ab", True),
        ("A*", "abc", False),
        ("a?c", "abc", True),
        ("abc", "abcd", False),
    ],
)
def test_a_glob_is_matched_against_the_whole_tag_and_crosses_slashes(glob: str, tag: str, matches: bool) -> None:
    assert bool(parsed([{glob: "/a.sls"}]).matching(tag)) is matches


def test_a_text_is_one_path_and_every_entry_that_matches_counts_in_order() -> None:
    rules = parsed([{"a/*": ["/1.sls", "/2.sls"]}, {"b": "/3.sls"}, {"*": "/1.sls"}])
    assert [rule.paths for rule in rules.matching("a/b")] == [("/1.sls", "/2.sls"), ("/1.sls",)]
    assert rules.paths() == ["/1.sls", "/2.sls", "/3.sls"]


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("a", "no mapping"),
        (None, "no mapping"),
        ({}, "0 keys"),
        ({"a": "/1", "b": "/2"}, "2 keys"),
        ({"a": 7}, "neither a path"),
        ({"a": {"b": "/1"}}, "neither a path"),
        ({"a": ["/1", 7]}, "neither a path"),
        ({"": "/1"}, "0 characters"),
        ({"a": ["/1"] * 1000}, "more than"),
    ],
)
def test_what_is_no_rule_is_left_out_and_named_and_the_others_count(entry: Any, why: str) -> None:
    found = parsed([entry, {"b": "/1.sls"}])
    assert found.rules == (Rule(2, "b", ("/1.sls",)),)
    (skipped,) = found.skipped
    assert "entry 1" in skipped
    assert why in skipped


def test_a_file_holds_the_list_with_or_without_its_name() -> None:
    for text in ("- a: /1.sls\n", "reactor:\n  - a: [/1.sls]\n"):
        assert parsed_text(text, "/etc/r.yaml").rules == (Rule(1, "a", ("/1.sls",)),)
    assert parsed_text("", "/etc/r.yaml").skipped == ()
    assert parsed_text("a: [\n", "/etc/r.yaml").skipped[0].startswith("/etc/r.yaml:2: ")
    assert "no list" in parsed_text("a: 1\n", "/etc/r.yaml").skipped[0]
