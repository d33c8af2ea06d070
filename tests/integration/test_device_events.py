"""Events of devices at a gateway on a real store: once each, in order, in Salt's shape, and not more than it bears."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import OutstationError, Refused
from device_agent.protocol.device_events import KEEP, PAGE_EVENTS, Fired, Heard, Page, decode_heard, encode
from device_agent.protocol.messages import Event, decode_item
from device_agent.schedule.returns import TAG as SCHEDULED
from gateway.answers import Within
from gateway.devices.device_events import BURST, LINK, shape
from gateway.devices.ssh_secrets import Secret
from gateway.store.writer import StoreFailed
from tests.peers.database import look
from tests.peers.ssh_played import PASSWORD, played_device
from tests.peers.ssh_site import GRANTED, SshSite, ssh_site

OUTBOX, OTHER = b"8 bytes.", b"another."
GRANTS = (*GRANTED, "event.*")


def page(*sequences: int, outbox: bytes = OUTBOX, tag: str = "site/x", lost: int = 0) -> Page:
    events = [Fired(sequence, tag, {"n": sequence}, 5.5) for sequence in sequences]
    return Page(events=events, outbox=outbox, lost=lost)


async def offer(site: SshSite, device: str, offered: Page) -> Heard:
    return decode_heard(await Within(site.kept.to_devices, device).ask(KEEP, encode(offered)))


def taken(site: SshSite, tag: str = "site/x") -> list[tuple[str, int]]:
    return [(data["id"], data["data"]["n"]) for data in site.events(tag)]


async def test_an_event_is_taken_once_whatever_comes_again_and_in_salts_shape(tmp_path: Path) -> None:
    async with ssh_site(tmp_path) as site:
        assert await offer(site, "cam-1", page(1, 2)) == Heard(2)
        assert await offer(site, "cam-1", page(1, 2)) == Heard(2)
        assert await offer(site, "cam-1", page(2, 3)) == Heard(3)
        assert await offer(site, "cam-2", page(1)) == Heard(1)
        async with asyncio.TaskGroup() as group:
            same = [group.create_task(offer(site, "cam-1", page(4, 5))) for _ in range(5)]
        assert [each.result() for each in same] == [Heard(5)] * 5
        assert taken(site) == [("cam-1", 1), ("cam-1", 2), ("cam-1", 3), ("cam-2", 1), ("cam-1", 4), ("cam-1", 5)]
        assert site.events("site/x")[0] == {
            "id": "cam-1",
            "tag": "site/x",
            "cmd": "_minion_event",
            "pretag": None,
            "data": {"n": 1},
            "ts": 5,
        }
        assert site.rooms.metrics.counters["device_events"] == 6
        assert site.rooms.metrics.counters["device_events_repeated"] == 2 + 1 + 8
    async with ssh_site(tmp_path) as site:
        # Whoever was not told before the gateway went offers the same again.
        assert await offer(site, "cam-1", page(4, 5, 6)) == Heard(6)
        assert taken(site)[6:] == [("cam-1", 6)]
        assert await offer(site, "cam-1", page(1, outbox=OTHER)) == Heard(1), "its flash was lost"
        assert taken(site)[7:] == [("cam-1", 1)]


async def test_what_only_a_station_fires_is_refused_for_ever_and_holds_nothing_up(tmp_path: Path) -> None:
    async with ssh_site(tmp_path) as site:
        events = [
            Fired(1, "site/x", {"n": 1}, 1.0),
            Fired(2, "salt/minion/cam-1/start", {}, 1.0),
            Fired(3, "salt/beacon/cam-2/load/", {}, 1.0),
            Fired(4, "site/large", {"x": "y" * 70_000}, 1.0),
            Fired(5, "site/a\nb", {}, 1.0),
            Fired(6, "site/x", {"n": 6}, 1.0),
        ]
        heard = await offer(site, "cam-1", Page(events=events, outbox=OUTBOX))
        assert heard == Heard(6, {"event_own_tag": 2, "event_too_large": 1, "event_tag": 1})
        assert taken(site) == [("cam-1", 1), ("cam-1", 6)]
        assert site.events("salt/minion/cam-1/start") == []
        assert site.rooms.metrics.peers[LINK, "event_own_tag", "cam-1"] == 2
        before = site.rooms.metrics.refusals[LINK, "event_own_tag"]
        assert await offer(site, "cam-1", page(7, tag="salt/job/1/new")) == Heard(7, {"event_own_tag": 1})
        assert await offer(site, "cam-1", page(7, tag="salt/job/1/new")) == Heard(7), "known, so not judged again"
        assert site.rooms.metrics.refusals[LINK, "event_own_tag"] == before + 1


async def test_what_is_local_stays_at_the_station_of_its_device_and_goes_up_to_nobody(tmp_path: Path) -> None:
    events = [Fired(n, f"site/{n}", {"n": n}, 5.5, local=n % 2 == 1) for n in range(1, 5)]
    async with ssh_site(tmp_path) as site:
        site.rooms.spool.enabled = True
        with site.rooms.bus.subscribe("site/*") as heard:
            assert await offer(site, "cam-1", Page(events=events, outbox=OUTBOX)) == Heard(4)
            assert [heard.queue.get_nowait().tag for _ in events] == [each.tag for each in events], "all are heard here"
        assert [each["data"] for each in site.events("site/*")] == [{"n": n} for n in range(1, 5)], "all are kept here"
        rising = [decode_item(body) for (body,) in look(site.path, "SELECT body FROM spool_events ORDER BY sequence")]
        assert [each.tag for each in rising if isinstance(each, Event)] == ["site/2", "site/4"]
        alone = Page(events=[Fired(5, "site/5", {}, 5.5, local=True)], outbox=OUTBOX)
        assert await offer(site, "cam-1", alone) == Heard(5)
        assert len(look(site.path, "SELECT sequence FROM spool_events")) == 2


async def test_what_is_no_page_is_refused_with_its_reason(tmp_path: Path) -> None:
    async with ssh_site(tmp_path) as site:
        many = page(*range(1, PAGE_EVENTS + 2))
        for body, reason in (
            (b"\xc1", "malformed"),
            (encode(page(2, 1)), "event_order"),
            (encode(many), "wrong_type"),
            (encode(page(1, outbox=b"nine bytes")), "wrong_type"),
            (encode(page(1, lost=-1)), "wrong_type"),
        ):
            with pytest.raises(Refused) as error:
                await Within(site.kept.to_devices, "cam-1").ask(KEEP, body)
            assert error.value.reason == reason
            assert site.rooms.metrics.peers["questions_of_devices", reason, "cam-1"] >= 1
        assert taken(site) == []


async def test_a_device_that_floods_is_held_back_and_no_other_one_is(tmp_path: Path) -> None:
    async with ssh_site(tmp_path) as site:
        device = "cam-1"
        site.kept.device_events._known(device).allowance._per_second = 0.0
        through = 0
        while through < BURST:
            wanted = range(through + 1, through + PAGE_EVENTS + 1)
            through = (await offer(site, device, page(*wanted))).through
        assert through == BURST, "a page is taken as far as it goes"
        with pytest.raises(Refused, match="too_many_events"):
            await offer(site, device, page(BURST + 1, lost=7))
        assert site.rooms.metrics.peers["questions_of_devices", "too_many_events", device] == 1
        assert await offer(site, "cam-2", page(1)) == Heard(1)
        assert len(taken(site)) == BURST + 1


async def test_what_a_device_lost_is_told_once(tmp_path: Path) -> None:
    tag = "outstation/device/cam-1/events_lost"
    async with ssh_site(tmp_path) as site:
        await offer(site, "cam-1", page(5, lost=3))
        await offer(site, "cam-1", page(5, lost=3))
        await offer(site, "cam-1", page(6, lost=3))
    async with ssh_site(tmp_path) as site:
        await offer(site, "cam-1", page(9, lost=5))
        assert site.events(tag) == [{"id": "cam-1", "lost": 3}, {"id": "cam-1", "lost": 2}]
        assert site.rooms.metrics.counters["device_events_lost"] == 2


async def test_a_store_that_takes_nothing_leaves_the_events_with_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_args: Any, **_kwargs: Any) -> None:
        raise StoreFailed("the disk is full")

    async with ssh_site(tmp_path) as site:
        with monkeypatch.context() as patched:
            patched.setattr(site.rooms.writer, "commit", full)
            with pytest.raises(Refused, match="store_failed"):
                await offer(site, "cam-1", page(1))
        assert await offer(site, "cam-1", page(1)) == Heard(1)
        assert taken(site) == [("cam-1", 1)]


async def test_a_device_over_ssh_fires_and_is_told_why_it_may_not(tmp_path: Path) -> None:
    async with played_device() as camera, ssh_site(tmp_path, granted=GRANTS) as site:
        await site.add("cam-1", camera.port, camera.host_keys, Secret(password=PASSWORD))
        await site.here("cam-1")
        sent = await site.run("event.send", "cam-1", arg=["site/door", {"door": "north"}], kwarg={"badge": 7})
        assert (sent["cam-1"].outcome, sent["cam-1"].value) == ("ok", True)
        [event] = site.events("site/door")
        assert (event["id"], event["cmd"]) == ("cam-1", "_minion_event")
        assert {key: value for key, value in event["data"].items() if not key.startswith("__pub_")} == {
            "door": "north",
            "badge": 7,
        }
        assert event["data"]["__pub_fun"] == "event.send"
        refused = await site.run("event.fire_master", "cam-1", arg=[{}, "salt/auth"])
        assert (refused["cam-1"].outcome, refused["cam-1"].value) == ("failed", False)
        assert "event_own_tag" in str(refused["cam-1"].why)
        with pytest.raises(OutstationError, match="with_env"):
            await site.run("event.send", "cam-1", arg=["site/env"], kwarg={"with_env": ["PATH"]})


def returned(**fields: Any) -> dict[str, Any]:
    told = {"cmd": "_return", "id": "somebody", "fun": "test.ping", "fun_args": [], "schedule": "nightly"}
    ran = {"jid": "1" * 20, "pid": 5, "return": True, "retcode": 0, "success": True, "outcome": "ok", "why": ""}
    return told | ran | {"due": "2026-11-21T03:00:00"} | fields


async def test_the_return_of_a_scheduled_run_is_a_return_with_a_job_id_of_the_station(tmp_path: Path) -> None:
    async with ssh_site(tmp_path) as site:
        fired = [
            Fired(1, SCHEDULED, returned(), 5.5),
            Fired(2, SCHEDULED, returned(outcome="excellent"), 5.5),
            Fired(3, SCHEDULED, {"return": True}, 5.5),
            Fired(4, SCHEDULED, returned(late_seconds=3.5, metadata={"a": 1}), 5.5),
        ]
        assert await offer(site, "cam-1", Page(events=fired, outbox=OUTBOX)) == Heard(4, {"event_data": 2})
        first, second = site.events("salt/job/*/ret/cam-1")
        jid = first.pop("jid")
        assert len(jid) == 20
        assert jid != "1" * 20
        assert first == {
            "cmd": "_return",
            "id": "cam-1",
            "ts": 5,
            "fun": "test.ping",
            "fun_args": [],
            "schedule": "nightly",
            "return": True,
            "retcode": 0,
            "success": True,
            "outcome": "ok",
            "why": "",
            "due": "2026-11-21T03:00:00",
            "device_jid": "1" * 20,
        }
        assert (second["late_seconds"], second["metadata"]) == (3.5, {"a": 1})
        assert second["jid"] > jid


def test_what_a_beacon_says_is_flat_and_whose_it_is_says_the_station() -> None:
    tag = "salt/beacon/cam-1/diskusage/"
    assert shape("cam-1", Fired(1, tag, {"mount": "/"}, 1.0)) == {"mount": "/", "id": "cam-1"}
    assert shape("cam-1", Fired(1, tag, {"mount": "/", "id": "cam-1"}, 1.0)) == {"mount": "/", "id": "cam-1"}
    lied = shape("cam-1", Fired(1, tag, {"id": "cam-2"}, 1.0))
    assert lied == {"id": "cam-1", "beacon_id": "cam-2"}
