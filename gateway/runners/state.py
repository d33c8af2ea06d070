"""``state``: orchestrations, as Salt's runner of that name. Device states are none of its business."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from device_agent.errors import UsageInvalid
from device_agent.protocol import limits
from gateway.calls import book as calls_book
from gateway.calls.call import CallFailed, CallRequest, Ended
from gateway.calls.functions import Function
from gateway.calls.jobs import CallJobs, JobEnded
from gateway.calls.running import Running
from gateway.jobs.accept import Acceptance
from gateway.jobs.request import JobRequest, without_missing
from gateway.orchestrate.asked import asked
from gateway.orchestrate.orchestrator import Orchestrator
from gateway.store.writer import Statement

SECONDS: Final = 86_400.0
LISTENED_TO: Final = (
    "a call has an end and one result, and this listens for ever; outstation events TAG-GLOB --pretty prints the same, "
    "a tag and the data in many lines, and --json one object in a line"
)
LONGEST_JOB_SECONDS: Final = limits.JOB_EXPIRY_MAX_SECONDS + limits.RUN_LIMIT_MAX_SECONDS


class StateRunner:
    """The runner."""

    def __init__(self, *, orchestrator: Orchestrator, acceptance: Acceptance, jobs: CallJobs) -> None:
        self._orchestrator = orchestrator
        self._acceptance = acceptance
        self._jobs = jobs

    def functions(self) -> list[Function]:
        """What it has. An orchestration that was cut off by an end of the station goes on where it was."""
        return [
            *(
                Function(f"state.{name}", self.orchestrate, again=True, waits=True, seconds=SECONDS)
                for name in ("orchestrate", "orch", "sls")
            ),
            # The arguments of its steps may be for whoever runs them alone.
            Function("state.orchestrate_show_sls", self.show, looks=True),
            Function("state.orch_show_sls", self.show, looks=True),
            Function("state.event", self.event, need="view", refused=LISTENED_TO),
        ]

    async def orchestrate(
        self,
        running: Running,
        mods: str | list[str],
        saltenv: str = "base",
        test: bool | None = None,
        exclude: Any = None,
        pillar: dict[str, Any] | None = None,
        pillarenv: str | None = None,  # noqa: ARG002 - Salt's argument; the pillar is what is given
        orchestration_jid: str | None = None,
    ) -> dict[str, Any]:
        """Take the steps of orchestration files, in their order. What fails is in the result.

        CLI example: ``outstation runner state.orchestrate orch.deploy pillar='{version: 7}'``
        """
        if exclude is not None:
            raise UsageInvalid("exclude is not there in an orchestration", where="exclude", found=str(exclude)[:80])
        wanted = asked(mods, saltenv, pillar, test)
        name = running.jid
        if orchestration_jid is not None and running.call.parent:
            # Within another orchestration: the name that it has there is the same when this call is another one.
            name = orchestration_jid
        within = _Within(running, self._acceptance, self._jobs)
        until = running.call.accepted + running.call.seconds
        result = await self._orchestrator.run(name, str(running.operator), wanted, within, until)
        if result.outcome != "ok":
            raise CallFailed(result.told)
        return result.told

    async def show(
        self,
        _: Running,
        mods: str | list[str],
        saltenv: str = "base",
        test: bool | None = None,
        pillar: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Show the steps that an orchestration would take, in their order. Nothing is done.

        CLI example: ``outstation runner state.orchestrate_show_sls orch.deploy``
        """
        told = await self._orchestrator.shown(asked(mods, saltenv, pillar, test))
        if told["retcode"]:
            raise CallFailed(told)
        return told

    async def event(
        self,
        _: Running,
        tagmatch: str = "*",
        count: int = -1,
        quiet: bool = False,
        node: str | None = None,
        pretty: bool = False,
    ) -> None:
        """Print events as they happen: refused here, ``outstation events`` does it.

        CLI example: ``outstation runner state.event 'salt/job/*' pretty=True``
        """


class _Within:
    """A call of the station, as an orchestration needs it."""

    def __init__(self, running: Running, acceptance: Acceptance, jobs: CallJobs) -> None:
        self._running = running
        self._acceptance = acceptance
        self._jobs = jobs

    @property
    def jid(self) -> str:
        return self._running.jid

    async def give(self, request: JobRequest, beside: Callable[[str], Sequence[Statement]]) -> str:
        call = self._running.call

        def both(jid: str) -> list[Statement]:
            return [*beside(jid), *calls_book.of_job(call.jid, jid, jid)]

        operator = self._running.operator
        request = replace(request, why=call.why or f"{call.said} {call.jid}")
        return await self._acceptance.submit(request, str(operator), operator, beside=both)

    def returners(self, said: Sequence[str]) -> tuple[list[str], str]:
        return without_missing(self._acceptance.returning, list(said))

    async def awaited(self, jid: str) -> JobEnded:
        return await self._jobs.awaited(jid, LONGEST_JOB_SECONDS)

    async def made(self, request: CallRequest, key: str) -> Ended:
        return await self._running.made(request, key)

    async def fire(self, tag: str, data: dict[str, Any], beside: Sequence[Statement] = ()) -> None:
        await self._running.fire(tag, data, beside)
