"""What a function of the station is given: the call that it is of, and what it may have done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from device_agent.errors import PolicyRefused
from gateway.bus import Bus
from gateway.calls import book
from gateway.calls.book import CallBook
from gateway.calls.call import Call, CallFailed, CallRequest, Ended
from gateway.calls.jobs import CallJobs, JobEnded
from gateway.devices.policy import Operator
from gateway.jobs.request import JobRequest
from gateway.store.writer import Statement


class Within(Protocol):
    """Makes a call for another call, and waits for its end."""

    async def __call__(self, parent: Call, request: CallRequest, key: str) -> Ended:
        """Raises ``OutstationError`` for a call that cannot be made."""


@dataclass(frozen=True)
class Running:
    """A call under way. ``repeated``: it was begun before, and the station was killed in the middle of it."""

    call: Call
    repeated: bool
    _bus: Bus
    _book: CallBook
    _jobs: CallJobs
    _within: Within

    @property
    def jid(self) -> str:
        """Its jid, which is the same however often it is begun: an idempotency key for what it does."""
        return self.call.jid

    @property
    def operator(self) -> Operator:
        """Who asked, to the policy."""
        return self.call.asker()

    async def fire(
        self, tag: str, data: dict[str, Any], beside: Sequence[Statement] = (), *, upward: bool = False
    ) -> None:
        """An event of this call; what reacts to it is one step further from what began it. Raises ``StoreFailed``."""
        await self._bus.accept([self._bus.event(tag, data)], [book.of_event(self.jid), *beside], upward=upward)

    async def fire_here(self, suffix: str, data: dict[str, Any]) -> None:
        """An event below the tag of this call, ``salt/run/<jid>/``, as Salt's runners fire theirs."""
        room = "run" if self.call.kind == "runner" else "wheel"
        await self.fire(f"salt/{room}/{self.jid}/{suffix}", data)

    async def has_fired(self) -> bool:
        """Whether this call has fired an event already, before it was begun again."""
        return self.repeated and await self._book.has_fired(self.jid)

    async def job(self, request: JobRequest, seconds: float, key: str = "") -> JobEnded:
        """Give a job as whoever asked for this call, and wait for its outcomes, so many seconds at most.

        With a ``key``, which names the job within this call, a call that is begun again takes up the job that it gave
        before. Raises ``OutstationError`` for a job that is refused.
        """
        return await self._jobs.run(self.call, request, seconds, key)

    async def runner(self, fun: str, *arg: Any, key: str = "", **kwarg: Any) -> Any:
        """Call a runner; what it returns. Raises ``CallFailed``, and ``OutstationError`` when it cannot be called."""
        return await self.ended(CallRequest(kind="runner", fun=fun, arg=list(arg), kwarg=kwarg), key)

    async def wheel(self, fun: str, *arg: Any, key: str = "", **kwarg: Any) -> Any:
        """The same for a wheel."""
        return await self.ended(CallRequest(kind="wheel", fun=fun, arg=list(arg), kwarg=kwarg), key)

    async def made(self, request: CallRequest, key: str) -> Ended:
        """Make a call and wait for its end, as it is kept: without what a private function returned.

        ``key`` names it among all calls, also to one that goes on for this one. Raises ``OutstationError`` for a call
        that cannot be made.
        """
        ended = await self._within(self.call, request, key)
        kept = await self._book.one(ended.jid)
        if kept is None or kept.ended.state == "open":
            raise PolicyRefused("the station is stopping", error_id="station.stopping", hint="try again in a moment")
        return kept.ended

    async def ended(self, request: CallRequest, key: str = "") -> Any:
        """Make a call and wait for it. With a ``key`` one that is begun again finds the call that it made before."""
        ended = await self._within(self.call, request, f"{self.jid}/{key}" if key else "")
        if not ended.ok:
            raise CallFailed(ended.value, ended.retcode)
        return ended.value
