"""Functions that show whether a device answers, and how it fails."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from msgspec import Meta

from device_agent.ended import FunctionFailed
from device_agent.host import Host
from device_agent.protocol import limits

SleepSeconds = Annotated[float, Meta(ge=0, le=limits.RUN_LIMIT_MAX_SECONDS)]


async def ping(_host: Host) -> bool:
    """Answer ``True``: the device is there and runs jobs.

    CLI Example:

        outstation run '*' test.ping
    """
    return True


async def echo(_host: Host, text: Any) -> Any:
    """Return what was given.

    CLI Example:

        outstation run '*' test.echo 'foo bar baz'
    """
    return text


async def sleep(_host: Host, length: SleepSeconds) -> bool:
    """Wait so many seconds, then return ``True``.

    CLI Example:

        outstation run '*' test.sleep 20
    """
    await asyncio.sleep(length)
    return True


async def fail(_host: Host, message: str = "the function was asked to fail", retcode: int = 1) -> None:
    """Fail, with this message and return code.

    CLI Example:

        outstation run '*' test.fail 'out of film' retcode=3
    """
    raise FunctionFailed(message, retcode)
