"""The store at a sudden end: what was acknowledged is there after a kill, and a full disk is survived."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from gateway.store.migrate import migrate
from gateway.store.reader import Reader
from gateway.store.writer import Statement, StoreFailed, Writer
from tests.peers.database import Store, look, opened_store
from tests.peers.waiting import until

ROOT = Path(__file__).resolve().parents[2]
ADD = "INSERT INTO station (key, value) VALUES (?, ?)"


def adding(*keys: str) -> list[Statement]:
    """A unit that adds rows."""
    return [(ADD, [(key, "x") for key in keys])]


def keys(store: Store) -> set[str]:
    """What is in the file, beside the epoch."""
    return {key for (key,) in store.look("SELECT key FROM station")} - {"epoch"}


COMMITS_FOR_EVER = """
import asyncio, itertools, sys
from pathlib import Path
from gateway.store.migrate import migrate
from gateway.store.writer import Writer

async def commit(writer, numbers):
    for number in numbers:
        await writer.commit([
            ("INSERT INTO station VALUES (?, ?)", [(f"a{number}", "x" * 500)]),
            ("INSERT INTO spool (kind, body) VALUES ('k', ?)", [(b"%d" % number,)]),
        ])
        sys.stdout.write(f"{number}\\n")
        sys.stdout.flush()

async def run(path):
    migrate(path)
    numbers = itertools.count()
    async with Writer(path) as writer, asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(commit(writer, numbers))

asyncio.run(run(Path(sys.argv[1])))
"""


@pytest.mark.parametrize("commits", [1, 200, 2000])
async def test_every_unit_that_was_acknowledged_survives_a_kill(commits: int, tmp_path: Path) -> None:
    path = tmp_path / "station.sqlite"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", COMMITS_FOR_EVER, str(path), stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    acknowledged: list[str] = []
    try:
        async with asyncio.timeout(60):
            while len(acknowledged) < commits:
                acknowledged.append((await process.stdout.readline()).decode().strip())
    finally:
        process.send_signal(signal.SIGKILL)
    async with asyncio.timeout(60):
        acknowledged += (await process.stdout.read()).decode().split("\n")[:-1]
        assert await process.wait() == -signal.SIGKILL
    epoch = migrate(path)
    assert epoch
    kept = {key[1:] for (key,) in look(path, "SELECT key FROM station") if key != "epoch"}
    spooled = {body.decode() for (body,) in look(path, "SELECT body FROM spool")}
    assert set(acknowledged) <= kept
    # Each unit is there as a whole, or not at all.
    assert kept == spooled
    assert look(path, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a disk to fill")
async def test_a_disk_that_is_really_full_is_survived(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = await asyncio.create_subprocess_exec(
        "mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk), stderr=asyncio.subprocess.DEVNULL
    )
    if await mount.wait():
        pytest.skip("mounting is not allowed here")
    try:
        async with opened_store(disk) as store:
            await store.writer.commit(adding("before"))
            with pytest.raises(StoreFailed):
                await store.writer.commit([(ADD, [(f"k{number}", "x" * 4000) for number in range(2000)])])
            assert keys(store) == {"before"}
            await until(lambda: keys(store) == {"before"}, what="what was there")
            await store.writer.commit(adding("after"))
            assert keys(store) == {"before", "after"}
    finally:
        umount = await asyncio.create_subprocess_exec("umount", str(disk))
        assert await umount.wait() == 0


async def test_two_writers_of_one_file_wait_for_each_other(tmp_path: Path) -> None:
    path = tmp_path / "station.sqlite"
    migrate(path)
    async with Writer(path) as first, Writer(path) as second, Reader(path) as reader:
        async with asyncio.TaskGroup() as group:
            for number in range(50):
                group.create_task(first.commit(adding(f"a{number}")))
                group.create_task(second.commit(adding(f"b{number}")))
        assert len(await reader.rows("SELECT key FROM station")) == 101
