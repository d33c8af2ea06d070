"""The journal on disk: what survives a crash, a torn tail, damage, and a full disk."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from device_agent import journal_file
from device_agent.journal_file import MAGIC, FileJournal
from device_agent.outbox import Entry, JournalUnavailable, Memory, Place
from device_agent.protocol.messages import Return, decode_upward
from device_agent.sequence import RESERVED

KID, OTHER = b"master a", b"master b"


def jid(number: int) -> str:
    return f"{number:020d}"


async def filled(path: Path, jobs: int = 3) -> list[int]:
    """A journal with some finished jobs; the file's size after each record."""
    journal = FileJournal(path)
    await journal.open()
    sizes = [path.stat().st_size]
    for number in range(1, jobs + 1):
        await journal.started(jid(number), "test.ping", KID, 1)
        sizes.append(path.stat().st_size)
        await journal.done(jid(number), b"return %d" % number)
        sizes.append(path.stat().st_size)
    await journal.close()
    return sizes


async def test_what_was_done_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    await filled(path)
    journal = FileJournal(path)
    opened = await journal.open()
    # Each job is a start and an end; and there is the outbox.
    assert opened.records == 7
    assert opened.torn_bytes == 0
    assert journal.unconfirmed() == [jid(1), jid(2), jid(3)]
    assert journal.find(jid(2)) == Entry(Place.DONE, b"return 2")
    journal.confirmed([jid(1)])
    await journal.close()
    again = FileJournal(path)
    await again.open()
    assert again.unconfirmed() == [jid(2), jid(3)]
    await again.close()


async def test_a_start_is_on_disk_when_the_call_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        synced.append(os.fstat(descriptor).st_size)

    journal = FileJournal(tmp_path / "journal")
    await journal.open()
    monkeypatch.setattr(os, "fsync", fsync)
    await journal.started(jid(1), "test.ping", KID, 1)
    assert synced == [(tmp_path / "journal").stat().st_size]
    await journal.close()


async def test_the_highest_number_of_each_signer_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    crashed = FileJournal(path)
    await crashed.open()
    for number, (kid, seq) in enumerate([(KID, 5), (KID, 9), (OTHER, 2**64 - 1), (KID, 7)]):
        await crashed.started(jid(number), "test.ping", kid, seq)
    journal = FileJournal(path)
    await journal.open()
    assert journal.marks() == {KID: 9, OTHER: 2**64 - 1}
    await journal.close()
    await crashed.close()


async def test_a_number_stays_when_its_start_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = FileJournal(tmp_path / "journal")
    await journal.open()

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(JournalUnavailable):
            await journal.started(jid(1), "test.ping", KID, 5)
    assert journal.marks() == {KID: 5}
    await journal.close()


async def test_a_job_that_was_under_way_at_a_crash_becomes_unknown_once(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    crashed = FileJournal(path)
    await crashed.open()
    await crashed.started(jid(7), "test.sleep", KID, 1)

    journal = FileJournal(path)
    opened = await journal.open()
    assert opened.interrupted == [jid(7)]
    entry = journal.find(jid(7))
    assert entry is not None
    told = decode_upward(entry.body)
    assert isinstance(told, Return)
    assert (told.outcome, told.fun, told.executions) == ("unknown", "test.sleep", 1)
    assert "stopped while it ran" in told.why
    await journal.close()

    later = FileJournal(path)
    assert (await later.open()).interrupted == []
    assert later.unconfirmed() == [jid(7)]
    await later.close()
    await crashed.close()


async def test_a_file_cut_anywhere_keeps_every_record_before_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    sizes = [len(MAGIC), *await filled(path)]
    whole = path.read_bytes()
    for cut in range(len(MAGIC), len(whole)):
        path.write_bytes(whole[:cut])
        journal = FileJournal(path)
        opened = await journal.open()
        assert opened.set_aside is None
        assert opened.records == sum(size <= cut for size in sizes[1:])
        assert opened.torn_bytes == cut - max(size for size in sizes if size <= cut)
        await journal.close()


async def test_zeros_at_the_end_are_a_torn_tail(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    await filled(path)
    with path.open("ab") as file:
        file.write(bytes(4096))
    journal = FileJournal(path)
    opened = await journal.open()
    assert (opened.records, opened.torn_bytes, opened.set_aside) == (7, 4096, None)
    await journal.close()


async def test_damage_in_the_middle_sets_the_file_aside_and_runs_nothing_that_old(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    sizes = await filled(path)
    content = bytearray(path.read_bytes())
    content[sizes[2] + 12] ^= 0xFF
    path.write_bytes(content)
    journal = FileJournal(path)
    opened = await journal.open()
    assert opened.set_aside == tmp_path / "journal.corrupt-1"
    assert opened.set_aside.read_bytes() == content
    assert opened.records == 6
    assert journal.find(jid(1)) == Entry(Place.DONE, b"return 1")
    assert journal.find(jid(3)) == Entry(Place.DONE, b"return 3")
    # A job whose records may have been the lost ones.
    assert journal.find(jid(0)) == Entry(Place.FORGOTTEN)
    assert journal.find(jid(4)) is None
    await journal.close()
    again = FileJournal(path)
    assert (await again.open()).set_aside is None
    assert again.find(jid(3)) == Entry(Place.DONE, b"return 3")
    await again.close()


async def test_a_second_damage_does_not_overwrite_what_was_set_aside_first(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    for number in (1, 2):
        sizes = await filled(path)
        content = bytearray(path.read_bytes())
        content[sizes[0] + 12] ^= 0xFF
        path.write_bytes(content)
        journal = FileJournal(path)
        assert (await journal.open()).set_aside == tmp_path / f"journal.corrupt-{number}"
        await journal.close()
        path.unlink()


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(content=st.binary(max_size=200), prefix=st.booleans())
async def test_any_bytes_open_as_a_journal(tmp_path: Path, content: bytes, prefix: bool) -> None:
    path = tmp_path / "journal"
    path.write_bytes(MAGIC * prefix + content)
    journal = FileJournal(path)
    await journal.open()
    await journal.started(jid(5), "test.ping", KID, 1)
    await journal.done(jid(5), b"five")
    await journal.close()
    again = FileJournal(path)
    await again.open()
    assert again.find(jid(5)) == Entry(Place.DONE, b"five")
    assert again.marks()[KID] == 1
    await again.close()


async def test_a_full_disk_refuses_the_start_and_leaves_the_file_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal"
    await filled(path, jobs=1)
    journal = FileJournal(path)
    await journal.open()
    real = os.write
    with monkeypatch.context() as patch:

        def half_a_write(descriptor: int, data: bytes) -> int:
            if len(data) < 8:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(descriptor, data[: len(data) // 2])

        patch.setattr(os, "write", half_a_write)
        with pytest.raises(JournalUnavailable, match="No space left"):
            await journal.started(jid(2), "test.ping", KID, 1)
        # A result that cannot be written is still known here.
        await journal.done(jid(3), b"three")
        assert journal.find(jid(2)) is None
        assert journal.find(jid(3)) == Entry(Place.DONE, b"three")
        assert journal.write_failures == 2
    # There is room again: what waited is written with the next record.
    await journal.started(jid(4), "test.ping", KID, 1)
    await journal.close()
    again = FileJournal(path)
    opened = await again.open()
    assert (opened.torn_bytes, opened.set_aside) == (0, None)
    assert again.find(jid(3)) == Entry(Place.DONE, b"three")
    assert opened.interrupted == [jid(4)]
    await again.close()


async def test_what_waits_for_a_full_disk_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_file, "PENDING_BYTES", 1000)
    journal = FileJournal(tmp_path / "journal")
    await journal.open()
    for number in range(100):
        journal.answered(jid(number), b"x" * 50)
        assert journal._pending_bytes <= 1000
    assert journal.find(jid(0)) == Entry(Place.DONE, b"x" * 50)
    await journal.close()


async def test_a_long_file_is_rewritten_to_what_still_matters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_file, "COMPACT_BYTES", 2000)
    path = tmp_path / "journal"
    journal = FileJournal(path, Memory(results=2, jids=4))
    await journal.open()
    body = bytes(random.Random(1).randbytes(100))
    for number in range(1, 101):
        await journal.started(jid(number), "test.ping", KID, number)
        await journal.done(jid(number), body)
        journal.confirmed([jid(number)])
    await journal.flush()
    assert path.stat().st_size < 4000
    await journal.close()
    again = FileJournal(path, Memory(results=2, jids=4))
    await again.open()
    assert again.find(jid(100)) == Entry(Place.DONE, body)
    assert again.find(jid(1)) == Entry(Place.FORGOTTEN)
    assert again.marks() == {KID: 100}
    assert again.unconfirmed() == []
    await again.close()


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "missing" / "journal")
    with pytest.raises(JournalUnavailable, match="cannot be opened") as raised:
        await journal.open()
    assert raised.value.where == str(tmp_path / "missing" / "journal")


async def test_a_sequence_is_given_once_whatever_ends_the_agent(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    places: list[tuple[bytes, int]] = []
    crashed = []
    for _ in range(3):
        journal = FileJournal(path)
        await journal.open()
        # Nothing of this is written: it is only said.
        places += [journal.place() for _ in range(3)]
        crashed.append(journal)
    assert len({outbox for outbox, _ in places}) == 1
    numbers = [number for _, number in places]
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 1
    for journal in crashed:
        await journal.close()


async def test_what_waits_keeps_its_sequence_and_is_the_oldest_that_may_come(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = FileJournal(path)
    await journal.open()
    outbox, first = journal.place()
    _, second = journal.place()
    journal.answered(jid(1), b"one", first)
    journal.answered(jid(2), b"two", second)
    assert journal.oldest() == (outbox, first)
    journal.confirmed([jid(1)])
    await journal.close()
    again = FileJournal(path)
    await again.open()
    assert again.oldest() == (outbox, second)
    again.confirmed([jid(2)])
    assert again.oldest() == (outbox, again.place()[1])
    await again.close()


async def test_sequences_are_reserved_in_time_and_survive_a_rewrite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_file, "COMPACT_BYTES", 1)
    path = tmp_path / "journal"
    journal = FileJournal(path)
    await journal.open()
    outbox = journal.oldest()[0]
    for number in range(1, 3 * RESERVED):
        place = journal.place()
        assert place == (outbox, number)
        if number % 100 == 0:
            journal.confirmed([jid(number)])
            await journal.flush()
    again = FileJournal(path)
    await again.open()
    found, number = again.place()
    assert found == outbox
    assert number >= 3 * RESERVED
    await again.close()
    await journal.close()


async def test_a_full_disk_gives_no_sequence_and_a_damaged_file_another_outbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal"
    await filled(path)

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    journal = FileJournal(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        await journal.open()
        assert journal.place() == (b"", 0)
    await journal.flush()
    outbox, number = journal.place()
    assert number
    await journal.close()

    whole = bytearray(path.read_bytes())
    whole[len(MAGIC) + 12] ^= 1
    path.write_bytes(bytes(whole))
    mended = FileJournal(path)
    assert (await mended.open()).set_aside is not None
    another, number = mended.place()
    assert another not in (outbox, b"")
    assert number == 1
    await mended.close()
