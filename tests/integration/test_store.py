"""The store: migrations, group commit, full disks and sudden ends, on real SQLite files."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from importlib import resources
from pathlib import Path

import pytest

from device_agent.errors import EXIT_CONFIG, ConfigInvalid, StationFailed
from gateway.store import migrate as migrate_module
from gateway.store.migrate import migrate, steps
from gateway.store.reader import StoreUnreadable
from gateway.store.writer import Statement, StoreFailed, Writer
from tests.peers.database import Store, look, opened_store
from tests.peers.waiting import until

ADD = "INSERT INTO station (key, value) VALUES (?, ?)"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with opened_store(tmp_path) as opened:
        yield opened


def adding(*keys: str) -> list[Statement]:
    """A unit that adds rows."""
    return [(ADD, [(key, "x") for key in keys])]


def keys(store: Store) -> set[str]:
    """What is in the file, beside the epoch."""
    return {key for (key,) in store.look("SELECT key FROM station")} - {"epoch"}


# --- migrate ---------------------------------------------------------------------------------------------------------


def test_an_empty_folder_gets_the_newest_schema(tmp_path: Path) -> None:
    epoch = migrate(tmp_path / "store")
    assert len(epoch) == 16
    assert look(tmp_path / "store", "PRAGMA user_version") == [(steps()[-1][0],)]
    assert look(tmp_path / "store", "PRAGMA journal_mode") == [("wal",)]


def test_migrating_again_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store"
    epoch = migrate(path)
    schema = look(path, "SELECT name, sql FROM sqlite_schema ORDER BY name")
    assert migrate(path) == epoch
    assert look(path, "SELECT name, sql FROM sqlite_schema ORDER BY name") == schema


def test_a_disk_that_fails_at_the_start_is_no_matter_of_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = 266  # SQLITE_IOERR_READ

    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(migrate_module, "_make_shrinkable", fails)
    with pytest.raises(StationFailed) as found:
        migrate(tmp_path / "store")
    assert found.value.error_id == "store.disk_fails"
    assert not isinstance(found.value, ConfigInvalid)


def test_a_store_is_its_owners_alone_also_one_that_was_not(tmp_path: Path) -> None:
    path = tmp_path / "store"
    migrate(path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    migrate(path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE station SET value = value")
    for file in tmp_path.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600, file.name
    connection.close()


def test_every_store_has_an_epoch_of_its_own(tmp_path: Path) -> None:
    assert migrate(tmp_path / "one") != migrate(tmp_path / "two")


def test_the_steps_are_numbered_without_a_gap() -> None:
    files = (resources.files("gateway.store") / "schema").iterdir()
    assert [number for number, _ in steps()] == list(range(1, len([f for f in files if f.name.endswith(".sql")]) + 1))


def test_a_later_step_is_taken_on_a_store_with_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, first = tmp_path / "store", steps()
    epoch = migrate(path)
    later = (len(first) + 1, "CREATE TABLE later (a); INSERT INTO later VALUES (1);")
    monkeypatch.setattr(migrate_module, "steps", lambda: [*first, later])
    assert migrate(path) == epoch
    assert migrate(path) == epoch
    assert look(path, "SELECT a FROM later") == [(1,)]


def test_a_step_that_fails_leaves_the_store_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, first = tmp_path / "store", steps()
    epoch = migrate(path)
    broken = (len(first) + 1, "CREATE TABLE later (a); INSERT INTO nowhere VALUES (1);")
    with monkeypatch.context() as patched:
        patched.setattr(migrate_module, "steps", lambda: [*first, broken])
        with pytest.raises(ConfigInvalid):
            migrate(path)
    assert look(path, "SELECT name FROM sqlite_schema WHERE name = 'later'") == []
    assert migrate(path) == epoch


def test_a_store_of_a_newer_release_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "store"
    migrate(path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=999")
    connection.execute("PRAGMA application_id=999")
    connection.close()
    with pytest.raises(ConfigInvalid, match="newer release") as error:
        migrate(path)
    assert (error.value.where, error.value.found) == (str(path), "schema 999")
    assert error.value.exit_status == EXIT_CONFIG
    assert look(path, "PRAGMA user_version") == [(999,)]


def test_a_release_that_is_put_back_goes_on_with_the_store_of_the_one_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    first = steps()
    later = (first[-1][0] + 1, "CREATE TABLE later (a); ALTER TABLE jobs ADD COLUMN later TEXT;")
    with monkeypatch.context() as patched:
        patched.setattr(migrate_module, "steps", lambda: [*first, later])
        epoch = migrate(path)
    assert migrate(path) == epoch
    # Nothing is taken out of it, so that the newer release goes on where it was.
    assert look(path, "PRAGMA user_version") == [(later[0],)]
    assert look(path, "SELECT count(*) FROM later") == [(0,)]


@pytest.mark.parametrize("content", [b"not a database" * 100, bytes(5000), b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_file_that_is_no_store_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.write_bytes(content)
    with pytest.raises(ConfigInvalid, match="cannot be opened") as error:
        migrate(path)
    assert error.value.where == str(path)
    assert error.value.found


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE jobs (mine)")
    connection.close()
    with pytest.raises(ConfigInvalid):
        migrate(path)
    assert look(path, "SELECT name FROM sqlite_schema") == [("jobs",)]


@pytest.mark.parametrize("where", ["a folder", "nowhere/store"])
def test_a_path_that_cannot_be_a_file_is_refused(where: str, tmp_path: Path) -> None:
    (tmp_path / "a folder").mkdir()
    with pytest.raises(ConfigInvalid) as error:
        migrate(tmp_path / where)
    assert error.value.where == str(tmp_path / where)


# --- writer and reader -----------------------------------------------------------------------------------------------


async def test_units_asked_for_at_the_same_time_are_committed_together(store: Store) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(500):
            group.create_task(store.writer.commit(adding(f"k{number}")))
    assert len(keys(store)) == 500
    assert store.writer.commits <= 3


async def test_a_unit_is_on_disk_when_its_commit_returns(store: Store) -> None:
    await store.writer.commit([*adding("a"), ("UPDATE station SET value = ? WHERE key = ?", [("changed", "a")])])
    assert store.look("SELECT value FROM station WHERE key = 'a'") == [("changed",)]
    assert await store.reader.rows("SELECT value FROM station WHERE key = ?", ("a",)) == [("changed",)]


async def test_units_are_written_in_the_order_in_which_they_were_asked_for(store: Store) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(store.writer.commit(adding("a")))
        for number in range(50):
            group.create_task(
                store.writer.commit([("UPDATE station SET value = ? WHERE key = 'a'", [(f"v{number}",)])])
            )
            group.create_task(store.writer.commit(adding(f"k{number}")))
    assert store.look("SELECT value FROM station WHERE key = 'a'") == [("v49",)]


async def test_a_unit_that_nobody_waits_for_any_more_is_written_all_the_same(store: Store) -> None:
    # Somebody else holds the file, so that the thread is at work for as long as this looks.
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        asking = [asyncio.ensure_future(store.writer.commit(adding(f"k{number}"))) for number in range(400)]  # noqa: TID251 - cut in the middle
        await until(lambda: store.writer._writing, what="the thread at work")
        for task in asking:
            task.cancel()
        other.execute("ROLLBACK")
    await store.writer.commit(adding("after"))
    assert len(keys(store)) == 401


async def test_what_the_thread_was_at_when_the_store_closed_is_told_as_it_is(tmp_path: Path) -> None:
    migrate(tmp_path / "store")
    told: dict[str, bool] = {}

    async def ask(writer: Writer, key: str) -> None:
        try:
            await writer.commit(adding(key))
            told[key] = True
        except StoreFailed:
            told[key] = False

    async with asyncio.TaskGroup() as group:
        writer = Writer(tmp_path / "store")
        writer.drain_seconds = 0.0  # type: ignore[misc]  # it is given no time at all
        async with writer:
            for number in range(3000):
                group.create_task(ask(writer, f"k{number}"))
            await until(lambda: writer._writing, what="the thread at work")
    on_disk = {key for (key,) in look(tmp_path / "store", "SELECT key FROM station")} - {"epoch"}
    assert on_disk == {key for key, written in told.items() if written}
    assert len(told) == 3000
    assert on_disk


class Broken(list[tuple[str, str]]):
    """Rows by a program with a mistake in it."""

    def __iter__(self) -> Iterator[tuple[str, str]]:
        raise RuntimeError("a mistake")


async def test_a_mistake_in_the_program_ends_the_store_and_writes_nothing(tmp_path: Path) -> None:
    migrate(tmp_path / "store")
    told: list[BaseException] = []

    async def ask(writer: Writer) -> None:
        try:
            await writer.commit([*adding("half"), (ADD, Broken([("a", "x")]))])
        except StoreFailed as error:
            told.append(error)

    async def station(others: asyncio.TaskGroup) -> None:
        async with Writer(tmp_path / "store") as writer:
            others.create_task(ask(writer))
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as others:
        with pytest.raises(BaseExceptionGroup):
            await station(others)
    assert len(told) == 1
    assert [key for (key,) in look(tmp_path / "store", "SELECT key FROM station")] == ["epoch"]


async def test_a_unit_without_rows_costs_no_commit(store: Store) -> None:
    await store.writer.commit([])
    await store.writer.commit([(ADD, [])])
    assert store.writer.commits == 0


BAD: dict[str, list[Statement]] = {
    "a key that is there": adding("good-1"),
    "no such table": [("INSERT INTO nowhere VALUES (?)", [(1,)])],
    "no SQL": [("nonsense", [()])],
    "too few values": [(ADD, [("one",)])],
    "no value at all": [(ADD, [("a", None)])],
    "a type no column has": [(ADD, [("a", ["list"])])],
    "a number no column holds": [("UPDATE sites SET confirmed = ?", [(2**64,)])],
    "text no encoding has": [(ADD, [("a", "\ud800")])],
    "half a unit": [*adding("half"), ("INSERT INTO nowhere VALUES (?)", [(1,)])],
}


@pytest.mark.parametrize("kind", BAD)
async def test_one_bad_unit_does_not_take_the_others_with_it(kind: str, store: Store) -> None:
    outcomes: dict[str, str] = {}

    async def ask(name: str, unit: list[Statement]) -> None:
        try:
            await store.writer.commit(unit)
            outcomes[name] = "done"
        except StoreFailed as error:
            outcomes[name] = f"failed in {error.where}" if error.found else "failed without a reason"

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(ask(f"good-{number}", adding(f"good-{number}")))
        group.create_task(ask("bad", BAD[kind]))
        for number in range(3, 6):
            group.create_task(ask(f"good-{number}", adding(f"good-{number}")))
    assert outcomes == {**{f"good-{number}": "done" for number in range(6)}, "bad": f"failed in {store.path}"}
    assert keys(store) == {f"good-{number}" for number in range(6)}
    await store.writer.commit(adding("after"))
    assert store.writer.failures == 1


async def test_a_full_disk_fails_what_does_not_fit_and_nothing_before_or_after(store: Store) -> None:
    await store.writer.commit(adding("before"))
    connection = store.writer._connection
    assert connection is not None
    ((pages,),) = store.look("PRAGMA page_count")
    await connection.execute(f"PRAGMA max_page_count={pages + 4}")
    with pytest.raises(StoreFailed) as error:
        await store.writer.commit([(ADD, [(f"big{number}", "x" * 4000) for number in range(20)])])
    assert "full" in str(error.value.found)
    assert "df -h" in str(error.value.hint)
    assert keys(store) == {"before"}
    await connection.execute("PRAGMA max_page_count=1000000")
    await store.writer.commit(adding("after"))
    assert keys(store) == {"before", "after"}


async def test_a_reader_never_writes(store: Store) -> None:
    with pytest.raises(StoreUnreadable, match="readonly"):
        await store.reader.rows("DELETE FROM station")


async def test_a_long_listing_does_not_hold_up_a_commit(store: Store) -> None:
    await store.writer.commit(adding(*(f"k{number}" for number in range(2000))))
    slow = "SELECT count(*) FROM station a, station b, station c WHERE a.key < b.key AND b.key < c.key"

    async def list_for_ever() -> None:
        with pytest.raises(StoreUnreadable, match="interrupted"):
            await store.reader.rows(slow)

    async with asyncio.TaskGroup() as group:
        listing = group.create_task(list_for_ever())
        async with asyncio.timeout(60):
            await store.writer.commit(adding("meanwhile"))
        assert not listing.done()
        assert store.reader._connection is not None
        await store.reader._connection.interrupt()
    assert "meanwhile" in keys(store)


async def test_what_was_asked_for_before_the_stop_is_written(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group, opened_store(tmp_path) as store:
        for number in range(100):
            group.create_task(store.writer.commit(adding(f"k{number}")))
        await asyncio.sleep(0)
    assert len(look(store.path, "SELECT key FROM station")) == 101


@pytest.mark.parametrize("folder", ["plain", "with space", "50%", "a#b", "what?", "é"])
async def test_any_name_of_a_folder_will_do(folder: str, tmp_path: Path) -> None:
    async with opened_store(tmp_path / folder) as store:
        await store.writer.commit(adding("a"))
        assert await store.reader.rows("SELECT key FROM station WHERE key = 'a'") == [("a",)]
    assert [entry.name for entry in tmp_path.iterdir()] == [folder]


# --- what must be gone ------------------------------------------------------------------------------------------------


async def test_what_is_wiped_is_in_no_file_while_the_store_is_open(store: Store, tmp_path: Path) -> None:
    secret = os.urandom(32)
    await store.writer.commit([("CREATE TABLE secrets (name TEXT PRIMARY KEY, secret BLOB) WITHOUT ROWID", [()])])
    await store.writer.commit([("INSERT INTO secrets VALUES ('one', ?)", [(secret,)])])
    assert any(secret in file.read_bytes() for file in tmp_path.iterdir())
    # Somebody who reads holds on to the log for a while.
    reading = sqlite3.connect(
        next(tmp_path.glob("*.sqlite*")) if list(tmp_path.glob("*.sqlite")) else tmp_path / "store"
    )
    reading.execute("BEGIN")
    reading.execute("SELECT count(*) FROM secrets").fetchall()
    wiping: list[Statement] = [
        ("UPDATE secrets SET secret = zeroblob(32) WHERE name = ?", [("one",)]),
        ("DELETE FROM secrets WHERE name = ?", [("one",)]),
    ]
    await store.writer.commit(wiping, wipes=True)
    reading.close()
    await until(
        lambda: not any(secret in file.read_bytes() for file in tmp_path.iterdir()), what="the secret to be gone"
    )
    await store.writer.commit(adding("after"))
    assert "after" in keys(store)
