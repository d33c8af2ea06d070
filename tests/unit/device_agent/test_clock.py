"""device_agent/clock.py."""

from __future__ import annotations

import math

import pytest

from device_agent.clock import stamp, worded


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (1_795_230_900.25, "2026-11-21T03:15:00.250000"),
        (0.0, "1970-01-01T00:00:00.000000"),
        (-1e300, "1970-01-01T00:00:00.000000"),
        (1e300, "9999-12-31T23:59:59.000000"),
        (math.inf, "9999-12-31T23:59:59.000000"),
        (math.nan, "9999-12-31T23:59:59.000000"),
    ],
)
def test_a_stamp_is_salts_whatever_another_machine_says_the_time_is(moment: float, expected: str) -> None:
    assert stamp(moment) == expected


def test_a_sentence_has_the_time_as_salt_words_it() -> None:
    assert worded(1_795_230_900.25) == "Sat Nov 21 03:15:00 2026"
    assert worded(math.inf) == "Fri Dec 31 23:59:59 9999"
