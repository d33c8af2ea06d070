"""device_agent/protocol/jid.py."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from device_agent.protocol.jid import JidMaker
from device_agent.protocol.messages import JID_PATTERN


def test_a_jid_is_the_time_of_issue_in_utc() -> None:
    assert JidMaker().next(1_700_000_000.25) == "20231114221320250000"


@given(clock=st.lists(st.floats(0, 4e9), min_size=1, max_size=30))
def test_jids_rise_whatever_the_clock_does(clock: list[float]) -> None:
    maker = JidMaker()
    made = [maker.next(seconds) for seconds in clock]
    assert made == sorted(set(made))
    assert all(re.match(JID_PATTERN, jid) for jid in made)


def test_a_maker_goes_on_after_the_newest_jid_it_is_told_of() -> None:
    assert JidMaker("20991231235959999999").next(0.0) == "21000101000000000000"
