"""The registry: which devices are known, which places they have, and where they are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.protocol.links import Parcel
from device_agent.protocol.messages import Beat, Gone, Hello, Manifest, encode
from device_agent.protocol.outcomes import State
from gateway.devices import registry as registry_module
from gateway.devices.device import Device
from gateway.jobs.accept import JobRequest
from gateway.rooms import Rooms
from gateway.store.writer import StoreFailed
from tests.peers.clock import HandClock
from tests.peers.database import a_job, look, opened_rooms, spooled
from tests.peers.waiting import until

FIRST, SECOND = "1" * 16, "2" * 16


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def rooms(tmp_path: Path, clock: HandClock) -> AsyncIterator[Rooms]:
    async with opened_rooms(tmp_path, clock=clock) as opened:
        yield opened


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loops of the registry turn often; what they decide is by the clock of the test."""
    monkeypatch.setattr(registry_module, "SWEEP_SECONDS", 0.005)
    monkeypatch.setattr(registry_module, "FLUSH_SECONDS", 0.005)


def hello(session: str = FIRST, **grains: Any) -> Hello:
    return Hello(session=session, agent="0.1.0", grains=grains)


def here(rooms: Rooms, device: str, session: str = FIRST, **grains: Any) -> int:
    """A device says hello; its place."""
    return rooms.registry.hello("mqtt", device, hello(session, **grains))


def known(rooms: Rooms, device: str = "cam") -> Device:
    found = rooms.registry.own_device(device)
    assert found is not None
    return found


def where(rooms: Rooms, device: str = "cam") -> str:
    found = known(rooms, device)
    assert not (found.present and found.unheard)
    return "present" if found.present else "unheard" if found.unheard else "absent"


# --- places -----------------------------------------------------------------------------------------------------------


async def test_each_device_has_a_place_of_its_own_for_ever(tmp_path: Path) -> None:
    async with opened_rooms(tmp_path) as rooms:
        places = {name: here(rooms, name) for name in ("a", "b", "c")}
        assert sorted(places.values()) == [0, 1, 2]
        assert here(rooms, "b", SECOND) == places["b"]
    async with opened_rooms(tmp_path) as rooms:
        assert here(rooms, "d") == 3
        assert {name: here(rooms, name) for name in ("c", "a", "b")} == places


async def test_a_place_given_before_a_sudden_end_is_not_given_to_two(tmp_path: Path) -> None:
    async with opened_rooms(tmp_path) as rooms:
        here(rooms, "told")
        await rooms.registry.flush()
        # This one was never written, and so never told.
        here(rooms, "lost")
        rooms.registry._dirty.clear()
    async with opened_rooms(tmp_path) as rooms:
        assert here(rooms, "another") == 1
        assert here(rooms, "told") == 0


async def test_a_device_is_told_its_place_only_when_it_is_on_disk(rooms: Rooms) -> None:
    here(rooms, "cam")
    trigger = "CREATE TRIGGER full BEFORE INSERT ON devices BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
    await rooms.writer.commit([(trigger, [()])])
    with pytest.raises(StoreFailed):
        await rooms.registry.flush()
    await rooms.writer.commit([("DROP TRIGGER full", [()])])
    # Nothing was forgotten by the failure.
    await rooms.registry.flush()
    assert look(rooms.writer._path, "SELECT id, place FROM devices") == [("cam", 0)]


async def test_no_more_devices_are_known_than_a_station_may_have(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DEVICES_PER_STATION", 50)
    for number in range(50):
        here(rooms, f"cam-{number}")
    with pytest.raises(Refused) as refusal:
        here(rooms, "one-too-many")
    assert refusal.value.reason == "registry_full"
    # Those that are known still come and go.
    assert here(rooms, "cam-7", SECOND) == 7
    assert rooms.registry.own_device("one-too-many") is None


def test_twenty_thousand_devices_are_what_a_station_may_have() -> None:
    assert limits.DEVICES_PER_STATION == 20_000


# --- presence ---------------------------------------------------------------------------------------------------------


async def test_a_last_will_makes_a_device_absent(rooms: Rooms) -> None:
    here(rooms, "cam")
    assert where(rooms) == "present"
    rooms.registry.gone("cam", Gone(FIRST))
    assert where(rooms) == "absent"


async def test_the_last_will_of_an_earlier_connection_says_nothing(rooms: Rooms) -> None:
    here(rooms, "cam", FIRST)
    here(rooms, "cam", SECOND)
    rooms.registry.gone("cam", Gone(FIRST))
    assert where(rooms) == "present"
    rooms.registry.gone("cam", Gone(SECOND))
    assert where(rooms) == "absent"


async def test_a_last_will_of_nobody_is_nothing(rooms: Rooms) -> None:
    rooms.registry.gone("never-seen", Gone(FIRST))
    assert rooms.registry.own_device("never-seen") is None


async def test_a_beat_of_an_unknown_session_asks_for_a_hello(rooms: Rooms) -> None:
    assert not rooms.registry.beat("cam", Beat(FIRST))
    here(rooms, "cam", FIRST)
    assert rooms.registry.beat("cam", Beat(FIRST))
    assert not rooms.registry.beat("cam", Beat(SECOND))


async def test_a_beat_brings_back_a_device_that_was_taken_for_gone(rooms: Rooms) -> None:
    moved: list[str] = []
    rooms.registry.on_move(moved.append)
    here(rooms, "cam")
    rooms.registry.gone("cam", Gone(FIRST))
    moved.clear()
    assert rooms.registry.beat("cam", Beat(FIRST))
    assert where(rooms) == "present"
    assert moved == ["cam"]


@pytest.mark.usefixtures("quick")
async def test_a_device_that_says_nothing_is_gone_after_two_and_a_half_beats(tmp_path: Path, clock: HandClock) -> None:
    async with opened_rooms(tmp_path, clock=clock) as rooms:
        here(rooms, "silent")
        here(rooms, "talking")
        clock.move(limits.BEAT_SECONDS * limits.SILENT_BEATS - 1)
        rooms.registry.heard("talking")
        clock.move(2)
        await until(lambda: where(rooms, "silent") == "absent", what="the silence is noticed")
        assert where(rooms, "talking") == "present"


async def test_those_that_leave_are_told_to_whoever_waits_for_them(rooms: Rooms) -> None:
    moved: list[str] = []
    rooms.registry.on_move(moved.append)
    here(rooms, "cam")
    rooms.registry.gone("cam", Gone(FIRST))
    assert moved == ["cam"]


@pytest.mark.usefixtures("quick")
async def test_after_a_restart_a_device_is_expected_back_for_a_window(tmp_path: Path, clock: HandClock) -> None:
    async with opened_rooms(tmp_path, clock=clock) as rooms:
        for name in ("back", "gone-before", "never-back"):
            here(rooms, name)
        rooms.registry.gone("gone-before", Gone(FIRST))
    async with opened_rooms(tmp_path, clock=clock) as rooms:
        assert [where(rooms, name) for name in ("back", "gone-before", "never-back")] == [
            "unheard",
            "absent",
            "unheard",
        ]
        here(rooms, "back", SECOND)
        moved: list[str] = []
        rooms.registry.on_move(moved.append)
        clock.move(limits.RETURN_WINDOW_SECONDS - 1)
        assert where(rooms, "never-back") == "unheard"
        clock.move(2)
        await until(lambda: where(rooms, "never-back") == "absent", what="the end of the window")
        assert moved == ["never-back"]
        assert where(rooms, "back") == "present"
    async with opened_rooms(tmp_path, clock=clock) as rooms:
        assert where(rooms, "never-back") == "absent"


async def test_two_restarts_in_a_row_do_not_forget_who_was_here(tmp_path: Path, clock: HandClock) -> None:
    async with opened_rooms(tmp_path, clock=clock) as rooms:
        here(rooms, "cam")
    for _ in range(2):
        async with opened_rooms(tmp_path, clock=clock) as rooms:
            assert where(rooms) == "unheard"


@pytest.mark.usefixtures("quick")
async def test_while_the_link_is_away_nobody_is_known_to_be_here(tmp_path: Path, clock: HandClock) -> None:
    async with opened_rooms(tmp_path, clock=clock) as rooms:
        here(rooms, "cam")
        here(rooms, "left")
        rooms.registry.gone("left", Gone(FIRST))
        rooms.registry.unheard("another link")
        assert where(rooms) == "present"
        rooms.registry.unheard("mqtt")
        assert [where(rooms), where(rooms, "left")] == ["unheard", "absent"]
        assert rooms.registry.beat("cam", Beat(FIRST))
        assert where(rooms) == "present"
        rooms.registry.unheard("mqtt")
        clock.move(limits.RETURN_WINDOW_SECONDS + 1)
        await until(lambda: where(rooms) == "absent", what="the end of the window")


@pytest.mark.usefixtures("quick")
async def test_coming_and_going_are_events(tmp_path: Path, clock: HandClock) -> None:
    async with opened_rooms(tmp_path, clock=clock) as rooms:
        with rooms.bus.subscribe("salt/*") as heard:
            here(rooms, "a")
            here(rooms, "b")
            await until(lambda: heard.queue.qsize() == 3, what="two starts and a change")
            events = [heard.queue.get_nowait() for _ in range(3)]
            assert [event.tag for event in events] == [
                "salt/minion/a/start",
                "salt/minion/b/start",
                "salt/presence/change",
            ]
            assert events[-1].data == {"new": ["a", "b"], "lost": []}
            rooms.registry.gone("a", Gone(FIRST))
            await until(lambda: heard.queue.qsize() == 1, what="the loss")
            assert heard.queue.get_nowait().data == {"new": [], "lost": ["a"]}


@pytest.mark.usefixtures("quick")
async def test_what_changed_in_a_device_is_an_event_also_after_a_restart(tmp_path: Path, clock: HandClock) -> None:
    async with opened_rooms(tmp_path, clock=clock) as rooms:
        here(rooms, "cam", os="old", uid=0)
    async with opened_rooms(tmp_path, clock=clock) as rooms:
        with rooms.bus.subscribe("outstation/*") as heard:
            here(rooms, "cam", os="old", uid=1000)  # Asked as another user: no change of the device.
            here(rooms, "cam", os="new", uid=1000, floor=3)
            here(rooms, "other", os="new")  # Its first words change nothing.
            event = await heard.queue.get()
            assert event.tag == "outstation/device/cam/grains"
            assert event.data == {"id": "cam", "changes": {"floor": {"new": 3}, "os": {"old": "old", "new": "new"}}}
            big = {f"g{number}": "x" * 900 for number in range(30)}
            here(rooms, "cam", os="new", **big)
            event = await heard.queue.get()
            assert event.data["changes"]["g7"] == {"new": "x" * 900}
            here(rooms, "cam", os="new", **dict.fromkeys(big, "y" * 900))
            event = await heard.queue.get()
            assert event.data["changes"].keys() == big.keys()
            assert heard.queue.empty()


async def test_what_a_device_is_now_replaces_what_it_was(tmp_path: Path, clock: HandClock) -> None:
    async with opened_rooms(tmp_path, clock=clock) as rooms:
        here(rooms, "cam", os="old")
        seen = clock.wall()
        clock.move(100)
        here(rooms, "cam", SECOND, os="new", floor=[1, {"a": None}])
    async with opened_rooms(tmp_path, clock=clock) as rooms:
        device = known(rooms)
        assert device.grains == {"os": "new", "floor": [1, {"a": None}]}
        assert (device.first_seen, device.last_seen) == (seen, seen + 100)


# --- told to the masters ----------------------------------------------------------------------------------------------


async def test_rows_go_up_in_the_order_of_their_changes_page_by_page(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REGISTRY_PAGE", 3)
    for number in range(7):
        here(rooms, f"cam-{number}")
    await rooms.registry.flush()
    pages = []
    revision = 0
    while page := await rooms.registry.records_after(revision):
        pages.append([record.id for record in page])
        assert [record.revision for record in page] == sorted(record.revision for record in page)
        revision = page[-1].revision
    assert [len(page) for page in pages] == [3, 3, 1]
    here(rooms, "cam-0", SECOND, new=True)
    await rooms.registry.flush()
    assert [record.id for record in await rooms.registry.records_after(revision)] == ["cam-0"]


async def test_a_page_of_the_largest_grains_fits_a_frame(rooms: Rooms) -> None:
    from upstream import frames

    text = "x" * (limits.GRAINS_BYTES - 50)
    for number in range(limits.UPLINK_FRAME_BYTES // limits.GRAINS_BYTES + 20):
        here(rooms, f"cam-{number:04d}", text=text)
    await rooms.registry.flush()
    revision, told = 0, 0
    while page := await rooms.registry.records_after(revision):
        frame = frames.encode(frames.DeviceRecords(rooms.spool.epoch, page))
        assert len(frame) <= limits.UPLINK_FRAME_BYTES
        assert isinstance(frames.decode_from_site(frame), frames.DeviceRecords)
        revision, told = page[-1].revision, told + len(page)
    assert told == limits.UPLINK_FRAME_BYTES // limits.GRAINS_BYTES + 20


# --- jobs and the registry --------------------------------------------------------------------------------------------


async def test_a_page_of_a_manifest_is_what_the_registry_said(tmp_path: Path, clock: HandClock) -> None:
    async with opened_rooms(tmp_path, clock=clock, masters=True) as rooms:
        here(rooms, "b", os="Debian")
        here(rooms, "a", os="Debian")
        here(rooms, "c", os="other")
        await rooms.registry.flush()
        job = a_job(tgt="os:Debian", tgt_type="grain")
        await rooms.acceptance.accept_from_above(Parcel(encode(job), ()), 300.0, "tcp://above:1")
        (page,) = [item for item in await spooled(rooms) if isinstance(item, Manifest)]
        assert (page.ids, page.final, page.revision) == (["a", "b"], True, rooms.registry.revision)


async def test_a_device_that_goes_is_judged_at_once_for_what_waits_for_it(tmp_path: Path, clock: HandClock) -> None:
    async with opened_rooms(tmp_path, clock=clock) as rooms:
        here(rooms, "cam")
        jid = await rooms.acceptance.submit(JobRequest(tgt="*", fun="test.ping"), "ops")
        opened = rooms.open_jobs.get(jid)
        assert opened is not None
        await rooms.delivery._look_at(opened, clock.monotonic())
        assert opened.waiting["cam"].state is State.DELIVERED
        assert opened.look_at > clock.monotonic()
        rooms.registry.gone("cam", Gone(FIRST))
        assert opened.look_at <= clock.monotonic()
