"""Schedules of agents and stations in zones whose clocks change; the clock of these tests is moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from device_agent.local_host import LocalHost
from device_agent.own import Own
from device_agent.schedule import runner
from device_agent.schedule.runner import AgentSchedule
from device_agent.schedule.turns import Turns
from device_agent.schedule.zones import zone_of
from gateway.schedule import schedule as station_schedule
from tests.peers.clock import HandClock
from tests.peers.reacting import reacting
from tests.peers.waiting import until

pytestmark = pytest.mark.timeout(240)

STEP = 60.0
"""Each due time here is at a full minute, so that each is met exactly."""

RHYTHMS: dict[str, dict[str, Any]] = {
    "halves": {"cron": "*/30 * * * *"},
    "quarter": {"cron": "15 2 * * *"},
    "wanted": {"when": "02:15"},
    "double": {"cron": "45 1 * * *"},
    "twice": {"when": "1:45am"},
    "held": {"cron": "*/10 * * * *", "range": {"start": "02:40", "end": "02:59"}},
}
CHANGES = [
    # 02:00 becomes 03:00.
    (
        "America/New_York",
        "2026-03-08 01:20",
        2.5,
        {
            "halves": "01:30-0500 03:00-0400 03:30-0400 04:00-0400 04:30-0400",
            "quarter": "03:00-0400",
            "wanted": "03:15-0400",
            "double": "01:45-0500",
            "twice": "01:45-0500",
        },
    ),
    # 02:00 becomes 01:00.
    (
        "America/New_York",
        "2026-11-01 01:20",
        2.8,
        {
            "halves": "01:30-0400 01:00-0500 01:30-0500 02:00-0500 02:30-0500 03:00-0500",
            "quarter": "02:15-0500",
            "wanted": "02:15-0500",
            "double": "01:45-0400",
            "twice": "01:45-0400",
            "held": "02:40-0500 02:50-0500",
        },
    ),
    # 02:00 becomes 02:30: clocks move by half an hour there.
    (
        "Australia/Lord_Howe",
        "2026-10-04 01:20",
        1.7,
        {
            "halves": "01:30+1030 02:30+1100 03:00+1100 03:30+1100",
            "quarter": "02:30+1100",
            "wanted": "02:45+1100",
            "double": "01:45+1030",
            "twice": "01:45+1030",
            "held": "02:40+1100 02:50+1100",
        },
    ),
    # 02:00 becomes 01:30.
    (
        "Australia/Lord_Howe",
        "2026-04-05 01:20",
        2.3,
        {
            "halves": "01:30+1100 01:30+1030 02:00+1030 02:30+1030 03:00+1030",
            "quarter": "02:15+1030",
            "wanted": "02:15+1030",
            "double": "01:45+1100",
            "twice": "01:45+1100",
            "held": "02:40+1030 02:50+1030",
        },
    ),
]


class Ticks:
    """Moves a clock in steps, each of which a schedule has seen and done before the next one."""

    def __init__(self, clock: HandClock, turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
        self._clock = clock
        self._begun = 0
        plain = turns.tick

        def counted(wall: float, monotonic: float) -> Any:
            self._begun += 1
            return plain(wall, monotonic)

        monkeypatch.setattr(turns, "tick", counted)

    async def pass_by(self, hours: float, idle: Callable[[], bool]) -> None:
        """So much time, of which the schedule misses nothing."""
        for _ in range(round(hours * 3600 / STEP)):
            self._clock.move(STEP)
            # The first may have looked at the clock before; with the next one the second is over.
            seen = self._begun
            await until(lambda: self._begun >= seen + 3 and idle(), seconds=60, what="the step is done")  # noqa: B023 - called at once


def written(**more: Any) -> dict[str, Any]:
    return {name: {"function": "test.ping", **rhythm, **more} for name, rhythm in RHYTHMS.items()}


def at(zone: str, text: str) -> HandClock:
    return HandClock(wall=datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp())


def shown(walls: list[float], zone: str) -> str:
    return " ".join(datetime.fromtimestamp(wall, ZoneInfo(zone)).strftime("%H:%M%z") for wall in walls)


@pytest.mark.parametrize(("zone", "start", "hours", "wanted"), CHANGES)
async def test_an_agent_runs_by_the_clocks_of_its_zone_also_while_they_change(
    zone: str, start: str, hours: float, wanted: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "TICK_SECONDS", 0.0)
    clock = at(zone, start)
    ran: dict[str, list[float]] = {}

    class Identity:
        did = "did"
        name = "cam-7"

    class Heard:
        async def fire(self, device: str, tag: str, data: dict[str, Any], *, local: bool = False) -> None:
            ran.setdefault(data["schedule"], []).append(clock.wall())
            # Salt's word for a time has no offset: it is the one that the clocks of the zone show.
            assert data["due"] == datetime.fromtimestamp(clock.wall(), ZoneInfo(zone)).strftime("%Y-%m-%dT%H:%M:%S")

    schedule = AgentSchedule(tmp_path / "schedule", written(), zone_of(zone), clock)
    await schedule.open()
    async with asyncio.TaskGroup() as group:

        def spawn(run: Coroutine[Any, Any, None]) -> None:
            group.create_task(run)

        own = Own(schedule=schedule, events=Heard())
        schedule.begin(Identity(), own, lambda: nullcontext(LocalHost({})), spawn, lambda *_: [])
        ticks = Ticks(clock, schedule._turns, monkeypatch)
        working = group.create_task(schedule._work())
        await ticks.pass_by(hours, lambda: not schedule._running.total())
        working.cancel()
    assert {name: shown(walls, zone) for name, walls in ran.items()} == wanted


@pytest.mark.parametrize(("zone", "start", "hours", "wanted"), CHANGES)
async def test_a_station_runs_by_the_clocks_of_its_zone_also_while_they_change(
    zone: str, start: str, hours: float, wanted: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(station_schedule, "TICK_SECONDS", 0.0)
    clock = at(zone, start)
    entries = written(target="cam-1", maxrunning=64)
    async with reacting(tmp_path, [], clock=clock, timezone=zone, schedule=entries) as station:
        schedule = station.kept.schedule
        ticks = Ticks(clock, schedule.turns, monkeypatch)
        async with schedule:
            await ticks.pass_by(hours, lambda: not schedule._making.total())
            found = {name: (await schedule.book.of_entry(name, 50))[::-1] for name in RHYTHMS}
        assert {run.state for runs in found.values() for run in runs} == {"issued"}
        assert {name: shown([run.due for run in runs], zone) for name, runs in found.items() if runs} == wanted
        assert {name: shown([run.at for run in runs], zone) for name, runs in found.items() if runs} == wanted
        assert len(await station.jobs()) == sum(len(runs) for runs in found.values())
