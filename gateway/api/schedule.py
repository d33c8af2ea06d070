"""The schedule in the API: its entries, their last and next runs, and running or switching one."""

from __future__ import annotations

from typing import Any

from device_agent.schedule.entries import Entry
from device_agent.schedule.zones import shown
from gateway.api.operation import Answer, Asked, Operation, whole
from gateway.schedule.book import RUNS_KEPT, Ran
from gateway.schedule.schedule import StationSchedule

RUNS: int = 10


class ScheduleApi:
    """The operations."""

    def __init__(self, schedule: StationSchedule) -> None:
        self._schedule = schedule

    def operations(self) -> list[Operation]:
        """The table."""
        return [
            Operation("GET", "/schedule", "What this station runs by itself, and when next", self._list),
            Operation(
                "GET",
                "/schedule/{name}",
                "An entry of the schedule with its newest runs",
                self._show,
                query={"runs": f"how many runs, at most {RUNS_KEPT}; default: {RUNS}"},
            ),
            Operation(
                "POST", "/schedule/{name}/run", "Run an entry now, beside its times", self._run, action="schedule.run"
            ),
            Operation("POST", "/schedule/{name}/enable", "Switch an entry on", self._enable, action="schedule.enable"),
            Operation(
                "POST", "/schedule/{name}/disable", "Switch an entry off", self._disable, action="schedule.disable"
            ),
            Operation(
                "POST", "/schedule/enable", "Switch the schedule on as a whole", self._enable, action="schedule.enable"
            ),
            Operation(
                "POST",
                "/schedule/disable",
                "Switch the schedule off as a whole",
                self._disable,
                action="schedule.disable",
            ),
        ]

    async def _list(self, _: Asked) -> Answer:
        schedule = self._schedule
        newest = await schedule.book.newest()
        found = [await self._view(entry, newest.get(name)) for name, entry in schedule.turns.entries.items()]
        return {"enabled": schedule.enabled, "timezone": str(schedule.zone), "entries": found}

    async def _show(self, asked: Asked) -> Answer:
        entry = self._schedule.entry(asked.path["name"])
        runs = await self._schedule.book.of_entry(entry.name, whole(asked, "runs", RUNS, RUNS_KEPT))
        view = await self._view(entry, runs[0] if runs else None)
        return {**view, "runs": [await self._run_view(each) for each in runs]}

    async def _run(self, asked: Asked) -> Answer:
        await self._schedule.run_now(asked.path["name"])
        return await self._show(asked)

    async def _enable(self, asked: Asked) -> Answer:
        return await self._switched(asked, on=True)

    async def _disable(self, asked: Asked) -> Answer:
        return await self._switched(asked, on=False)

    async def _switched(self, asked: Asked, *, on: bool) -> Answer:
        name = asked.path.get("name")
        await self._schedule.switch(name, on=on)
        return await (self._list(asked) if name is None else self._show(asked))

    async def _view(self, entry: Entry, newest: Ran | None) -> dict[str, Any]:
        schedule, state = self._schedule, self._schedule.turns.states[entry.name]
        runs = schedule.enabled and entry.enabled
        fire = schedule.turns.next_fire(entry.name) if runs else None
        return {
            "name": entry.name,
            "function": entry.function,
            "makes": schedule.says(entry),
            "target": entry.target,
            "target_type": entry.target_type,
            "enabled": entry.enabled,
            "next": fire,
            "next_local": None if fire is None else shown(fire, schedule.zone),
            "last_run": state.last_run or None,
            "missed": state.missed,
            "skip_reason": state.skip_reason,
            "skipped": state.skipped or None,
            "last": None if newest is None else await self._run_view(newest),
        }

    async def _run_view(self, ran: Ran) -> dict[str, Any]:
        return {
            "due": ran.due,
            "at": ran.at,
            "kind": ran.kind,
            "late_seconds": ran.late,
            "state": ran.state,
            "jid": ran.jid,
            "why": ran.why,
            "ends": {} if ran.jid is None else await self._schedule.book.ends(ran.jid),
            "job": "" if ran.jid is None else await self._schedule.book.progress(ran.jid),
        }
