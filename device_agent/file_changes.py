"""One change of a file at a time: a job that reads a file, changes it and writes it waits for the others that do.

Jobs of one device run at once. Without this, each would write what it read before, and the changes of all but one would
be lost.
"""

from __future__ import annotations

import asyncio
import inspect
import posixpath
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from device_agent.disk_threads import released_after_operations
from device_agent.ended import FunctionFailed
from device_agent.host import Host
from device_agent.local_files import LINKS_FOLLOWED
from device_agent.shell_paths import expanded

WAIT_SECONDS: Final = 120.0
"""How long a change waits for others of the same file."""

P = ParamSpec("P")
R = TypeVar("R")
PathOf = Callable[[Host, Mapping[str, Any]], Awaitable[str]]
"""Which file a call changes, by its arguments. What is no absolute path is a name for what commands change."""

_locks: WeakValueDictionary[tuple[object, str], asyncio.Lock] = WeakValueDictionary()
"""One for each file of a device that is being changed."""

_held: ContextVar[frozenset[tuple[object, str]]] = ContextVar("_held", default=frozenset())
"""Those that the running call holds: a function may call another one that changes the same file."""


@asynccontextmanager
async def changing(host: Host, path: str) -> AsyncIterator[None]:
    """Be alone with a file, from before it is read until it is written. Raises ``FunctionFailed`` after a bound.

    When the caller is cancelled while the file is written, the next one waits for the end of that write.
    """
    key = (host.grains.get("id"), await followed(host, path))
    if key in _held.get():
        yield
        return
    lock = _locks.setdefault(key, asyncio.Lock())
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await lock.acquire()
    except TimeoutError:
        raise FunctionFailed(
            f"{path} was not changed: other jobs have been changing it for {WAIT_SECONDS:g} seconds; "
            "saltutil.running shows them, and outstation-agent check shows file operations of ended jobs that still run"
        ) from None
    token = _held.set(_held.get() | {key})
    try:
        with released_after_operations(lock.release):
            yield
    finally:
        _held.reset(token)


def one_change_at_a_time(
    path: str | PathOf,
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
    """Run a function that changes a file alone with it. ``path`` is the argument that names the file, or tells it."""

    def decorate(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        signature = inspect.signature(function)

        @wraps(function)
        async def alone(*args: P.args, **kwargs: P.kwargs) -> R:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            host = next(iter(bound.arguments.values()))
            if isinstance(path, str):
                file = await expanded(host, str(bound.arguments[path]))
            else:
                file = await path(host, bound.arguments)
            async with changing(host, file):
                return await function(*args, **kwargs)

        return alone

    return decorate


def always(path: str) -> PathOf:
    """The same file, whatever the arguments are."""

    async def same(_host: Host, _arguments: Mapping[str, Any]) -> str:
        return path

    return same


async def followed(host: Host, path: str) -> str:
    """Where a write to an absolute path goes, as ``Host.write`` follows a link; the path where it cannot be known."""
    if not path.startswith("/"):
        return path
    try:
        for _ in range(LINKS_FOLLOWED):
            found = await host.stat(path, follow=False)
            if found is None or found.kind != "link":
                break
            path = posixpath.join(posixpath.dirname(path), found.target)
    except (OSError, ValueError):
        pass  # The function itself says what is wrong with the path.
    return posixpath.normpath(path)
