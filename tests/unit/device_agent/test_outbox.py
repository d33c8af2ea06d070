"""The memory of jobs: what is known, what is kept, and what is given up first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from device_agent.outbox import MARKS_KEPT, UNCONFIRMED_RETURNS, Entry, Memory, MemoryJournal, Place, Record


def jid(number: int) -> str:
    return f"{number:020d}"


def test_a_new_job_is_not_known_and_a_started_one_is() -> None:
    memory = Memory()
    assert memory.find(jid(1)) is None
    memory.start(jid(1), "test.ping")
    assert memory.find(jid(1)) == Entry(Place.STARTED)
    memory.unstart(jid(1))
    assert memory.find(jid(1)) is None


def test_the_first_return_of_a_job_stays() -> None:
    memory = Memory()
    memory.start(jid(1), "test.ping")
    memory.finish(jid(1), b"first")
    memory.finish(jid(1), b"second")
    memory.start(jid(1), "test.ping")
    assert memory.find(jid(1)) == Entry(Place.DONE, b"first")
    assert memory.interrupted() == []


def test_unconfirmed_returns_are_told_in_the_order_they_were_done() -> None:
    memory = Memory()
    for number in (3, 1, 2):
        memory.finish(jid(number), b"x")
    memory.confirm(jid(1))
    assert memory.unconfirmed() == [jid(3), jid(2)]


def test_a_confirmation_of_what_was_never_returned_changes_nothing() -> None:
    memory = Memory()
    assert not memory.confirm(jid(9))
    assert memory.find(jid(9)) is None


def test_a_confirmed_result_still_answers_until_newer_ones_take_its_place() -> None:
    memory = Memory(results=2)
    for number in (1, 2, 3):
        memory.finish(jid(number), b"r%d" % number)
        memory.confirm(jid(number))
    assert memory.find(jid(1)) == Entry(Place.FORGOTTEN)
    assert memory.find(jid(2)) == Entry(Place.DONE, b"r2")
    assert memory.find(jid(3)) == Entry(Place.DONE, b"r3")


def test_what_is_older_than_everything_remembered_is_forgotten_and_not_new() -> None:
    memory = Memory(results=1, jids=8)
    for number in range(100, 200):
        memory.finish(jid(number), b"x")
        memory.confirm(jid(number))
    assert memory.horizon >= jid(190)
    assert memory.find(jid(50)) == Entry(Place.FORGOTTEN)
    assert memory.find(jid(100)) == Entry(Place.FORGOTTEN)
    assert memory.find(jid(200)) is None


def test_too_many_unconfirmed_returns_make_it_full_until_one_is_confirmed() -> None:
    memory = Memory()
    for number in range(UNCONFIRMED_RETURNS):
        assert not memory.full
        memory.finish(jid(number), b"x")
    assert memory.full
    memory.confirm(jid(0))
    assert not memory.full


Operations = st.lists(
    st.tuples(st.sampled_from(["started", "done", "confirmed", "forgotten"]), st.integers(1, 30)), max_size=120
)


@given(Operations)
def test_a_job_that_was_started_or_done_is_never_new_again(operations: list[tuple[str, int]]) -> None:
    memory = Memory(results=3, jids=4)
    touched: set[str] = set()
    for kind, number in operations:
        memory.apply(Record(kind, jid(number), body=b"x"))  # type: ignore[arg-type] # sampled from the legal kinds
        if kind != "confirmed":
            touched.add(jid(number))
        assert all(memory.find(one) is not None for one in touched)


def test_marks_only_rise_and_are_bounded() -> None:
    memory = Memory()
    memory.mark(b"a", 7)
    memory.mark(b"a", 5)
    memory.mark(b"", 9)
    for number in range(2 * MARKS_KEPT):
        memory.mark(b"%d" % number, 1)
    memory.mark(b"a", 8)
    assert memory.marks()[b"a"] == 8
    assert len(memory.marks()) == MARKS_KEPT


@given(Operations)
def test_the_records_of_a_memory_make_the_same_memory(operations: list[tuple[str, int]]) -> None:
    memory = Memory(results=3, jids=4)
    for kind, number in operations:
        signer = (b"%d" % (number % 3), number) if kind == "started" else (b"", 0)
        memory.apply(Record(kind, jid(number), "", b"x", *signer))  # type: ignore[arg-type] # of the legal kinds
    copy = Memory(results=3, jids=4)
    for record in memory.records():
        copy.apply(record)
    for number in range(31):
        assert copy.find(jid(number)) == memory.find(jid(number))
    assert copy.unconfirmed() == memory.unconfirmed()
    assert copy.interrupted() == memory.interrupted()
    assert copy.marks() == memory.marks()


async def test_the_journal_in_memory_keeps_what_it_is_told() -> None:
    journal = MemoryJournal(results=1)
    await journal.started(jid(1), "test.ping", b"a signer", 5)
    assert journal.marks() == {b"a signer": 5}
    await journal.done(jid(1), b"one")
    journal.answered(jid(2), b"two")
    journal.forgotten(jid(3))
    assert journal.unconfirmed() == [jid(1), jid(2)]
    journal.confirmed([jid(1), jid(2), jid(4)])
    assert journal.unconfirmed() == []
    assert journal.find(jid(1)) == Entry(Place.FORGOTTEN)
    assert journal.find(jid(2)) == Entry(Place.DONE, b"two")
    assert journal.find(jid(3)) == Entry(Place.FORGOTTEN)
