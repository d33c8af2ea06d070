"""gateway/schedule/schedule.py: the event of a missed run may find no room on the disk; the run does not wait."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from gateway.bus import Bus
from gateway.devices.policy import Policy
from gateway.metrics import Metrics
from gateway.schedule.book import ScheduleStore
from gateway.schedule.schedule import StationSchedule
from gateway.spool.queue import Spool
from gateway.store.writer import Statement
from tests.peers.clock import HandClock
from tests.peers.database import Store, opened_store
from tests.peers.waiting import until

DAY = 86_400.0
JID = "20261121031500000001"


class Site:
    """A store, a clock, and the jobs that a schedule on them gave."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = HandClock()
        self.metrics = Metrics(self.clock)
        self.jobs: list[str] = []
        self.scarce = False

    async def submit(
        self, job: Any, _user: str, _operator: object, *, beside: Callable[[str], Sequence[Statement]]
    ) -> str:
        await self.store.writer.commit(beside(JID))
        self.jobs.append(job.why)
        return JID

    @asynccontextmanager
    async def schedule(self) -> AsyncIterator[None]:
        store = self.store
        spool = Spool(store.writer, store.reader, store.epoch, enabled=True)
        lookup = SimpleNamespace(functions=None, submit=self.submit, get=lambda _: None, under_way=lambda _: None)
        entry = {"function": "test.ping", "target": "*", "when": "04:00", "run_missed": True}
        async with StationSchedule(
            site="lisbon",
            schedule={"rare": entry},
            timezone="UTC",
            book=ScheduleStore(writer=store.writer, reader=store.reader, clock=self.clock),
            acceptance=cast("Any", lookup),
            open_jobs=cast("Any", lookup),
            calls=cast("Any", lookup),
            policy=lambda: Policy({}, {}),
            bus=Bus(
                store.writer, store.reader, spool, self.metrics, self.clock, "lisbon", is_scarce=lambda: self.scarce
            ),
            metrics=self.metrics,
            clock=self.clock,
            doubt=cast("Any", SimpleNamespace(past=str, stopped=str)),
        ) as part:
            assert "rare" in part.turns.states
            yield


async def test_a_missed_run_is_made_though_the_disk_has_no_room_for_what_is_told_of_it(tmp_path: Path) -> None:
    async with opened_store(tmp_path) as store:
        site = Site(store)
        async with site.schedule():
            site.clock.move(2710.0)
            await until(lambda: site.jobs == ["schedule rare"])
        site.clock.move(3 * DAY + 3600.0)
        site.scarce = True
        async with site.schedule():
            await until(lambda: len(site.jobs) == 2)
        assert site.jobs[1].startswith("schedule rare late ")
        assert [row[0] for row in store.look("SELECT state FROM schedule_runs ORDER BY number")] == ["issued", "issued"]
        assert "outstation_events_lost_store_total 1" in site.metrics.text({})
