"""The runs of an agent's schedule: a function is called, and what it returns is told to the station."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import tzinfo
from typing import Any, Final, Protocol

import msgspec

from device_agent import loader, restarts
from device_agent.clock import Clock
from device_agent.ended import Ended
from device_agent.errors import OutstationError, Refused
from device_agent.folder_limits import limited
from device_agent.outbox import Restarting
from device_agent.own import Own, RunningJob
from device_agent.protocol import limits
from device_agent.protocol.messages import encode_value
from device_agent.restarts import Lend
from device_agent.schedule.kept import Run
from device_agent.schedule.returns import RETURN_BYTES, TAG, returned, too_large

log = logging.getLogger(__name__)

USER: Final = "schedule"
"""Who stands as the user of a scheduled run."""

Spawn = Callable[[Coroutine[Any, Any, None]], object]


class Identity(Protocol):
    """Who the device is (``identity.Identity``)."""

    @property
    def did(self) -> str:
        """What its key is called."""

    @property
    def name(self) -> str:
        """What targets call it; it may change."""


class Runs:
    """Runs, each in a task of its own.

    ``judge`` raises ``Refused`` for a run that may not be; ``under_way`` has it on flash that a run restarts the
    device; ``over`` is told how each ended, with None for one that its successor is to go on with.
    """

    def __init__(
        self,
        identity: Identity,
        own: Own,
        *,
        lend: Lend,
        spawn: Spawn,
        judge: Callable[[Run], Sequence[str]],
        leaves: Callable[[], bool],
        under_way: Callable[[str, Run], Awaitable[None]],
        over: Callable[[str, Run, Ended | None], Awaitable[None]],
        clock: Clock,
        zone: tzinfo,
    ) -> None:
        self._identity = identity
        self._own = own
        self._lend = lend
        self._spawn = spawn
        self._judge = judge
        self._leaves = leaves
        self._under_way = under_way
        self._over = over
        self._clock = clock
        self._zone = zone

    def start(self, jid: str, run: Run, judged: Any) -> None:
        """Begin a run. ``judged`` is how far its function reached when it was added."""
        log.info("scheduled run begins name=%s function=%s jid=%s", run.name, run.fun, jid)
        self._spawn(self._finish(jid, run, self._ended(jid, run, judged)))

    def go_on(self, jid: str, run: Run) -> None:
        """A run was under way when the agent before this one ended: a restart is waited for, all else is unknown."""
        if not run.boot_id:
            log.warning("a scheduled run was under way when the agent stopped name=%s jid=%s", run.name, jid)
        self._spawn(self._finish(jid, run, self._back(run) if run.boot_id else _unknown()))

    async def _finish(self, jid: str, run: Run, ending: Awaitable[Ended | None]) -> None:
        ended: Ended | None = None
        try:
            ended = await ending
            if ended is not None and run.returns:
                await self._tell(jid, run, ended)
        finally:
            await self._over(jid, run, ended)

    async def _ended(self, jid: str, run: Run, judged: Any) -> Ended | None:
        """How a run ended; None when this process goes before a restart is over."""
        try:
            folders = self._judge(run)
        except Refused as refused:
            why = f"{refused}: the pillar names it, and this site may not order it"
            return Ended(None, 1, "refused", why[: limits.WHY_CHARACTERS])
        job = RunningJob(jid, run.fun, run.arg, run.kwarg, run.name, "schedule", USER, os.getpid())
        own = msgspec.structs.replace(self._own, job=job)
        try:
            async with asyncio.timeout(limits.RUN_LIMIT_SECONDS), self._lend() as host:
                ended = await loader.call(run.fun, limited(host, folders), run.arg, run.kwarg, own, judged)
        except TimeoutError:
            return Ended(None, 1, "timed_out", f"stopped after {limits.RUN_LIMIT_SECONDS:g} s")
        return ended if ended.restart is None else await self._restart(jid, run, ended)

    async def _restart(self, jid: str, run: Run, ended: Ended) -> Ended | None:
        restart = ended.restart
        assert restart is not None, "it was asked before"
        run = msgspec.structs.replace(run, boot_id=restart.boot_id, within=restart.within)
        try:
            # On flash before it begins: whatever comes back must know that it was meant.
            await self._under_way(jid, run)
            await restart.begin()
        except (OSError, OutstationError) as error:
            return Ended(None, 1, "failed", f"the device was not restarted: {error}"[: limits.WHY_CHARACTERS])
        return await self._back(run)

    async def _back(self, run: Run) -> Ended | None:
        restarting = Restarting(run.fun, run.boot_id, run.within)
        return await restarts.back(self._lend, restarting, self._clock, self._leaves)

    async def _tell(self, jid: str, run: Run, ended: Ended) -> None:
        if ended.outcome != "ok":
            log.warning("scheduled run ended name=%s outcome=%s why=%r jid=%s", run.name, ended.outcome, ended.why, jid)
        data = returned(self._identity.name, jid, run, ended, self._zone)
        size = len(encode_value(data["return"])) + len(encode_value(data["fun_args"]))
        if size > RETURN_BYTES:
            data = too_large(data, size)
        try:
            if self._own.events is not None:
                await self._own.events.fire(self._identity.name, TAG, data)
        except OutstationError as error:
            log.error("the return of a scheduled run is lost name=%s jid=%s error=%s", run.name, jid, error)


async def _unknown() -> Ended:
    return Ended(None, 1, "unknown", "the agent stopped while it ran")
