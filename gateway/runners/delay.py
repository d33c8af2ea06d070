"""``delay``: a runner later. Salt has none: what is to come later there is forgotten at a restart."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from device_agent.clock import Clock
from device_agent.errors import UsageInvalid
from gateway.calls.call import LONGEST_SECONDS, CallRequest
from gateway.calls.functions import Function
from gateway.calls.running import Running

LONGEST_DELAY: Final = LONGEST_SECONDS - 3600.0
TURN_SECONDS: Final = 30.0
"""So long it sleeps at most: a clock that is set meanwhile is followed."""


class DelayRunner:
    """The runner."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def functions(self) -> list[Function]:
        """What it has. What is called is judged when it is called, by who has it called."""
        return [Function("delay.runner", self.runner, again=True, waits=True, seconds=LONGEST_SECONDS)]

    async def runner(
        self,
        running: Running,
        seconds: float,
        fun: str,
        args: list[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call a runner so many seconds after this was asked for, also when the station was away in between.

        CLI example: ``outstation runner delay.runner 60 event.send '[site/later]' --async``
        """
        if not 0 <= seconds <= LONGEST_DELAY:
            raise UsageInvalid(
                "this is no delay", where="seconds", found=f"{seconds:g}", allowed=f"0 to {LONGEST_DELAY:g} s"
            )
        until = running.call.accepted + seconds
        while True:
            left = until - self._clock.wall()
            if left <= 0:
                break
            await asyncio.sleep(min(left, TURN_SECONDS))
        return await running.ended(CallRequest(fun=fun, arg=args or [], kwarg=kwargs or {}), "later")
