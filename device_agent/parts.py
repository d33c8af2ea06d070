"""Part: something that opens, runs and closes. Each owns one TaskGroup; they stop in reverse order of entering.

One TaskGroup for a whole process does not stop in order when a part crashes: it cancels everything at once. A part with
its own group, entered in an exit stack, does: those above it drain and close first, then it, then those below.

This file is the only place that makes tasks outside a TaskGroup (the drain, which must outlive a cancelled group).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, ClassVar, Self

log = logging.getLogger(__name__)


class Part:
    """An async context manager that returns from entering when it is ready.

    Subclasses override ``open`` (acquire, return when ready), ``drain`` (refuse new work, finish what is under way) and
    ``close`` (release). Loops are started with ``spawn`` and are cancelled after the drain. An exception in a loop ends
    the process in order: the group cancels whoever entered the part, and the exit stack unwinds.
    """

    name: ClassVar[str] = "part"
    drain_seconds: ClassVar[float] = 5.0

    _group: asyncio.TaskGroup
    _tasks: dict[asyncio.Task[None], None]
    """In the order in which they were started: the loops of a part are few, what a downlink runs at once is not."""

    async def open(self) -> None:
        """Acquire; return when ready."""

    async def drain(self) -> None:
        """Refuse new work and finish what is under way; given ``drain_seconds``."""

    async def close(self) -> None:
        """Release what ``open`` acquired. Runs after every task of the part has ended."""

    def spawn(self, loop: Coroutine[Any, Any, None], task_name: str) -> asyncio.Task[None]:
        """Run a coroutine in this part's TaskGroup until the part is left; its name reads ``part/task_name``."""
        task = self._group.create_task(loop, name=f"{self.name}/{task_name}")
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)

    async def __aenter__(self) -> Self:
        self._tasks = {}
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        try:
            await self.open()
        except BaseException as error:
            # The group must be left even when opening failed, or its tasks would have no owner.
            await self._leave(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._finish_within(self.drain_seconds)
        await self._leave(kind, error, trace)

    async def _finish_within(self, seconds: float) -> None:
        task = asyncio.get_running_loop().create_task(self.drain(), name=f"{self.name}/drain")
        _, late = await asyncio.wait({task}, timeout=seconds)
        if late:
            log.warning("part is late: its drain took more than its limit part=%s limit_seconds=%s", self.name, seconds)
            task.cancel()
            await asyncio.wait({task}, timeout=seconds)
        elif not task.cancelled() and (failure := task.exception()) is not None:
            log.error("drain failed part=%s error=%r", self.name, failure)

    async def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in list(self._tasks):
            task.cancel()
        try:
            await self._group.__aexit__(kind, error, trace)
        finally:
            await self.close()


def leaves(error: BaseException) -> list[BaseException]:
    """The single errors inside nested exception groups, so that each can be reported by itself."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]
