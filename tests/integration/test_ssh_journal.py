"""What is remembered in the stead of SSH devices, on a real store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from device_agent.outbox import Place
from device_agent.protocol.messages import Return, decode_upward, encode
from gateway.backup.renewal import Restoration, renew_store
from gateway.downlinks.ssh_journal import JIDS_KEPT, SshJournals
from gateway.store.damage import ROW, Damage
from gateway.store.damage import encode as encode_damage
from gateway.store.migrate import migrate
from gateway.store.reader import Reader
from gateway.store.writer import Writer
from tests.peers.database import look
from tests.peers.waiting import until

KID = b"12345678"


def jid(number: int) -> str:
    return f"{number:020d}"


def answer(number: int) -> bytes:
    return encode(Return(jid=jid(number), fun="test.ping", outcome="ok"))


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SshJournals]:
    migrate(path)
    async with AsyncExitStack() as stack:
        writer = await stack.enter_async_context(Writer(path))
        reader = await stack.enter_async_context(Reader(path))
        yield await stack.enter_async_context(SshJournals(writer=writer, reader=reader))


async def test_a_job_is_on_disk_before_it_starts_and_unknown_after_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "store"
    async with opened(path) as journals:
        await journals.of("cam-1").started(jid(1), "test.ping", KID, 7)
        assert look(path, "SELECT device, jid, place FROM ssh_jobs") == [("cam-1", jid(1), "started")]
    async with opened(path) as journals:
        journal = journals.of("cam-1")
        entry = journal.find(jid(1))
        assert entry is not None
        assert entry.place is Place.DONE
        said = decode_upward(entry.body)
        assert isinstance(said, Return)
        assert (said.outcome, said.why, said.executions) == ("unknown", "the gateway stopped while it ran", 1)
        assert journal.unconfirmed() == [jid(1)]
        assert journal.marks() == {KID: 7}


async def test_a_return_is_kept_until_it_is_confirmed_and_then_only_its_name(tmp_path: Path) -> None:
    path = tmp_path / "store"
    async with opened(path) as journals:
        journal = journals.of("cam-1")
        await journal.started(jid(1), "test.ping", KID, 7)
        await journal.done(jid(1), answer(1), 3)
        assert look(path, "SELECT place, body, sequence FROM ssh_jobs") == [("done", answer(1), 3)]
    async with opened(path) as journals:
        journal = journals.of("cam-1")
        assert journal.unconfirmed() == [jid(1)]
        journal.confirmed([jid(1)])
    async with opened(path) as journals:
        assert look(path, "SELECT place, body FROM ssh_jobs") == [("forgotten", None)]
        entry = journals.of("cam-1").find(jid(1))
        assert entry is not None
        assert entry.place is Place.FORGOTTEN


async def test_no_sequence_is_given_twice_however_often_it_starts(tmp_path: Path) -> None:
    path = tmp_path / "store"
    given: set[tuple[bytes, int]] = set()
    for _ in range(3):
        async with opened(path) as journals:
            journal = journals.of("cam-1")
            await until(lambda: journal.memory.sequence.limit > 1, what="numbers are reserved")  # noqa: B023 - awaited in its turn
            places = {journal.place() for _ in range(700)}
            await journals.flush()
            places |= {journal.place() for _ in range(700)} - {(b"", 0)}
            assert not places & given
            given |= places
    assert len({outbox for outbox, _ in given}) == 1


async def test_what_is_remembered_is_bounded_and_what_is_older_is_refused_by_age(tmp_path: Path) -> None:
    path = tmp_path / "store"
    async with opened(path) as journals:
        journal = journals.of("cam-1")
        for number in range(1, JIDS_KEPT + 10):
            journal.answered(jid(number), answer(number))
            journal.confirmed([jid(number)])
    async with opened(path) as journals:
        ((rows,),) = look(path, "SELECT count(*) FROM ssh_jobs")
        assert rows <= JIDS_KEPT
        journal = journals.of("cam-1")
        for number in (1, JIDS_KEPT + 9):
            entry = journal.find(jid(number))
            assert entry is not None
            assert entry.place is Place.FORGOTTEN
        assert journal.find(jid(JIDS_KEPT + 10)) is None


async def test_after_damage_no_job_as_old_as_the_newest_known_runs(tmp_path: Path) -> None:
    path = tmp_path / "store"
    async with opened(path) as journals:
        await journals.of("cam-1").started(jid(5), "test.ping", KID, 7)
        await journals.of("cam-1").done(jid(5), answer(5))
        damage = Damage(at=1.0, reason="a test", aside="nowhere")
        await journals._writer.commit(
            [("INSERT INTO station VALUES (?, ?)", [(ROW, encode_damage(damage))]), ("DELETE FROM ssh_outboxes", [()])]
        )
    for _ in range(2):
        async with opened(path) as journals:
            for name in ("cam-1", "cam-2"):
                assert journals.of(name).find("19700101000000999999") is not None
                assert journals.of(name).find("19700101000001000001") is None


async def test_after_a_restore_nothing_runs_that_may_have_run_since_the_backup(tmp_path: Path) -> None:
    path = tmp_path / "store"
    async with opened(path) as journals:
        await journals.of("cam-1").started(jid(5), "test.ping", KID, 7)
    renew_store(path, Restoration("lisbon", taken=0, at=1.0, user="root", kid=KID, new_keys=False))
    async with opened(path) as journals:
        for name in ("cam-1", "cam-2"):
            assert journals.of(name).find("19700101000000999999") is not None
            assert journals.of(name).find("19700101000001000001") is None


async def test_a_device_that_goes_takes_its_rows_along(tmp_path: Path) -> None:
    path = tmp_path / "store"
    async with opened(path) as journals:
        await journals.of("cam-1").started(jid(1), "test.ping", KID, 7)
        journals.drop("cam-1")
    assert [look(path, f"SELECT * FROM {name}") for name in ("ssh_jobs", "ssh_marks", "ssh_outboxes")] == [[], [], []]


async def test_the_oldest_that_may_come_is_known_after_a_restart_whichever_was_answered_first(tmp_path: Path) -> None:
    path = tmp_path / "store"
    async with opened(path) as journals:
        journal = journals.of("cam-1")
        await journals.flush()
        await journal.started(jid(1), "test.ping", KID, 7)
        outbox, first = journal.place()
        journal.answered(jid(2), answer(2), first)
        await journal.done(jid(1), answer(1), journal.place()[1])
        assert journal.oldest() == (outbox, first)
    async with opened(path) as journals:
        assert journals.of("cam-1").oldest() == (outbox, first)


async def test_a_device_that_comes_again_keeps_what_it_began_before_its_predecessor_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "store"
    async with opened(path) as journals:
        await journals.of("cam-1").started(jid(1), "test.ping", KID, 7)
        journals.drop("cam-1")
        await journals.of("cam-1").started(jid(2), "test.ping", KID, 8)
        await journals.flush()
        assert look(path, "SELECT jid FROM ssh_jobs") == [(jid(2),)]
        assert journals.of("cam-1").marks() == {KID: 8}
    async with opened(path) as journals:
        assert journals.of("cam-1").unconfirmed() == [jid(2)]
