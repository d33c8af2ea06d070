"""``test``: runners that do nothing, to see what becomes of a call."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.calls.functions import Function
from gateway.calls.running import Running


def functions() -> list[Function]:
    """What it has."""
    return [
        Function("test.arg", arg),
        Function("test.sleep", sleep),
    ]


async def arg(_: Running, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return the arguments.

    CLI example: ``outstation runner test.arg one two=2``
    """
    return {"args": list(args), "kwargs": kwargs}


async def sleep(_: Running, s_time: float = 5) -> bool:
    """Wait so many seconds.

    CLI example: ``outstation runner test.sleep 3``
    """
    await asyncio.sleep(max(0.0, s_time))
    return True
