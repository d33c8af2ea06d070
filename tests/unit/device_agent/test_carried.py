"""What a message carries of any value: numbers past 64 bits as text, and a key for each value that has no form."""

from __future__ import annotations

from datetime import UTC, date, datetime
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.protocol.carried import LEAST, MOST, carried, refuse
from device_agent.protocol.messages import check_plain, encode_value


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (MOST, MOST),
        (MOST + 1, str(MOST + 1)),
        (LEAST, LEAST),
        (LEAST - 1, str(LEAST - 1)),
        ({"a": [1, {"b": 2**70}]}, {"a": [1, {"b": str(2**70)}]}),
        ({2**70: 1, None: 2, True: 3, 1.5: 4}, {str(2**70): 1, "None": 2, "True": 3, "1.5": 4}),
        (
            {"when": datetime(2026, 11, 27, tzinfo=UTC), "day": date(2026, 11, 27)},
            {"when": "2026-11-27 00:00:00+00:00", "day": "2026-11-27"},
        ),
        ((1, {3, 2}, frozenset()), [1, [2, 3], []]),
        ({"level": Level.HIGH, Word.RED: Word.RED}, {"level": 3, "red": "red"}),
        ("caf\udce9", "caf\\udce9"),
        ({"k\ud800": 1}, {"k\\ud800": 1}),
        (bytearray(b"x"), b"x"),
    ],
)
def test_a_value_has_the_form_that_salt_gives_it(value: Any, expected: Any) -> None:
    found = carried(value)
    assert (found, type(found)) == (expected, type(expected))
    encode_value(found)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"a": {"b": object()}}, "a:b: object cannot be a value"),
        ({"a": [1, object()]}, "a:1: object cannot be a value"),
        (object(), "object cannot be a value"),
        ({"a": {(1, 2): 3}}, "a: a key must be text, found tuple"),
    ],
)
def test_what_has_no_form_is_refused_by_its_key(value: Any, why: str) -> None:
    with pytest.raises(Refused) as caught:
        carried(value)
    assert caught.value.detail == why


def test_keys_that_are_numbers_stay_where_a_pillar_has_them() -> None:
    assert carried({7: {8: 2**70}}, text_keys=False) == {7: {8: str(2**70)}}
    with pytest.raises(Refused, match="too_deep"):
        carried([[[1]]], depth=2)
    assert carried([[1]], depth=2) == [[1]]


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(st.characters())
        | st.binary()
        | st.datetimes(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.text(st.characters()) | st.integers(), inner) | st.tuples(inner)
        ),
        max_leaves=10,
    )
)
def test_whatever_comes_of_it_can_be_sent(value: Any) -> None:
    try:
        found = carried(value)
    except Refused:
        return
    check_plain(found)
    encode_value(found)
    assert repr(carried(found, refuse)) == repr(found)
