"""Waiting for a condition: the only place in the tests that sleeps."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

Found = TypeVar("Found")

FIRST_PAUSE = 0.002
LONGEST_PAUSE = 0.05


@overload
async def until(probe: Callable[[], Awaitable[Found]], seconds: float = 40, what: str = "") -> Found: ...


@overload
async def until(probe: Callable[[], Found], seconds: float = 40, what: str = "") -> Found: ...


async def until(probe: Callable[[], Any], seconds: float = 40, what: str = "") -> Any:
    """Ask ``probe``, a function or a coroutine function, until its answer is true; that answer.

    ``what`` says in words what is waited for. Raises AssertionError with it and with the last answer after ``seconds``;
    an error of the probe itself is raised at once.
    """
    answer: Any = None
    pause = FIRST_PAUSE
    deadline = asyncio.timeout(seconds)
    try:
        async with deadline:
            while True:
                answer = probe()
                if inspect.isawaitable(answer):
                    answer = await answer
                if answer:
                    return answer
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
    except TimeoutError:
        if not deadline.expired():
            raise
        raise AssertionError(f"waited {seconds:g} s for {what or probe}; the last answer was {answer!r}") from None
