"""A station with orchestration files, and devices that answer what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from device_agent.protocol.messages import Hello, Job, Return
from gateway.calls.call import CallRequest, Ended
from gateway.devices.policy import Operator, Role
from tests.peers.clock import HandClock
from tests.peers.reacting import Reacting, reacting, written

ADA = Operator("ada", frozenset[Role]({"admin"}))
SECONDS = 60.0
Answers = Mapping[str, tuple[str, Any]]
"""By function: the outcome and the value. What is not there gets no answer."""

PINGED: Answers = {"test.ping": ("ok", True), "test.echo": ("ok", "said")}


class Orchestrating:
    """What is asked of the station."""

    def __init__(self, station: Reacting) -> None:
        self.station = station

    @property
    def clock(self) -> HandClock:
        """The station's."""
        clock = self.station.rooms.acceptance._clock
        assert isinstance(clock, HandClock)
        return clock

    async def begin(
        self, mods: Any, *, timeout: float | None = None, fun: str = "state.orchestrate", **named: Any
    ) -> str:
        """Call the runner; the jid of the call."""
        request = CallRequest(fun=fun, kwarg={"mods": mods, **named}, timeout=timeout)
        return await self.station.kept.own.calls.submit(request, ADA)

    async def end(self, jid: str) -> Ended:
        """The end of a call."""
        async with asyncio.timeout(SECONDS):
            return await self.station.kept.own.calls.wait(jid)

    async def ran(self, mods: Any, **named: Any) -> tuple[Ended, dict[str, Any]]:
        """Run an orchestration: its end, and its steps by id; errors stand under nothing."""
        ended = await self.end(await self.begin(mods, **named))
        return ended, steps_of(ended)

    async def steps(self) -> dict[str, str]:
        """Every step of every orchestration with its state, by orchestration and number."""
        rows = await self.station.rooms.reader.rows("SELECT name, number, state FROM orchestration_steps")
        return {f"{name}.{number}": state for name, number, state in rows}

    async def jobs(self) -> list[Job]:
        """All there are."""
        return await self.station.jobs()


def steps_of(ended: Ended) -> dict[str, Any]:
    """The steps of a result by their ids."""
    if not isinstance(ended.value, dict):
        return {"": [ended.value]}
    data = ended.value["data"]["lisbon_master"]
    return {"": data} if isinstance(data, list) else {each["__id__"]: each for each in data.values()}


@asynccontextmanager
async def orchestrating(
    folder: Path,
    files: Mapping[str, str],
    answers: Answers = PINGED,
    *,
    reactor: Any = (),
    devices: tuple[str, ...] = ("cam-1",),
    **settings: Any,
) -> AsyncIterator[Orchestrating]:
    """For as long as the block lasts; in the same folder it goes on where it was."""
    for env in ("base", "dev"):
        (folder / env).mkdir(exist_ok=True)
    written(folder / "base", files)
    roots = {"base": [str(folder / "base")], "dev": [str(folder / "dev")]}
    async with reacting(folder, list(reactor), file_roots=roots, **settings) as station:
        for number, device in enumerate(devices):
            station.rooms.registry.hello("mqtt", device, Hello(f"{number:016d}", "0", {}))
        # A kill does not wait for what is under way either.
        station.kept.own.calls.drain_seconds = 0.05  # type: ignore[misc]  # of this one alone
        async with asyncio.TaskGroup() as group:
            answering = group.create_task(_answer(station, answers))
            yield Orchestrating(station)
            answering.cancel()


async def _answer(station: Reacting, answers: Answers) -> None:
    """Each open job on each of the devices that it waits for."""
    with station.rooms.bus.subscribe("salt/job/*/new") as news:
        while True:
            for opened in list(station.rooms.open_jobs):
                if opened.job.fun in answers:
                    outcome, value = answers[opened.job.fun]
                    for device in list(opened.waiting):
                        message = _return(opened.job, outcome, value)
                        await station.rooms.collection.returned(device, message, 100)
            await news.queue.get()


def _return(job: Job, outcome: str, value: Any) -> Return:
    return Return(
        jid=job.jid,
        fun=job.fun,
        outcome=outcome,  # type: ignore[arg-type]  # an outcome of a device, as a test says it
        value=value,
        retcode=0 if outcome == "ok" else 1,
        why=str(value) if outcome == "refused" else "",
        executions=1,
    )
