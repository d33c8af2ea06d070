"""A store that is damaged in any way: the station starts all the same, has what reads, and says what is missing."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from device_agent.clock import Clock
from gateway.spool.ledger import recount
from gateway.store import opening
from gateway.store.damage import ROW, Damage, decode, is_damage, mark_path
from gateway.store.opening import belongings, open_store, set_aside
from gateway.store.reader import Reader, StoreUnreadable
from gateway.store.writer import Statement, StoreFailed, Writer
from tests.peers.clock import HandClock
from tests.peers.database import look, opened_rooms
from tests.peers.station import StationProcess, ask
from tests.peers.waiting import until

PAGE = 4096
ROWS = 5000
Hurt = Callable[[Path], None]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with rows in tables of both kinds, as a station left it that was stopped."""
    path = tmp_path / "station.sqlite"
    open_store(path, Clock())
    with closing(sqlite3.connect(path)) as file, file:
        file.executemany("INSERT INTO spool_events (body) VALUES (?)", ((b"x" * 80,) for _ in range(ROWS)))
        # As many were delivered, or gave way, before.
        file.execute(
            "UPDATE ledger SET accepted = ?, delivered = 7, pending_bytes = ? WHERE class = 'events'",
            (ROWS + 10, 80 * ROWS),
        )
        file.execute("INSERT INTO drops VALUES ('events', 'budget', 3)")
        file.executemany(
            "INSERT INTO manifests (jid, link, page, site, ids, final) VALUES (?, '', 0, 'lisbon', ?, 1)",
            ((f"2026{n:016d}", b"z" * 80) for n in range(ROWS)),
        )
        file.executemany(
            "INSERT INTO outcomes (jid, site, device, link, fun, outcome, retcode, why, ended, duration, executions)"
            " VALUES (?, 'lisbon', 'cam', '', 'test.ping', 'ok', 0, '', 1, 1, 1)",
            ((f"2026{n:016d}",) for n in range(ROWS)),
        )
    return path


def overwrite(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def page_of(path: Path, table: str, needle: bytes) -> int:
    """The number, from 0, of a page in the middle of those that hold this."""
    body = path.read_bytes()
    found = [at // PAGE for at in range(0, len(body), PAGE) if needle in body[at : at + PAGE]]
    return found[len(found) // 2]


def found(path: Path) -> Damage:
    """What the salvaged store says of it."""
    assert look(path, "PRAGMA integrity_check") == [("ok",)]
    damage = decode(look(path, "SELECT value FROM station WHERE key = ?", ROW)[0][0])
    assert damage is not None
    assert Path(damage.aside).exists()
    for table in ("spool_events", "manifests", "outcomes"):
        assert damage.tables[table].rows == look(path, f"SELECT count(*) FROM {table}")[0][0]
    return damage


def epoch(path: Path) -> str:
    return str(look(path, "SELECT value FROM station WHERE key = 'epoch'")[0][0])


@pytest.mark.parametrize("garbage", [b"\xff" * 100, bytes(PAGE), b"\0" * 16])
def test_without_its_header_everything_is_found(garbage: bytes, store: Path) -> None:
    before = epoch(store)
    overwrite(store, 0, garbage)
    assert open_store(store, Clock()) == before
    damage = found(store)
    assert damage.incomplete == []
    assert {damage.tables[table].rows for table in ("spool_events", "manifests", "outcomes")} == {ROWS}


def test_a_page_in_the_middle_costs_its_rows_alone(store: Path) -> None:
    before = epoch(store)
    overwrite(store, page_of(store, "spool_events", b"x" * 80) * PAGE, random.Random(4).randbytes(PAGE))
    assert open_store(store, Clock()) == before
    damage = found(store)
    assert damage.incomplete == ["spool_events"]
    assert ROWS - 60 < damage.tables["spool_events"].rows < ROWS
    assert damage.tables["outcomes"].rows == damage.tables["manifests"].rows == ROWS
    # No number is given out again.
    with closing(sqlite3.connect(store)) as file, file:
        file.execute("INSERT INTO spool_events (body) VALUES (x'')")
        assert file.execute("SELECT max(sequence) FROM spool_events").fetchone()[0] > ROWS


async def test_what_is_missing_on_the_way_up_is_a_named_drop_and_the_ledger_adds_up(store: Path) -> None:
    for _ in range(3):
        overwrite(store, page_of(store, "spool_events", b"x" * 80) * PAGE, random.Random(4).randbytes(PAGE))
    open_store(store, Clock())
    missing = found(store).missing["events"]
    assert missing == ROWS - found(store).tables["spool_events"].rows > 0
    assert dict(look(store, "SELECT reason, count FROM drops")) == {"budget": 3, "damage": missing}
    assert all(each.equal for each in await recount(store))


def test_rows_that_the_ledger_does_not_know_are_counted_as_accepted(store: Path) -> None:
    with closing(sqlite3.connect(store)) as file, file:
        file.execute("DELETE FROM ledger")
        file.execute("DELETE FROM drops")
    mark_path(store).write_text("a test says so")
    open_store(store, Clock())
    assert look(store, "SELECT accepted, delivered, pending_bytes FROM ledger WHERE class = 'events'") == [
        (ROWS, 0, ROWS * 80)
    ]


def test_a_page_of_a_table_without_numbers_costs_its_rows_alone(store: Path) -> None:
    overwrite(store, page_of(store, "manifests", b"z" * 80) * PAGE, bytes(PAGE))
    open_store(store, Clock())
    damage = found(store)
    assert damage.incomplete == ["manifests"]
    assert ROWS - 60 < damage.tables["manifests"].rows < ROWS


def test_half_of_the_file_is_gone(store: Path) -> None:
    os.truncate(store, store.stat().st_size // 2 + 100)
    open_store(store, Clock())
    damage = found(store)
    assert damage.tables["spool_events"].rows > 0
    assert damage.incomplete


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_overwritten_the_store_opens_and_is_sound(seed: int, store: Path) -> None:
    chosen = random.Random(seed)
    size = store.stat().st_size
    for _ in range(chosen.choice([1, 3, 20])):
        overwrite(store, chosen.randrange(size), chosen.randbytes(chosen.choice([1, 512, PAGE])))
    reason = opening.look(store)
    open_store(store, Clock())
    assert look(store, "PRAGMA integrity_check") == [("ok",)] or not reason


@pytest.mark.parametrize("header", [b"", bytes(100)], ids=["by itself", "beside a lost header"])
def test_commits_that_cannot_be_read_in_the_log_are_damage(header: bytes, store: Path) -> None:
    before = epoch(store)
    file = sqlite3.connect(store, isolation_level=None)
    file.execute("PRAGMA wal_autocheckpoint=0")
    for number in range(10):
        file.execute("INSERT INTO station VALUES (?, 'x')", (f"row-{number}",))
    log = store.with_name("station.sqlite-wal")
    kept, database = log.read_bytes(), store.read_bytes()
    file.close()
    store.write_bytes(database)
    log.write_bytes(kept)
    frames = (len(kept) - 32) // (24 + PAGE)
    assert frames >= 10
    overwrite(log, 32 + 3 * (24 + PAGE) + 100, b"garbage")
    overwrite(store, 0, header)
    assert open_store(store, Clock()) != before
    damage = found(store)
    assert damage.log_lost
    assert damage.epoch_renewed
    assert 1 <= look(store, "SELECT count(*) FROM station WHERE key LIKE 'row-%'")[0][0] < 10


def test_a_log_that_ends_within_a_commit_is_none(store: Path) -> None:
    before = epoch(store)
    file = sqlite3.connect(store, isolation_level=None)
    file.execute("PRAGMA wal_autocheckpoint=0")
    file.execute("INSERT INTO station VALUES ('kept', 'x')")
    log = store.with_name("station.sqlite-wal")
    size = log.stat().st_size
    file.execute("INSERT INTO station VALUES ('torn', 'x')")
    kept, database = log.read_bytes(), store.read_bytes()
    file.close()
    store.write_bytes(database)
    log.write_bytes(kept[: size + 300] + bytes(len(kept) - size - 300))
    assert open_store(store, Clock()) == before
    assert not set_aside(store)
    assert look(store, "SELECT key FROM station WHERE value = 'x'") == [("kept",)]


def test_a_salvage_that_was_cut_short_is_done_again(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overwrite(store, 0, bytes(100))

    class Cut(Exception):
        pass

    for step in ("_move", "_salvage", "synced"):
        with monkeypatch.context() as patched:

            def cut(*_: object) -> None:
                raise Cut

            patched.setattr(opening, step, cut)
            with pytest.raises(Cut):
                open_store(store, Clock())
    open_store(store, Clock())
    assert found(store).tables["spool_events"].rows == ROWS
    assert len(set_aside(store)) == 1
    assert not list(store.parent.glob("*.salvage*"))
    open_store(store, Clock())
    assert len(set_aside(store)) == 1


async def test_a_running_writer_that_meets_damage_leaves_a_mark_and_ends(store: Path) -> None:
    overwrite(store, page_of(store, "manifests", b"z" * 80) * PAGE, bytes(PAGE))

    async def write() -> None:
        async with Writer(store) as writer:
            with pytest.raises(StoreFailed):
                await writer.commit([("UPDATE manifests SET final = 2 WHERE page >= ?", [(0,)])])
            with pytest.raises(StoreFailed):
                await writer.commit([("INSERT INTO station VALUES (?, 'x')", [("a",)])])
            await asyncio.Event().wait()

    with pytest.raises(BaseExceptionGroup) as error:
        await write()
    assert [type(leaf).__name__ for leaf in error.value.exceptions] == ["StoreDamaged"]
    assert mark_path(store).exists()
    open_store(store, Clock())
    assert found(store).incomplete == ["manifests"]
    assert not mark_path(store).exists()


async def test_what_is_on_disk_beside_a_unit_that_meets_damage_is_told_so(store: Path) -> None:
    overwrite(store, page_of(store, "manifests", b"z" * 80) * PAGE, bytes(PAGE))
    told: dict[str, bool] = {}

    async def commit(writer: Writer, name: str, statement: Statement) -> None:
        try:
            await writer.commit([statement])
        except StoreFailed:
            told[name] = False
        else:
            told[name] = True

    async def write() -> None:
        async with Writer(store) as writer, asyncio.TaskGroup() as group:
            group.create_task(commit(writer, "sound", ("INSERT INTO station VALUES (?, 'x')", [("a",)])))
            group.create_task(commit(writer, "bad", ("UPDATE manifests SET final = 2 WHERE page >= ?", [(0,)])))
            await asyncio.Event().wait()

    with pytest.raises(BaseExceptionGroup):
        await write()
    assert look(store, "SELECT value FROM station WHERE key = 'a'") == [("x",)]
    assert told == {"sound": True, "bad": False}


async def test_a_running_reader_that_meets_damage_leaves_a_mark_and_ends(store: Path) -> None:
    overwrite(store, page_of(store, "manifests", b"z" * 80) * PAGE, bytes(PAGE))

    async def read() -> None:
        async with Reader(store) as reader:
            with pytest.raises(StoreUnreadable):
                await reader.rows("SELECT sum(final) FROM manifests")
            await asyncio.Event().wait()

    with pytest.raises(BaseExceptionGroup) as error:
        await read()
    assert [type(leaf).__name__ for leaf in error.value.exceptions] == ["StoreDamaged"]
    assert mark_path(store).exists()


async def test_it_is_told_upward_once_and_forgotten_after_two_weeks(tmp_path: Path) -> None:
    folder, clock = tmp_path / "state", HandClock()
    async with opened_rooms(folder, clock=clock, masters=True):
        pass
    path = folder / "station.sqlite"
    mark_path(path).write_text("a test says so")
    for _ in range(2):
        async with opened_rooms(folder, clock=clock, masters=True, working=True) as rooms:
            assert rooms.facts.damage() is not None
    told = [tag for (tag,) in look(path, "SELECT tag FROM events") if tag.endswith("/damaged")]
    assert told == ["outstation/station/lisbon/damaged"]
    clock.move(15 * 86400)
    (aside,) = set_aside(path)
    async with opened_rooms(folder, clock=clock, masters=True, working=True) as rooms:
        await until(lambda: rooms.facts.damage() is None)
    assert not belongings(aside)


async def test_a_gateway_that_runs_on_a_damaged_store_ends_starts_again_and_says_so(tmp_path: Path) -> None:
    station = StationProcess(tmp_path, "master", {"sites": {"listen": "tcp://127.0.0.1:*"}})
    await station.start()
    await station.answers()
    path = tmp_path / "state" / "station.sqlite"
    station.signal(signal.SIGKILL)
    await station.ended()
    with closing(sqlite3.connect(path)) as file, file:
        file.executemany(
            "INSERT INTO events (tag, data, stamp, site) VALUES ('t', ?, 1, 'lisbon')",
            ((b"\x80" + b"e" * 500,) for _ in range(2000)),
        )
    overwrite(path, 0, random.Random(1).randbytes(200))
    await station.start()
    await station.answers()
    findings = (await ask(station.socket, "GET", "/check")).json()["findings"]
    (finding,) = [each for each in findings if each["check"] == "store"]
    assert finding["severity"] == "warning"
    assert "rows were salvaged" in finding["finding"]
    assert "station.sqlite.damaged-" in finding["meaning"]
    assert await station.stop() == 0


def test_an_error_that_is_no_damage_is_none(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "file")) as file, pytest.raises(sqlite3.Error) as error:
        file.execute("SELECT * FROM nowhere")
    assert not is_damage(error.value)
