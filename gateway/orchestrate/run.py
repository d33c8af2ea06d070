"""An orchestration under way: its steps are taken one after another, and each is on disk before it is taken.

It is one call of the station, which is made again where the station was killed in the middle of it; then it goes on
where it was. The job of a step is in the commit of the step's row, so a step is never two jobs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol

from msgspec.structs import replace

from device_agent.clock import Clock
from device_agent.errors import OutstationError, PolicyRefused
from device_agent.protocol.messages import encode_value
from gateway.calls.call import CallRequest, Ended
from gateway.calls.jobs import JobEnded
from gateway.jobs.request import JobRequest
from gateway.orchestrate import results
from gateway.orchestrate.book import Kept, OrchestrationBook, Since
from gateway.orchestrate.bounds import fitting, flat
from gateway.orchestrate.deeds import CallDeed, Deed, JobDeed, WaitDeed, WordsDeed, deed
from gateway.orchestrate.judging import judged
from gateway.orchestrate.results import Answered, Bare, told
from gateway.orchestrate.waits import Waits
from gateway.orchestrate.words import Step
from gateway.store.writer import Statement, StoreFailed

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 1.0
BUSY_TRIES: Final = 60
NESTED: Final = ("state.orchestrate", "state.orch", "state.sls")
EVENT_BYTES: Final = 32 * 1024


class Within(Protocol):
    """The call that an orchestration is."""

    @property
    def jid(self) -> str:
        """Its jid."""

    async def give(self, request: JobRequest, beside: Callable[[str], Sequence[Statement]]) -> str:
        """Give a job; its jid, when it is on disk together with what ``beside`` says of it."""

    def returners(self, said: Sequence[str]) -> tuple[list[str], str]:
        """The returners of these that are here, and a sentence about the others; empty where there are none."""

    async def awaited(self, jid: str) -> JobEnded:
        """Wait for the last word on a job."""

    async def made(self, request: CallRequest, key: str) -> Ended:
        """Make a call, or find the one that was made under this name, and wait for it."""

    async def fire(self, tag: str, data: dict[str, Any], beside: Sequence[Statement] = ()) -> None:
        """An event, and what is committed with it."""


class Orchestration:
    """Takes steps. ``name`` is the same however often it is begun again; ``results`` are by number."""

    def __init__(
        self,
        *,
        name: str,
        device: str,
        within: Within,
        book: OrchestrationBook,
        waits: Waits,
        clock: Clock,
        kept: Sequence[Kept],
        test: bool,
        most_bytes: int,
    ) -> None:
        self._name = name
        self._device = device
        self._within = within
        self._book = book
        self._waits = waits
        self._clock = clock
        self._test = test
        self._kept = {each.step.number: each for each in kept}
        self._steps = [each.step for each in kept]
        self.results = {each.step.number: each.result for each in kept if each.result is not None}
        self._since = {each.step.number: each.since for each in kept if each.since is not None}
        self._done = {each.step.number: asyncio.Event() for each in kept}
        for number in self.results:
            self._done[number].set()
        self._bytes_left = most_bytes - sum(len(encode_value(result)) for result in self.results.values())

    async def run(self, seconds: float) -> str:
        """Take every step that has no result yet; why it was cut short, or nothing. Raises nothing of a step's."""
        limit = asyncio.timeout(seconds)
        try:
            async with limit, asyncio.TaskGroup() as group:
                for step in self._steps:
                    if self._failed_hard():
                        break
                    if step.number in self.results:
                        continue
                    if step.parallel:
                        group.create_task(self._take(step), name=f"orchestration {self._name} {step.number}")
                    else:
                        await self._take(step)
        except TimeoutError:
            if not limit.expired():
                raise
            return f"it was not done in {seconds:.0f} s"
        return ""

    def data(self) -> dict[str, Any]:
        """The results so far, as Salt tells them."""
        return {step.tag: self.results[step.number] for step in self._steps if step.number in self.results}

    async def cut(self, why: str) -> None:
        """Every step that has no result ends as one that was cut. What is under way on devices goes on there."""
        for step in self._steps:
            if step.number not in self.results:
                begun = step.number in self._since
                words = "It was under way: what it began goes on" if begun else "It was not run"
                comment = f"The orchestration was cut short: {why}. {words}."
                await self._end(step, Bare(result=False, comment=comment, ran=begun), self._clock.wall())

    def _failed_hard(self) -> bool:
        return any(
            step.failhard and step.number in self.results and self.results[step.number]["result"] is False
            for step in self._steps
        )

    async def _take(self, step: Step) -> None:
        for requisite in step.requisites:
            # One that is parallel, or waits for one that is, may still be under way.
            await self._done[requisite.step].wait()
        kept, begun = self._kept[step.number], self._clock.wall()
        if kept.begun is None:
            verdict, why = judged(step, self._steps, self.results)
            if verdict != "met":
                await self._end(step, Bare(result=verdict != "fail", comment=why, ran=False), begun)
                return
            await self._begin(step)
        else:
            begun = kept.begun
        bare = await self._do(step, deed(step, test=self._test), begun)
        await self._end(step, bare, begun)

    async def _begin(self, step: Step) -> None:
        """It is on disk that it is taken, and how far what happens had come."""

        async def commit() -> None:
            now = await self._book.since()
            await self._book.commit(self._book.beginning(self._name, step.number, now))
            self._since[step.number] = now

        await self._surely(commit)

    async def _end(self, step: Step, bare: Bare, begun: float) -> None:
        start = datetime.fromtimestamp(begun).astimezone().strftime("%H:%M:%S.%f")
        duration = max(0.0, self._clock.wall() - begun) * 1000.0
        result = told(step, bare, start_time=start, duration=duration)
        result["changes"] = flat(result["changes"])
        result = fitting(result, self._bytes_left)
        self._bytes_left -= len(encode_value(result))
        await self._surely(lambda: self._ended(step, result))
        self.results[step.number] = result
        self._done[step.number].set()

    async def _ended(self, step: Step, result: dict[str, Any]) -> None:
        """The end with its event in one commit."""
        tag = f"salt/job/{self._within.jid}/prog/{self._device}/{step.number}"
        data = {"ret": fitting(result, EVENT_BYTES), "len": len(self._steps)}
        told = {"data": data, "id": self._device, "jid": self._within.jid}
        await self._within.fire(tag, told, self._book.ending(self._name, step.number, result))

    async def _surely(self, commit: Callable[[], Awaitable[None]]) -> None:
        """Put on disk, however long the store takes to be well again."""
        while True:
            try:
                await commit()
            except StoreFailed as error:
                log.error("a step is not on disk, it is tried again orchestration=%s error=%s", self._name, error)
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                return

    # --- what steps do ---------------------------------------------------------------------------------------------

    async def _do(self, step: Step, what: Deed, begun: float) -> Bare:
        for tries in range(BUSY_TRIES):
            try:
                return await self._done_once(step, what, begun)
            except PolicyRefused as refused:
                if refused.error_id == "station.stopping":
                    # Whoever stops the station stops this; the next start goes on here.
                    await asyncio.get_running_loop().create_future()
                if refused.error_id not in ("jobs.busy", "calls.busy") or tries == BUSY_TRIES - 1:
                    return Bare(result=False, comment=str(refused))
                await asyncio.sleep(AGAIN_SECONDS)
            except StoreFailed as error:
                log.error("a step is tried again orchestration=%s step=%s error=%s", self._name, step.tag, error)
                await asyncio.sleep(AGAIN_SECONDS)
            except OutstationError as error:
                return Bare(result=False, comment=str(error))
        return Bare(result=False, comment="the store did not take it; outstation check")

    async def _done_once(self, step: Step, what: Deed, begun: float) -> Bare:
        match what:
            case JobDeed():
                return await self._job(step, what)
            case CallDeed():
                return await self._call(step, what)
            case WaitDeed():
                return await self._waits.seen(what, self._since_of(step), begun)
            case WordsDeed():
                return Bare(result=what.result, comment=what.comment, changes=what.changes)

    def _since_of(self, step: Step) -> Since:
        """What a step waits for may happen as soon as what it requires has begun."""
        numbers = [step.number, *(each.step for each in step.requisites)]
        known = [self._since[number] for number in numbers if number in self._since]
        return Since(min(each.event for each in known), min(each.outcome for each in known))

    async def _job(self, step: Step, what: JobDeed) -> Bare:
        ret, missing = self._within.returners(what.ret)
        if missing:
            what = replace(what, warnings=[*what.warnings, missing])
        request = JobRequest(
            tgt=what.tgt,
            tgt_type=what.tgt_type,
            fun=what.fun,
            arg=what.arg,
            kwarg=what.kwarg,
            ret=ret,
            run_limit=what.run_limit,
        )
        jid = self._kept[step.number].job
        if jid is None:
            jid = await self._within.give(request, lambda made: self._book.giving(self._name, step.number, made))
        ended = await self._within.awaited(jid)
        answers = [_answered(name, each) for name, each in ended.outcomes.items()]
        return results.of_job(what, ended.jid, answers)

    async def _call(self, step: Step, what: CallDeed) -> Bare:
        kwarg = dict(what.kwarg)
        if what.kind == "runner" and what.fun in NESTED:
            # So that it goes on where it was as well, though the call that it was is cut off with this one.
            kwarg["orchestration_jid"] = self._key(step)
        request = CallRequest(kind=what.kind, fun=what.fun, arg=what.arg, kwarg=kwarg)
        ended = await self._within.made(request, self._key(step))
        return results.of_call(what.kind, what.fun, ended.jid, ok=ended.ok, value=ended.value)

    def _key(self, step: Step) -> str:
        """The name of the call that a step makes: the same after a restart, and that of no other step."""
        return f"{self._name}.{step.number}"


def _answered(device: str, outcome: Mapping[str, Any]) -> Answered:
    return Answered(
        device=device,
        site=str(outcome["site"]),
        outcome=str(outcome["outcome"]),
        retcode=outcome["retcode"],
        value=outcome["value"],
        why=str(outcome["why"] or ""),
    )
