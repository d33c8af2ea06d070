"""Takes orchestrations from their call to their result, also those that were begun before the station was killed."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from device_agent.clock import Clock
from device_agent.errors import PolicyRefused
from gateway.orchestrate import results
from gateway.orchestrate.asked import Asked
from gateway.orchestrate.book import Orchestrated, OrchestrationBook, Outcome
from gateway.orchestrate.compiling import Compiler
from gateway.orchestrate.run import Orchestration, Within
from gateway.orchestrate.waits import Waits

MARGIN_SECONDS: Final = 5.0
"""Its end has to be on disk before its call is over."""


class Result(Struct, frozen=True):
    """How an orchestration ended, and what is told of it in Salt's shape."""

    outcome: Outcome
    told: dict[str, Any]


class Orchestrator:
    """Compiles, puts on disk, runs and ends."""

    def __init__(
        self,
        *,
        device: str,
        compiler: Compiler,
        book: OrchestrationBook,
        waits: Waits,
        clock: Clock,
        most_bytes: int,
    ) -> None:
        self._device = device
        self._compiler = compiler
        self._book = book
        self._waits = waits
        self._clock = clock
        self._most_bytes = most_bytes

    async def run(self, name: str, operator: str, wanted: Asked, within: Within, until: float) -> Result:
        """Go through an orchestration, ``until`` this moment of the wall clock at most.

        Raises ``Refused`` (``busy``) when too many renderings wait, ``PolicyRefused`` for another's name, and
        ``StoreFailed`` when it could not be put on disk.
        """
        kept = await self._book.one(name)
        if kept is None:
            compiled = await self._compiler.compile(wanted.mods, wanted.saltenv, wanted.pillar, test=wanted.test)
            if compiled.errors:
                return Result("refused", self._told(compiled.errors, 1))
            await self._book.add(name, operator, compiled.steps)
            kept = await self._book.one(name)
        assert kept is not None
        self._check_owner(kept, operator)
        return await self._through(name, kept, wanted, within, until)

    async def shown(self, wanted: Asked) -> dict[str, Any]:
        """The steps that an orchestration would take, in their order, or what is wrong. Raises ``Refused``."""
        compiled = await self._compiler.compile(wanted.mods, wanted.saltenv, wanted.pillar, test=wanted.test)
        if compiled.errors:
            return self._told(compiled.errors, 1)
        steps = {
            step.tag: {
                "name": step.name,
                "__id__": step.id,
                "__sls__": step.sls,
                "__run_num__": step.number,
                "fun": step.said,
                "args": step.args,
                "place": step.place,
                "requisites": [{each.kind: compiled.steps[each.step].tag} for each in step.requisites],
                "failhard": step.failhard,
                "parallel": step.parallel,
            }
            for step in compiled.steps
        }
        return {"data": {self._device: steps}, "retcode": 0}

    async def _through(self, name: str, kept: Orchestrated, wanted: Asked, within: Within, until: float) -> Result:
        orchestration = Orchestration(
            name=name,
            device=self._device,
            within=within,
            book=self._book,
            waits=self._waits,
            clock=self._clock,
            kept=kept.steps,
            test=wanted.test,
            most_bytes=self._most_bytes,
        )
        if kept.outcome == "open":
            why = await orchestration.run(max(0.0, until - MARGIN_SECONDS - self._clock.wall()))
            if why:
                await orchestration.cut(why)
            data = orchestration.data()
            good = results.check_result(data)
            outcome: Outcome = "cut" if why else "ok" if good else "failed"
            await self._book.commit(self._book.closing(name, outcome, why))
        else:
            outcome, data = kept.outcome, orchestration.data()
        return Result(outcome, self._told(data, 0 if outcome == "ok" else 1))

    def _told(self, data: Any, retcode: int) -> dict[str, Any]:
        return {"data": {self._device: data}, "outputter": "highstate", "retcode": retcode}

    def _check_owner(self, kept: Orchestrated, operator: str) -> None:
        if kept.operator != operator:
            raise PolicyRefused(
                "this orchestration is somebody else's",
                error_id="orchestrate.other",
                found=operator,
                allowed=kept.operator,
                hint="leave out orchestration_jid",
            )
