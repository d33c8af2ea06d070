"""Who is here is told from time to time, and a start under Salt's older tag, where the settings say so."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from device_agent.protocol.messages import Event, Gone, Hello
from gateway.devices.presence_events import presence_events
from gateway.devices.presence_present import PresencePresent, present_events
from tests.peers.database import opened_rooms, spooled
from tests.peers.waiting import until

SESSION = "1" * 16


async def test_who_is_here_is_told_and_who_has_gone_is_not(tmp_path: Path) -> None:
    async with opened_rooms(tmp_path, masters=True) as rooms:
        for name in ("cam-2", "cam-1", "cam-3"):
            rooms.registry.hello("mqtt", name, Hello(SESSION, "0", {}))
        rooms.registry.gone("cam-3", Gone(SESSION))
        telling = PresencePresent(registry=rooms.registry, bus=rooms.bus, enabled=True, interval=0.05)
        with rooms.bus.subscribe("salt/presence/present") as heard:
            async with telling:
                assert (await heard.queue.get()).data == {"present": ["cam-1", "cam-2"]}
                await heard.queue.get()
        tags = {item.tag for item in await spooled(rooms) if isinstance(item, Event)}
        assert "salt/minion/cam-1/start" in tags
        assert "salt/presence/present" not in tags


async def test_it_is_silent_where_it_is_not_wanted(tmp_path: Path) -> None:
    async with opened_rooms(tmp_path) as rooms:
        quiet = PresencePresent(registry=rooms.registry, bus=rooms.bus, enabled=False, interval=0.05)
        async with quiet, PresencePresent(registry=rooms.registry, bus=rooms.bus, enabled=True, interval=0.05):
            assert not quiet._tasks
            await until(lambda: rooms.metrics.counters["events"] >= 2, what="the other has told twice")


async def test_more_than_one_event_holds_come_in_pages(tmp_path: Path) -> None:
    async with opened_rooms(tmp_path) as rooms:
        names = [f"cam-{number:05}" for number in range(4500)]
        told = [event.data for event in present_events(rooms.bus, names)]
        assert [len(data["present"]) for data in told] == [2000, 2000, 500]
        assert [(data["page"], data["pages"]) for data in told] == [(1, 3), (2, 3), (3, 3)]
        assert [name for data in told for name in data["present"]] == names
        assert [event.data for event in present_events(rooms.bus, [])] == [{"present": []}]


@pytest.mark.parametrize(
    ("legacy", "tags"), [(True, ["minion_start", "salt/minion/cam-1/start"]), (False, ["salt/minion/cam-1/start"])]
)
async def test_a_start_is_told_under_the_older_tag_unless_it_is_not_wanted(
    legacy: bool, tags: list[str], tmp_path: Path
) -> None:
    async with opened_rooms(tmp_path) as rooms:
        rooms.registry.events_of = partial(presence_events, legacy_starts=legacy)
        with rooms.bus.subscribe("*") as heard:
            rooms.registry.hello("mqtt", "cam-1", Hello(SESSION, "0", {}))
            events = [await heard.queue.get()]
            while events[-1].tag != "salt/presence/change":
                events.append(await heard.queue.get())
        assert [event.tag for event in events[:-1]] == tags
        assert [event.data["tag"] for event in events[:-1]] == tags
        assert len({str({**event.data, "tag": ""}) for event in events[:-1]}) == 1
