"""Threads for file operations that may never return, apart from those of the event loop.

An operation on a dead network disk holds its thread in the kernel until the disk answers or is unmounted, long after
the job that asked for it has timed out. The default executor has few threads, and the journal of jobs needs them.
"""

from __future__ import annotations

import asyncio
import errno
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import PurePath
from typing import Any, Final, ParamSpec, TypeVar
from weakref import WeakSet

from device_agent.clock import Clock, iso

P = ParamSpec("P")
T = TypeVar("T")

THREADS_MAX: Final = 32
"""Operations at once, with those that hang."""

HUNG_IN_FOLDER_MAX: Final = 4
"""Operations that hang in one folder; then it gets no more threads until one returns."""

WAIT_SECONDS: Final = 5.0
"""How long an operation waits for a thread while none becomes free. One that has not returned so long after its caller
has given up counts as one that hangs."""

END_SECONDS: Final = 1.0
"""How long a cancelled caller waits until a value that it does not want any more is discarded."""


_scopes: ContextVar[tuple[WeakSet[asyncio.Future[None]], ...]] = ContextVar("_scopes", default=())
"""The operations whose callers were cancelled, for each ``released_after_operations`` that they were begun in."""


class DiskBusy(OSError):
    """Too many earlier file operations have not returned."""


@contextmanager
def released_after_operations(release: Callable[[], None]) -> Iterator[None]:
    """Call ``release`` at the end, or later: when each operation that was begun within has returned.

    The caller of an operation that is cancelled leaves at once, and the thread may write the file after that.
    """
    abandoned: WeakSet[asyncio.Future[None]] = WeakSet()
    token = _scopes.set((*_scopes.get(), abandoned))
    try:
        yield
    finally:
        _scopes.reset(token)
        _release_after({each for each in abandoned if not each.done()}, release)


def _release_after(unfinished: set[asyncio.Future[None]], release: Callable[[], None]) -> None:
    def returned(operation: asyncio.Future[None]) -> None:
        unfinished.remove(operation)
        if not unfinished:
            release()

    for each in tuple(unfinished):
        each.add_done_callback(returned)
    if not unfinished:
        release()


class _Operation:
    __slots__ = ("abandoned", "call", "done", "error", "folder", "loop", "returned", "since", "unwanted", "value")

    def __init__(
        self, path: str, call: Callable[[], Any], unwanted: Callable[[Any], None] | None, since: float
    ) -> None:
        self.folder = _folder_of(path)
        self.call = call
        self.unwanted = unwanted
        self.since = since
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self.loop.create_future()
        self.value: Any = None
        self.error: BaseException | None = None
        self.returned = False
        self.abandoned: float | None = None
        """When its caller gave up, in monotonic seconds."""


class DiskThreads:
    """Runs file operations in daemon threads, so that a process that ends does not wait for one that hangs."""

    def __init__(self, most: int = THREADS_MAX, wait_seconds: float = WAIT_SECONDS, clock: Clock | None = None) -> None:
        self._most = most
        self._wait_seconds = wait_seconds
        self._clock = clock or Clock()
        self._lock = threading.Lock()
        self._running: dict[_Operation, None] = {}
        self._idle: list[queue.SimpleQueue[_Operation]] = []
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        self._freed = time.monotonic()

    async def call(self, path: str, what: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that touches this path, and return or raise what it does. Raises ``DiskBusy``."""
        return await self.call_and_own(path, lambda: what(*args, **kwargs), None)

    async def call_and_own(
        self,
        path: str,
        what: Callable[[], T],
        unwanted: Callable[[T], None] | None,
        interrupt: Callable[[], None] | None = None,
    ) -> T:
        """As ``call``. When the caller is cancelled, ``interrupt`` is called to make the function return, if it still
        runs, and ``unwanted`` gets its value.
        """
        await self._room(path)
        operation = _Operation(path, what, unwanted, self._clock.wall())
        self._begin(operation)
        try:
            await asyncio.wait({operation.done})
        except asyncio.CancelledError:
            ending = self._abandon(operation, interrupt)
            for abandoned in _scopes.get():
                abandoned.add(ending)
            if unwanted is not None:
                await asyncio.wait({ending}, timeout=END_SECONDS)
            raise
        if operation.error is not None:
            raise operation.error
        value: T = operation.value
        return value

    def words(self) -> str:
        """Which operations hang, in one sentence; empty while none does."""
        hung = self._hung()
        if not hung:
            return ""
        folders = ", ".join(sorted({each.folder for each in hung})[:HUNG_IN_FOLDER_MAX])
        since = iso(min(each.since for each in hung))[11:19]
        count = f"{len(hung)} file {'operation has' if len(hung) == 1 else 'operations have'}"
        return f"{count} not returned since {since} in {folders}"

    async def _room(self, path: str) -> None:
        """Wait until there is a thread."""
        folder = _folder_of(path)
        if sum(each.folder == folder for each in self._hung()) >= HUNG_IN_FOLDER_MAX:
            raise self._busy(path)
        while True:
            loop = asyncio.get_running_loop()
            with self._lock:
                if len(self._running) < self._most:
                    return
                entry = loop, loop.create_future()
                self._waiting.append(entry)
            try:
                await asyncio.wait({entry[1]}, timeout=self._wait_seconds)
            except asyncio.CancelledError:
                with self._lock:
                    woken = entry not in self._waiting
                if woken:
                    self._wake_next()
                raise
            finally:
                with self._lock, suppress(ValueError):
                    self._waiting.remove(entry)
            if not entry[1].done() and time.monotonic() - self._freed >= self._wait_seconds:
                raise self._busy(path)

    def _wake_next(self) -> None:
        """Tell the caller that has waited longest that a thread is free."""
        with self._lock:
            waiting = self._waiting.popleft() if self._waiting else None
        if waiting is not None:
            with suppress(RuntimeError):
                waiting[0].call_soon_threadsafe(_settle, waiting[1])

    def _hung(self) -> list[_Operation]:
        before = time.monotonic() - self._wait_seconds
        with self._lock:
            return [each for each in self._running if each.abandoned is not None and each.abandoned <= before]

    def _busy(self, path: str) -> DiskBusy:
        why = f"busy: {self.words() or f'{self._most} file operations run, and none returns'}; find the disk that does "
        return DiskBusy(errno.EBUSY, f"{why}not answer with findmnt, and detach it with umount -l", path)

    def _begin(self, operation: _Operation) -> None:
        with self._lock:
            self._running[operation] = None
            worker = self._idle.pop() if self._idle else None
        if worker is not None:
            worker.put(operation)
            return
        worker = queue.SimpleQueue()
        worker.put(operation)
        try:
            # It does not end with its work: what PR_SET_PDEATHSIG ties to a command's parent is this thread (prctl(2)).
            threading.Thread(target=self._work, args=(worker,), name="disk", daemon=True).start()
        except RuntimeError:
            # The machine, or the unit, has no task left (pthread_create(3)).
            with self._lock:
                del self._running[operation]
            self._wake_next()
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), operation.folder) from None

    def _abandon(self, operation: _Operation, interrupt: Callable[[], None] | None) -> asyncio.Future[None]:
        """Let it go. The future is done when it has returned and its value is discarded."""
        with self._lock:
            operation.abandoned = time.monotonic()
            returned = operation.returned
            if interrupt is not None and not returned:
                interrupt()
        if not returned or operation.error is not None or operation.unwanted is None:
            return operation.done
        discarding = _Operation(operation.folder, lambda: _discard(operation), None, operation.since)
        try:
            self._begin(discarding)
        except OSError:
            # No thread can be started. The caller must still see that it was cancelled.
            _discard(operation)
            return operation.done
        return discarding.done

    # --- in a thread ---------------------------------------------------------------------------------------------

    def _work(self, inbox: queue.SimpleQueue[_Operation]) -> None:
        while True:
            operation = inbox.get()
            try:
                operation.value = operation.call()
            except BaseException as error:  # noqa: BLE001 - whatever it is, the caller gets it
                operation.error = error
            with self._lock:
                operation.returned = True
                abandoned = operation.abandoned is not None
                self._freed = time.monotonic()
                del self._running[operation]
                self._idle.append(inbox)
            if abandoned:
                _discard(operation)
            # The loop may have ended before an operation that hung; what its process has open ends with it.
            with suppress(RuntimeError):
                operation.loop.call_soon_threadsafe(_settle, operation.done)
            del operation
            self._wake_next()


def _folder_of(path: str) -> str:
    return str(PurePath(path).parent) if not path.endswith("/") else path.rstrip("/") or "/"


def _discard(operation: _Operation) -> None:
    if operation.error is None and operation.unwanted is not None:
        operation.unwanted(operation.value)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


DISK_THREADS: Final = DiskThreads()
"""Those of the functions of this process."""
