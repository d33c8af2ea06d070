"""The sequences of an outbox: none is given twice, and none before it is reserved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from device_agent.sequence import RESERVED, Sequence

OUTBOX = b"8 bytes."


def test_nothing_is_given_before_it_is_reserved() -> None:
    sequence = Sequence()
    assert sequence.take() == (b"", 0)
    sequence.start(OUTBOX)
    assert sequence.take() == (b"", 0)
    sequence.reserved(3)
    assert [sequence.take() for _ in range(3)] == [(OUTBOX, 1), (OUTBOX, 2), (b"", 0)]
    sequence.reserved(4)
    assert sequence.take() == (OUTBOX, 3)


def test_more_is_wanted_before_the_last_is_given() -> None:
    sequence = Sequence(OUTBOX)
    sequence.reserved(RESERVED)
    scarce = []
    for _ in range(RESERVED - 2):
        scarce.append(sequence.scarce)
        assert sequence.take()[1]
    assert not scarce[0]
    assert scarce[-1]


@given(st.lists(st.integers(-2, 2 * RESERVED), max_size=30))
def test_no_sequence_is_given_twice_however_often_the_device_ends(steps: list[int]) -> None:
    """A step is so many messages; -1 is a reservation, -2 a crash."""
    sequence, on_flash = Sequence(), 0
    sequence.start(OUTBOX)
    given_out: list[int] = []
    for step in steps:
        if step == -2:
            sequence = Sequence()
            sequence.restored(OUTBOX, on_flash)
        elif step == -1:
            on_flash = sequence.next + RESERVED
            sequence.reserved(on_flash)
        else:
            given_out += [number for number in (sequence.take()[1] for _ in range(step)) if number]
    assert len(set(given_out)) == len(given_out)
    assert given_out == sorted(given_out)
