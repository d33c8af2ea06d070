"""device_agent/protocol/tags.py."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.protocol import tags


def test_tags_are_salts() -> None:
    assert tags.job_new("20231114221320250000") == "salt/job/20231114221320250000/new"
    assert tags.job_return("20231114221320250000", "cam-1") == "salt/job/20231114221320250000/ret/cam-1"
    assert tags.device_start("cam-1") == "salt/minion/cam-1/start"
    assert tags.PRESENCE_CHANGE == "salt/presence/change"


@pytest.mark.parametrize(
    ("pattern", "tag", "expected"),
    [
        ("*", "salt/auth", True),
        ("salt/job/*/ret/*", "salt/job/1/ret/cam-1", True),
        ("salt/job/*", "salt/job/1/ret/cam-1", True),
        ("salt/job", "salt/job/1", False),
        ("salt/minion/cam-?/start", "salt/minion/cam-1/start", True),
        ("salt/minion/cam-[23]/start", "salt/minion/cam-1/start", False),
        ("SALT/*", "salt/auth", False),
    ],
)
def test_a_glob_is_held_against_the_whole_tag(pattern: str, tag: str, expected: bool) -> None:
    assert tags.matches(pattern, tag) is expected


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        (tags.job_return("20231114221320250000", "cam-1"), True),
        (tags.job_new("20231114221320250000"), False),
        ("salt/job/ret/1", False),
        ("salt/jobs/1/ret/cam-1", False),
        ("a/salt/job/1/ret/cam-1", False),
    ],
)
def test_a_return_is_known_by_its_tag(tag: str, expected: bool) -> None:
    assert tags.is_job_return(tag) is expected


@given(pattern=st.text("ab/*?[]!", max_size=10), tag=st.text("ab/\n", max_size=8))
def test_matching_is_fnmatch(pattern: str, tag: str) -> None:
    assert tags.matches(pattern, tag) == fnmatch.fnmatchcase(tag, pattern)
