"""File operations and commands on a network disk that has stopped answering hold up nothing else."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from device_agent.clock import Clock
from device_agent.disk_threads import DiskThreads
from device_agent.errors import Refused
from device_agent.folder_limits import limited
from device_agent.journal_file import FileJournal
from device_agent.local_host import LocalHost
from gateway.files import folder_root
from gateway.files.served import Patterns
from tests.peers.dead_disk import dead_disk
from tests.peers.waiting import until

MANY = (os.cpu_count() or 1) + 5
"""More than the event loop has threads (``concurrent.futures.ThreadPoolExecutor``)."""

QUICKLY = 0.2
LONG = 60.0


@pytest.fixture
def dead(tmp_path: Path) -> Iterator[Path]:
    with dead_disk(tmp_path / "dead") as folder:
        yield folder


@pytest.fixture
def host() -> LocalHost:
    return LocalHost({}, threads=DiskThreads())


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_the_journal_is_written_while_jobs_hang(tmp_path: Path, dead: Path, host: LocalHost) -> None:
    journal = FileJournal(tmp_path / "journal")
    await journal.open()
    async with asyncio.timeout(LONG):
        for _ in range(MANY):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(QUICKLY):
                    await host.read(f"{dead}/x")
        await journal.started("20260101000000000000", "test.ping", b"", 0)
        await journal.close()
        assert await host.list(str(tmp_path))


async def test_a_write_to_another_disk_ends_while_one_hangs(tmp_path: Path, dead: Path, host: LocalHost) -> None:
    async with asyncio.timeout(LONG):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(QUICKLY):
                await host.write(f"{dead}/x", b"lost")
        await host.write(str(tmp_path / "x"), b"kept")
    assert (tmp_path / "x").read_bytes() == b"kept"


@pytest.mark.parametrize("where", ["folder", "program"])
async def test_a_command_that_cannot_start_blocks_neither_the_loop_nor_other_threads(
    dead: Path, host: LocalHost, where: str
) -> None:
    words, cwd = (["true"], f"{dead}/x") if where == "folder" else ([f"{dead}/x"], None)
    async with asyncio.timeout(LONG):
        completed = await host.run(words, cwd=cwd, timeout=QUICKLY)
        assert completed.timed_out
        assert (await host.run(["echo", "here"])).stdout == b"here\n"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(QUICKLY):
                await host.run(words, cwd=cwd)
        await until(lambda: not host.threads._running, what="the processes that had not started to be killed")


async def test_a_granted_folder_that_hangs_leaves_no_descriptor_behind(dead: Path, host: LocalHost) -> None:
    before = descriptors()
    granted = limited(host, [str(dead)])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(QUICKLY):
            await granted.read(f"{dead}/x")
    assert descriptors() <= before + 1, "the walk that hangs has the folder above open"


async def test_a_file_root_that_hangs_takes_no_thread_of_the_station(
    dead: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_root, "THREADS", DiskThreads(MANY, wait_seconds=QUICKLY))
    root = folder_root.FolderRoot(str(dead), "base", Patterns(), Clock())
    async with asyncio.timeout(LONG), asyncio.TaskGroup() as group:
        asking = [group.create_task(root.find("top.sls")) for _ in range(MANY)]
        await asyncio.wait(asking, timeout=QUICKLY)
        assert await asyncio.to_thread(int) == 0
        with pytest.raises(Refused, match="disk_failed: the station's disk: busy: ") as refused:
            await root.find("other.sls")
        assert refused.value.reason == "disk_failed"
        for each in asking:
            each.cancel()


ENDS = """
import asyncio, sys
from device_agent.local_host import LocalHost

async def hang():
    try:
        async with asyncio.timeout(0.2):
            await LocalHost({}).read(sys.argv[1])
    except TimeoutError:
        print("gave up", flush=True)

asyncio.run(hang())
"""


def test_a_process_ends_without_an_operation_that_hangs(dead: Path) -> None:
    words = [sys.executable, "-c", ENDS, f"{dead}/x"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        try:
            said, _ = process.communicate(timeout=LONG)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert (said, process.returncode) == (b"gave up\n", 0)
