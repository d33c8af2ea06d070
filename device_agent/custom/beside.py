"""Calls a function that a site brought beside the loop of the agent or the station: one that blocks holds up nobody.

Each call has a thread and a loop of its own. What it does on its host, and with what belongs to the device, is done in
the loop that called it, where the connections are. A call that does not end when it is cancelled is stopped, as far as
Python lets us.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, cast

from msgspec import structs

from device_agent.custom.loading import Function, stop
from device_agent.ended import FunctionFailed
from device_agent.host import Host, HostLost
from device_agent.own import Own

THREAD: Final = "custom "
MOST: Final = 64
"""Calls in one process, with those that hang."""

END_SECONDS: Final = 1.0
"""A call that is cancelled has so long to clean up."""


async def beside(function: Function, given_first: Host | object, *arg: Any, **kwarg: Any) -> Any:
    """Call a function and return what it returns, or raise what it raises.

    ``given_first`` is its host, or what else it has of the loop that calls: a runner its running call.
    """
    if sum(thread.name.startswith(THREAD) for thread in threading.enumerate()) >= MOST:
        raise FunctionFailed(f"{MOST} functions of custom modules run here, or hang: restart what runs them")
    way = _Way(asyncio.get_running_loop())
    given = {name: _own(value, way) if isinstance(value, Own) else value for name, value in kwarg.items()}
    call = _Call(function(cast("Host", _Across(given_first, way)), *arg, **given), way.loop)
    thread = threading.Thread(target=call.run, name=f"{THREAD}{function.__name__}", daemon=True)
    thread.start()
    try:
        await asyncio.wait({call.done})
    except asyncio.CancelledError:
        call.cancel()
        try:
            await asyncio.wait({call.done}, timeout=END_SECONDS)
        finally:
            # Also when whoever waits is cancelled once more.
            if call.done.done():
                call.done.exception()
            else:
                call.done.cancel()
                stop(thread)
        raise
    finally:
        way.open = False
    return call.done.result()


class _Call:
    """A call in its thread."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> None:
        self.done: asyncio.Future[Any] = loop.create_future()
        self._coroutine = coroutine
        self._loop = loop
        self._inner: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        self._cancelled = False

    def cancel(self) -> None:
        """End it, from the loop that called it."""
        self._cancelled = True
        if self._inner is not None:
            loop, task = self._inner
            # It may have ended just now, with its loop.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)

    def run(self) -> None:
        """What the thread does."""
        try:
            with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
                try:
                    self._settle(runner.run(self._called()), None)
                except BaseException as error:  # noqa: BLE001 - whatever it raises is the end of this call alone
                    self._settle(None, error)
        except BaseException as error:  # noqa: BLE001 - a loop that cannot be made, and what is left in one that ends
            self._settle(None, error)

    async def _called(self) -> Any:
        task = asyncio.current_task()
        assert task is not None, "it runs in one"
        self._inner = asyncio.get_running_loop(), task
        if self._cancelled:
            self._coroutine.close()
            raise asyncio.CancelledError
        return await self._coroutine

    def _settle(self, value: Any, error: BaseException | None) -> None:
        if isinstance(error, asyncio.CancelledError):
            error = RuntimeError("it was cancelled, and by nobody but itself")

        def settle() -> None:
            if self.done.done():
                return
            if error is None:
                self.done.set_result(value)
            else:
                self.done.set_exception(error)

        # The loop may have ended before a function that hung.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(settle)


class _Way:
    """Into the loop that called, until the call has ended: its host is somebody else's then."""

    __slots__ = ("loop", "open")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.open = True

    def start(self, found: Callable[..., Any], arg: Any, kwarg: Any) -> Future[Any]:
        """Call something there."""
        return asyncio.run_coroutine_threadsafe(self._call(found, arg, kwarg), self.loop)

    async def _call(self, found: Callable[..., Any], arg: Any, kwarg: Any) -> Any:
        if not self.open:
            raise HostLost("the call of this function has ended", started=False)
        answer = found(*arg, **kwarg)
        return await answer if inspect.isawaitable(answer) else answer


class _Across:
    """Something of the loop that called, as a function in its thread sees it: what it does is done in that loop."""

    __slots__ = ("_it", "_way")

    def __init__(self, it: object, way: _Way) -> None:
        self._it = it
        self._way = way

    def __getattr__(self, name: str) -> Any:
        found, way = getattr(self._it, name), self._way
        if not callable(found):
            return found
        if inspect.iscoroutinefunction(found):
            return _crossing(found, way)
        return lambda *arg, **kwarg: way.start(found, arg, kwarg).result()


def _crossing(found: Callable[..., Any], way: _Way) -> Function:
    async def crossed(*arg: Any, **kwarg: Any) -> Any:
        answer = await asyncio.wrap_future(way.start(found, arg, kwarg))
        # The two halves of a connection stay in the loop that has it.
        return tuple(_Across(half, way) for half in answer) if isinstance(answer, tuple) else answer

    return crossed


def _own(own: Own, way: _Way) -> Own:
    across: dict[str, Any] = {
        name: _Across(getattr(own, name), way) for name in ("jobs", "station", "custom", "pillar")
    }
    regrain = None if own.regrain is None else _crossing(own.regrain, way)
    return structs.replace(own, regrain=regrain, **across)
