"""Threads for file operations: a limit, a refusal by name, and nothing that stays behind a caller that left."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Iterator

import pytest

from device_agent.disk_threads import HUNG_IN_FOLDER_MAX, DiskBusy, DiskThreads
from tests.peers.waiting import until

AT_ONCE = 6


class Disk:
    """A disk whose operations return when the test says so."""

    def __init__(self) -> None:
        self.begun = 0
        self.answers = threading.Event()

    def read(self) -> str:
        self.begun += 1
        assert self.answers.wait(60)
        return "content"


def block_until_returned(threads: DiskThreads) -> None:
    """Keep the loop of the test from taking a step until nothing runs."""
    while threads._running:
        pass


@pytest.fixture
def disk() -> Iterator[Disk]:
    made = Disk()
    yield made
    made.answers.set()


async def give_up(threads: DiskThreads, disk: Disk, path: str) -> None:
    """Begin an operation, and cancel its caller when it hangs."""
    before = disk.begun
    async with asyncio.TaskGroup() as group:
        task = group.create_task(threads.call(path, disk.read))
        await until(lambda: disk.begun > before, what="the operation to begin")
        task.cancel()


async def test_an_operation_returns_or_raises_what_it_does() -> None:
    threads = DiskThreads()
    assert await threads.call("/a/b", int, "7", base=8) == 7
    with pytest.raises(ValueError, match="invalid literal"):
        await threads.call("/a/b", int, "x")


async def test_when_all_threads_hang_the_next_operation_is_refused_by_name(disk: Disk) -> None:
    threads = DiskThreads(AT_ONCE, wait_seconds=0.05)
    async with asyncio.TaskGroup() as group:
        hung = [group.create_task(threads.call(f"/mnt/{place}/x", disk.read)) for place in range(AT_ONCE)]
        await until(lambda: disk.begun == AT_ONCE, what="all of them to begin")
        with pytest.raises(DiskBusy, match="busy: 6 file operations run, and none returns") as refused:
            await threads.call("/etc/hostname", int)
        assert (refused.value.errno, refused.value.filename) == (errno.EBUSY, "/etc/hostname")
        disk.answers.set()
    assert {task.result() for task in hung} == {"content"}
    assert await threads.call("/etc/hostname", int) == 0


async def test_an_operation_waits_for_a_thread_that_becomes_free(disk: Disk) -> None:
    threads = DiskThreads(1, wait_seconds=60)
    async with asyncio.TaskGroup() as group:
        group.create_task(threads.call("/a/x", disk.read))
        await until(lambda: disk.begun == 1, what="the first to begin")
        second = group.create_task(threads.call("/a/y", int, "2"))
        await asyncio.sleep(0)
        assert not second.done()
        disk.answers.set()
    assert second.result() == 2


async def test_a_cancelled_caller_gives_its_free_thread_to_the_next_one(disk: Disk) -> None:
    threads = DiskThreads(1, wait_seconds=60)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(threads.call("/a/x", disk.read))
        await until(lambda: disk.begun == 1, what="the first to begin")
        cancelled = group.create_task(threads.call("/a/y", int, "2"))
        await until(lambda: len(threads._waiting) == 1, what="the second to wait")
        last = group.create_task(threads.call("/a/z", int, "3"))
        await until(lambda: len(threads._waiting) == 2, what="the third to wait")
        disk.answers.set()
        # The second gets the thread, and is cancelled before it takes a step.
        while len(threads._waiting) == 2:
            pass
        cancelled.cancel()
    assert cancelled.cancelled()
    assert last.result() == 3


async def test_a_folder_in_which_operations_hang_gets_no_more_threads_and_others_do(disk: Disk) -> None:
    threads = DiskThreads(AT_ONCE, wait_seconds=0.0)
    assert threads.words() == ""
    for _ in range(HUNG_IN_FOLDER_MAX):
        await give_up(threads, disk, "/mnt/nas/x")
    assert threads.words().startswith("4 file operations have not returned since ")
    assert threads.words().endswith(" in /mnt/nas")
    with pytest.raises(DiskBusy, match=r"^\[Errno 16\] busy: 4 .* not returned since .* in /mnt/nas; "):
        await threads.call("/mnt/nas/y", int)
    assert disk.begun == HUNG_IN_FOLDER_MAX
    assert await threads.call("/etc/hostname", int) == 0
    disk.answers.set()
    await until(lambda: not threads.words(), what="the disk to answer")
    assert await threads.call("/mnt/nas/y", int) == 0


async def test_callers_that_leave_operations_which_soon_return_are_no_sign_of_a_dead_disk(disk: Disk) -> None:
    threads = DiskThreads(AT_ONCE, wait_seconds=60)
    for _ in range(HUNG_IN_FOLDER_MAX):
        await give_up(threads, disk, "/a/x")
    assert threads.words() == ""
    assert await threads.call("/a/y", int) == 0


@pytest.mark.parametrize("late", [True, False])
async def test_a_value_whose_caller_left_is_discarded(disk: Disk, *, late: bool) -> None:
    threads = DiskThreads()
    discarded: list[str] = []
    async with asyncio.TaskGroup() as group:
        task = group.create_task(threads.call_and_own("/a/x", disk.read, discarded.append, disk.answers.set))
        await until(lambda: disk.begun == 1, what="the operation to begin")
        if not late:
            # It has returned, and its caller is cancelled before it takes a step.
            disk.answers.set()
            block_until_returned(threads)
        task.cancel()
    assert task.cancelled()
    assert discarded == ["content"]


async def test_a_value_is_discarded_where_no_thread_can_be_started(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_operation: object) -> None:
        raise OSError(errno.EAGAIN, "no thread")

    threads = DiskThreads()
    discarded: list[str] = []
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        task = group.create_task(threads.call_and_own("/a/x", disk.read, discarded.append))
        await until(lambda: disk.begun == 1, what="the operation to begin")
        monkeypatch.setattr(threads, "_begin", refuse)
        disk.answers.set()
        block_until_returned(threads)
        task.cancel()
    assert task.cancelled()
    assert discarded == ["content"]


async def test_a_machine_without_a_thread_left_is_an_error_of_the_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = DiskThreads()
    start: Callable[[threading.Thread], None] = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(BlockingIOError):
        await threads.call("/a/x", int)
    monkeypatch.setattr(threading.Thread, "start", start)
    assert await threads.call("/a/x", int) == 0
