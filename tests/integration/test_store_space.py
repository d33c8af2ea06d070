"""What is deleted from a store is given back to the disk while the station runs, without anybody asking."""

from __future__ import annotations

import asyncio
import itertools
import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.store import migrate as migrate_module
from gateway.store import space
from gateway.store.migrate import migrate
from gateway.store.reader import Reader
from gateway.store.writer import Statement
from tests.peers.database import Store, look, opened_store
from tests.peers.waiting import until

MEBIBYTE = 1 << 20
ADD = "INSERT INTO spool (kind, body) VALUES (?, ?)"
LET_GO: list[Statement] = [("DELETE FROM spool WHERE sequence <= ?", [(2**62,)])]


async def fill(store: Store, mebibytes: int) -> None:
    """Put so much in."""
    for _ in range(mebibytes):
        await store.writer.commit([(ADD, [("event", bytes([number % 251]) * 1000) for number in range(1024)])])


def size(path: Path) -> int:
    """Of the file and its log."""
    return sum(file.stat().st_size for file in path.parent.iterdir() if file.name.startswith(path.name))


async def test_a_store_is_small_again_after_a_large_spool_was_let_go(tmp_path: Path) -> None:
    async with opened_store(tmp_path) as store:
        await fill(store, 40)
        assert size(store.path) > 40 * MEBIBYTE
        await store.writer.commit(LET_GO)
        await until(lambda: size(store.path) < 3 * MEBIBYTE, what="a small file and a small log")
        await store.writer.commit([(ADD, [("event", b"x")])])
        assert look(store.path, "PRAGMA integrity_check") == [("ok",)]


async def test_what_stays_is_moved_and_is_whole(tmp_path: Path) -> None:
    async with opened_store(tmp_path) as store:
        await fill(store, 30)
        kept = [("DELETE FROM spool WHERE sequence % ? <> 0", [(100,)])]
        before = store.look("SELECT sequence, body FROM spool WHERE sequence % 100 = 0")
        await store.writer.commit(kept)
        await until(lambda: size(store.path) < 6 * MEBIBYTE, what="a small file")
        assert store.look("SELECT sequence, body FROM spool") == before
        assert look(store.path, "PRAGMA integrity_check") == [("ok",)]


async def test_a_store_that_is_never_idle_gets_small_too(tmp_path: Path) -> None:
    async with opened_store(tmp_path) as store:
        await fill(store, 40)
        working = True

        async def work() -> None:
            for number in itertools.count():
                if not working:
                    return
                await store.writer.commit(
                    [("INSERT OR REPLACE INTO station (key, value) VALUES ('x', ?)", [(str(number),)])]
                )

        async with asyncio.TaskGroup() as group:
            group.create_task(work())
            await store.writer.commit(LET_GO)
            try:
                await until(lambda: store.path.stat().st_size < 15 * MEBIBYTE, what="a smaller file")
            finally:
                working = False


async def test_a_store_that_is_read_all_the_time_keeps_a_log_with_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space, "LOG_MOST_BYTES", 6 * MEBIBYTE)
    async with opened_store(tmp_path) as store, Reader(store.path) as other, asyncio.TaskGroup() as group:
        written = 0

        async def read(reader: Reader) -> None:
            while written < 60:
                await reader.rows("SELECT count(*), max(length(body)) FROM spool")

        group.create_task(read(store.reader))
        group.create_task(read(other))
        for _ in range(60):
            await fill(store, 1)
            written += 1
        log_file = store.path.with_name(f"{store.path.name}-wal")
        await until(lambda: log_file.stat().st_size <= space.LOG_BYTES, what="a short log")


# --- stores of older releases ----------------------------------------------------------------------------------------


def older(path: Path) -> str:
    """Turn a store into one that was made before its files could shrink; its epoch."""
    epoch = migrate(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA auto_vacuum=NONE")
        connection.execute("VACUUM")
        connection.executemany(ADD, [("event", b"x" * 1000)] * 1000)
    assert look(path, "PRAGMA auto_vacuum") == [(0,)]
    return epoch


def test_a_new_store_can_shrink(tmp_path: Path) -> None:
    migrate(tmp_path / "store")
    assert look(tmp_path / "store", "PRAGMA auto_vacuum") == [(2,)]


def test_a_store_of_an_older_release_can_shrink_after_its_next_start(tmp_path: Path) -> None:
    path = tmp_path / "store"
    epoch = older(path)
    rows = look(path, "SELECT sequence, kind, body FROM spool")
    assert migrate(path) == epoch
    assert look(path, "PRAGMA auto_vacuum") == [(2,)]
    assert look(path, "SELECT sequence, kind, body FROM spool") == rows
    assert look(path, "PRAGMA integrity_check") == [("ok",)]


def test_a_large_store_of_an_older_release_is_left_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store"
    epoch = older(path)
    monkeypatch.setattr(migrate_module, "MOST_REWRITTEN_BYTES", MEBIBYTE)
    with caplog.at_level(logging.WARNING):
        assert migrate(path) == epoch
    assert "keeps its size" in caplog.text
    assert look(path, "PRAGMA auto_vacuum") == [(0,)]
