"""gateway/site_event.py: each event of a site has an origin, the same at every master, whatever the site claims."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from device_agent.protocol.messages import encode
from gateway.api.event_stream import shown
from gateway.rooms import Rooms
from gateway.site_event import SiteEvent, origin_of
from tests.peers.central import EPOCH, OTHER_EPOCH, a_master, an_event
from tests.peers.database import encoded
from tests.peers.relayed import LEAF, RELAY, relayed_stations


async def origins(rooms: Rooms) -> list[str]:
    return [shown(event)["origin"] for event in await rooms.bus.history("*test/*", 100)]


async def test_two_masters_give_an_event_the_same_origin(tmp_path: Path) -> None:
    found = []
    for name in ("north", "south"):
        async with a_master(tmp_path / name, "lisbon", name=name) as rooms:
            with rooms.bus.subscribe("test/*") as reader:
                await rooms.inbox.commit("lisbon", EPOCH, "events", encoded(an_event(1), an_event(2), first=7))
                await rooms.inbox.commit("lisbon", EPOCH, "urgent", encoded(an_event(3), first=7))
                await rooms.inbox.commit("lisbon", OTHER_EPOCH, "events", encoded(an_event(4), first=7))
            live = [origin_of(reader.queue.get_nowait()) for _ in range(reader.queue.qsize())]
            page = await rooms.bus.kept_after(0, "test/*")
            assert live == await origins(rooms) == [origin_of(event) for _, event in page.events]
        async with a_master(tmp_path / name, "lisbon", name=name) as rooms:
            assert await origins(rooms) == live, "after a restart"
        found.append(live)
    assert found[0] == found[1]
    assert found[0] == [
        f"lisbon/{EPOCH}/events/7",
        f"lisbon/{EPOCH}/events/8",
        f"lisbon/{EPOCH}/urgent/7",
        f"lisbon/{OTHER_EPOCH}/events/7",
    ]


async def test_an_origin_that_a_site_claims_counts_for_nothing(tmp_path: Path) -> None:
    async with a_master(tmp_path, "lisbon") as rooms:
        forged = encode(SiteEvent.of(an_event(1), f"madrid/{EPOCH}/events/1"))
        assert b"madrid" in forged
        await rooms.inbox.commit("lisbon", EPOCH, "events", [(7, forged)])
        assert await origins(rooms) == [f"lisbon/{EPOCH}/events/7"]


async def test_an_event_of_the_station_itself_has_no_origin(tmp_path: Path) -> None:
    async with a_master(tmp_path, "lisbon") as rooms:
        await rooms.bus.fire([rooms.bus.event("test/1", {})])
        (event,) = await rooms.bus.history("test/*", 1)
        assert (origin_of(event), "origin" in shown(event)) == ("", False)


async def test_behind_a_relay_the_origin_is_the_one_that_the_site_signed(tmp_path: Path) -> None:
    async with relayed_stations(tmp_path) as stations:
        item = replace(an_event(1), site=LEAF)
        await stations.arrives(await stations.says(item, stream="events"), "events")
        assert await origins(stations.relay) == await origins(stations.top) == [f"{LEAF}/{EPOCH}/events/1"]


async def test_without_a_signature_the_origin_is_the_place_in_the_relays_store(tmp_path: Path) -> None:
    async with relayed_stations(tmp_path) as stations:
        passed = await stations.says(replace(an_event(1), site=LEAF), stream="events", signs=False)
        await stations.arrives(passed, "events")
        assert await origins(stations.top) == [f"{RELAY}/{stations.relay.spool.epoch}/events/{passed[0][0]}"]
