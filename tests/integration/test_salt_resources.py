"""Devices as resources at Salt masters: told when it is due and to whom it means something, and ordered by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.peers.clock import HandClock
from tests.peers.salt_above import published
from tests.peers.salt_gate import GATEWAY, JID, MASTER, opened
from tests.peers.salt_resources import CAMERAS, ResourceSite, device
from tests.peers.salt_sockets import PlayedMaster
from tests.peers.salt_uplink_bed import SaltBed
from tests.peers.waiting import until


@pytest.fixture
async def master() -> AsyncIterator[PlayedMaster]:
    async with PlayedMaster() as played:
        played.answer = with_resources
        yield played


def with_resources(load: dict[str, Any]) -> Any:
    """What 3008 answers."""
    return True if load["cmd"] == "_register_resources" else None


def without(load: dict[str, Any]) -> Any:
    """What 3006 and 3007 answer."""
    return {} if load["cmd"] == "_register_resources" else None


@asynccontextmanager
async def below(master: PlayedMaster, folder: Path, site: ResourceSite) -> AsyncIterator[SaltBed]:
    bed = SaltBed(folder)
    async with bed.uplink(master, registering=site.resources):
        await bed.state("connected")
        yield bed


def registered(master: PlayedMaster) -> list[dict[str, Any]]:
    """What it was told, one after another."""
    return [load for load in master.loads if load["cmd"] == "_register_resources"]


def ids(master: PlayedMaster) -> list[Any]:
    return [load["resources"] for load in registered(master)]


def state(bed: SaltBed) -> Callable[[], str]:
    return lambda: str(bed.up.status()["links"][0]["resources"]["state"])


async def test_a_master_is_told_at_the_sign_in_and_when_devices_change(master: PlayedMaster, tmp_path: Path) -> None:
    site = ResourceSite(tmp_path)
    async with below(master, tmp_path, site) as bed:
        await until(lambda: state(bed)() == "registered", what="the first registration")
        assert ids(master) == [{}, {"camera": ["cam-1"]}]
        assert registered(master)[-1]["resource_grains"] == {"camera:cam-1": {"id": "cam-1", "os": "Debian"}}
        site.devices.append(device("cam-2"))
        site.revision += 1
        await until(lambda: ids(master)[-1] == {"camera": ["cam-1", "cam-2"]}, what="the second device")
        site.devices[0].grains = {"id": "cam-1", "os": "Alpine"}
        site.revision += 1
        await until(lambda: registered(master)[-1]["resource_grains"]["camera:cam-1"]["os"] == "Alpine")
        status = bed.up.status()["links"][0]["resources"]
        assert (status["count"], status["left_out"]) == (2, 0)
        told = len(registered(master))
        # A change of what a master is not told, as that a device came or went.
        site.revision += 1
        site.resources.signed_in(master.address)
        await until(lambda: len(registered(master)) == told + 1, what="one more, for the sign-in")
        assert ids(master)[-1] == {"camera": ["cam-1", "cam-2"]}


async def test_after_a_restart_it_is_told_in_one_and_with_the_setting_off_it_is_taken_back(
    master: PlayedMaster, tmp_path: Path
) -> None:
    async with below(master, tmp_path, ResourceSite(tmp_path)) as bed:
        await until(lambda: state(bed)() == "registered", what="the first registration")
    async with below(master, tmp_path, ResourceSite(tmp_path)) as bed:
        await until(lambda: state(bed)() == "registered", what="the registration after a restart")
    assert ids(master) == [{}, {"camera": ["cam-1"]}, {"camera": ["cam-1"]}]
    async with below(master, tmp_path, ResourceSite(tmp_path, None)) as bed:
        await until(lambda: len(registered(master)) == 4, what="what is taken back")
        assert "resources" not in bed.up.status()["links"][0]
    async with below(master, tmp_path, ResourceSite(tmp_path, None)) as bed:
        await until(lambda: bed.up.status()["state"] == "connected")
    assert ids(master)[3:] == [{}]


async def test_an_older_master_is_told_nothing_and_that_is_said_once(
    master: PlayedMaster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    master.answer = without
    site = ResourceSite(tmp_path)
    async with below(master, tmp_path, site) as bed:
        await until(lambda: state(bed)() == "none", what="the word that it has none")
        site.resources.signed_in(master.address)
        await until(lambda: len(registered(master)) == 2, what="the question after another sign-in")
        assert ids(master) == [{}, {}]
        # It was upgraded.
        master.answer = with_resources
        site.resources.signed_in(master.address)
        await until(lambda: state(bed)() == "registered", what="the registration")
    assert [record.message for record in caplog.records if "older than 3008" in record.message] == [
        f"this Salt master has no resources, it is older than 3008 master={master.address}"
    ]


async def test_a_master_that_does_not_confirm_is_told_again(master: PlayedMaster, tmp_path: Path) -> None:
    said = iter(["", None, {"a": 1}])
    master.answer = lambda load: next(said, True) if load["cmd"] == "_register_resources" else None
    async with below(master, tmp_path, ResourceSite(tmp_path)) as bed:
        await until(lambda: state(bed)() == "registered", 60, what="the registration")
        assert bed.up.status()["state"] == "connected"


async def test_a_disk_that_keeps_no_mark_ends_nothing(
    master: PlayedMaster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "resources"
    folder.write_text("no folder", encoding="utf-8")
    async with below(master, tmp_path, ResourceSite(tmp_path)) as bed:
        await until(lambda: "mark of a Salt master's resources cannot be kept" in caplog.text)
        assert bed.up.status()["state"] == "connected"
        folder.unlink()
        await until(lambda: state(bed)() == "registered", 60, what="the registration")


@pytest.mark.parametrize(
    ("tgt", "meant", "signed"),
    [
        ("T@camera", ["cam-1", "cam-2", "door"], "*"),
        ("T@camera:cam-2", ["cam-2"], "cam-2"),
        ("M@gw-1 and G@os:Debian", ["cam-1", "cam-2", "door"], "*"),
        ("T@camera and not T@camera:door", ["cam-1", "cam-2"], "cam-1,cam-2"),
        ("( T@lamp or cam-* ) and M@gw-1", ["cam-1", "cam-2"], "cam-1,cam-2"),
        ("not T@ssh and door", ["door"], "door"),
    ],
)
async def test_an_order_by_resource_is_signed_by_name(tgt: str, meant: list[str], signed: str, tmp_path: Path) -> None:
    async with opened(tmp_path, HandClock(), "looks", resources=CAMERAS) as gate:
        gate.hello("cam-1", "cam-2", "door")
        await gate.orders.take(published(JID, tgt=tgt, tgt_type="compound"), MASTER)
        assert gate.told.announced == [(MASTER, JID, meant)]
        assert sorted(gate.job().waiting) == meant
        assert gate.job().job.tgt == signed


@pytest.mark.parametrize("tgt", ["T@lamp", "T@lamp:cam-1", "M@gw-2", "T@camera:cam-9", "cam-1 and M@gw-2"])
async def test_resources_of_somebody_else_are_nobody_here(tgt: str, tmp_path: Path) -> None:
    async with opened(tmp_path, HandClock(), "looks", resources=CAMERAS) as gate:
        gate.hello("cam-1")
        await gate.orders.take(published(JID, tgt=tgt, tgt_type="compound"), MASTER)
        assert not gate.told.announced
        assert gate.rooms.metrics.counters["salt_orders_for_others"] == 1


async def test_without_the_setting_nothing_here_is_a_resource(tmp_path: Path) -> None:
    async with opened(tmp_path, HandClock(), "looks") as gate:
        gate.hello("cam-1")
        await gate.orders.take(published(JID, tgt="T@camera or M@gw-1", tgt_type="compound"), MASTER)
        assert not gate.told.announced
        assert not gate.rooms.metrics.refusals


@pytest.mark.parametrize("tgt", ["T@ and cam-1", "M@"])
async def test_an_empty_word_is_refused_under_the_own_id_and_counted(tgt: str, tmp_path: Path) -> None:
    async with opened(tmp_path, HandClock(), "looks", resources=CAMERAS) as gate:
        gate.hello("cam-1")
        await gate.orders.take(published(JID, tgt=tgt, tgt_type="compound"), MASTER)
        assert gate.rooms.metrics.refusals["salt", "bad_target"] == 1
        assert gate.told.announced == [(MASTER, JID, [GATEWAY])]
        assert gate.told.own()[0][1].value.startswith("refused: bad_target: ")


async def test_many_changes_are_told_in_few_messages(master: PlayedMaster, tmp_path: Path) -> None:
    site = ResourceSite(tmp_path)
    async with below(master, tmp_path, site) as bed:
        await until(lambda: state(bed)() == "registered", what="the first registration")
        for number in range(2, 200):
            site.devices.append(device(f"cam-{number}"))
            site.revision += 1
            await asyncio.sleep(0)
        await until(lambda: len(ids(master)[-1]["camera"]) == 199, what="all devices")
    assert len(registered(master)) < 20
