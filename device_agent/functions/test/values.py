"""Values that are calculated or handed back."""

from __future__ import annotations

import time
from typing import Annotated, Any

from msgspec import Meta

from device_agent.functions.test.answers import random_hash
from device_agent.host import Host

FIB_MOST = 93
"""The last Fibonacci number that a message can carry: it has 64 bits."""

COLLATZ_MOST = 2**53
"""Salt divides in floating point, which is exact up to here; a row from here ends after some 1,500 steps."""


async def fib(_host: Host, num: Annotated[int, Meta(ge=0, le=FIB_MOST)]) -> list[int | float]:
    """Return a Fibonacci number by its place, and the seconds that it took.

    CLI Example:

        outstation run '*' test.fib 30
    """
    begun = time.monotonic()
    before, found = 0, 1
    for _ in range(num - 1):
        before, found = found, before + found
    return [found if num else 0, time.monotonic() - begun]


async def collatz(_host: Host, start: Annotated[int, Meta(ge=1, le=COLLATZ_MOST)]) -> list[list[int] | float]:
    """Return the Collatz sequence from a number down to 2, and the seconds that it took.

    CLI Example:

        outstation run '*' test.collatz 30
    """
    begun = time.monotonic()
    steps = []
    while start != 1:
        steps.append(start)
        start = start * 3 + 1 if start % 2 else start // 2
    return [steps, time.monotonic() - begun]


async def outputter(_host: Host, data: Any) -> Any:
    """Return what was given, for trying an outputter.

    CLI Example:

        outstation run '*' test.outputter foobar
    """
    return data


async def arg_clean(_host: Host, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return the arguments as they arrived, as ``test.arg`` does.

    CLI Example:

        outstation run '*' test.arg_clean 1 two txt=hello
    """
    return {"args": list(args), "kwargs": kwargs}


async def rand_str(host: Host, size: Annotated[int, Meta(ge=1)] = 9999999999, hash_type: str | None = None) -> str:
    """Return the same as ``test.random_hash``.

    CLI Example:

        outstation run '*' test.rand_str
    """
    return await random_hash(host, size, hash_type)
