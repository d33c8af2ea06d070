"""A device that restarts: the job that did it is over when the device is there again with another boot id.

It is the same here, where this process ends in the middle and its successor goes on from the journal, and over a
connection that breaks and comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from device_agent.clock import Clock
from device_agent.ended import Ended
from device_agent.host import Host, HostLost
from device_agent.outbox import Restarting

Lend = Callable[[], AbstractAsyncContextManager[Host]]
"""The machine for a while. Raises ``HostLost`` on entering where there is no way to it."""

BOOT_ID = "/proc/sys/kernel/random/boot_id"
"""A number that Linux draws anew at every start, random(4)."""

LOOK_SECONDS = 0.5
"""How often it is looked at, and how long a process that is told to stop waits for us at most."""


async def boot_id(host: Host) -> str:
    """The boot id of a host. Raises ``OSError`` and ``HostLost``."""
    return (await host.read(BOOT_ID)).decode(errors="replace").strip()


def judge(before: str, now: str, waited: float, within: float) -> Ended | None:
    """The end of a restart, or None while it may still come. ``now`` is empty while the host is not there."""
    if now and now != before:
        return Ended({"boot_id": now, "before": before})
    if waited < within:
        return None
    why = f"the device did not restart within {within:g} s" if now else f"the device was not back within {within:g} s"
    return Ended({"boot_id": now, "before": before}, 1, "timed_out", why)


async def back(lend: Lend, restarting: Restarting, clock: Clock, leaves: Callable[[], bool]) -> Ended | None:
    """Wait for the end of a restart; None when this process itself is asked to go.

    The machine is borrowed anew for each look: the way to it was lost meanwhile.
    """
    begun = clock.monotonic()
    while not leaves():
        try:
            async with lend() as host:
                now = await boot_id(host)
        except (OSError, HostLost):
            now = ""
        ended = judge(restarting.boot_id, now, clock.monotonic() - begun, restarting.within)
        if ended is not None:
            return ended
        await asyncio.sleep(LOOK_SECONDS)
    return None
