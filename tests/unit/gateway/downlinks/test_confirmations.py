"""gateway/downlinks/confirmations.py: each device is told of each of its returns, in few messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from gateway.downlinks.confirmations import BROADCASTS_MOST, JIDS_MOST, confirmations

SITE = [f"cam-{number}" for number in range(8)]


def is_most(names: Sequence[str]) -> bool:
    return len(names) > len(SITE) / 2


def test_one_job_of_the_whole_site_is_one_broadcast() -> None:
    assert confirmations({"1": SITE}, is_most) == ([(["1"], tuple(SITE))], [])


def test_jobs_with_the_same_answers_share_a_message() -> None:
    broadcasts, single = confirmations({"1": SITE, "2": SITE, "3": SITE[:2], "4": SITE[:2]}, is_most)
    assert [(jids, list(names)) for jids, names in broadcasts] == [(["1", "2"], SITE)]
    assert single == [(["3", "4"], SITE[:2])]


def test_many_jobs_at_once_are_one_message_for_each_device() -> None:
    answered = {str(number): SITE[: 5 + number % 3] + SITE[7:] for number in range(100)}
    many = {**answered, **{f"x{number}": [*SITE[:4], SITE[4 + number % 4]] for number in range(BROADCASTS_MOST)}}
    broadcasts, single = confirmations(many, is_most)
    assert broadcasts == []
    assert sum(len(names) for _, names in single) == len(SITE)


def test_a_message_has_no_more_jobs_than_a_device_takes() -> None:
    answered = {str(number): SITE for number in range(JIDS_MOST + 1)}
    assert [len(jids) for jids, _ in confirmations(answered, is_most)[0]] == [JIDS_MOST, 1]
    assert [len(jids) for jids, _ in confirmations(answered, lambda _: False)[1]] == [JIDS_MOST, 1]


@given(st.dictionaries(st.text("123456789", min_size=1, max_size=2), st.lists(st.sampled_from(SITE), unique=True)))
def test_each_is_told_of_each_of_its_returns_once(answered: dict[str, list[str]]) -> None:
    told = Counter(
        (jid, name)
        for part in confirmations(answered, is_most)
        for jids, names in part
        for jid in jids
        for name in names
    )
    assert told == Counter((jid, name) for jid, names in answered.items() for name in names)
