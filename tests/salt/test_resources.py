"""Devices as resources of a stock master: of 3008, which has such; the others say that they have none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.peers.salt_master import SaltMaster
from tests.peers.salt_release import NEWEST
from tests.peers.salt_resources import ResourceSite
from tests.peers.salt_site import NAME, SaltSite, salt_site
from tests.peers.salt_uplink_bed import RULES, SaltBed
from tests.peers.waiting import until

DEVICES = 4
QUICK = replace(RULES, acceptance_wait_time=0.5)


@pytest.fixture(scope="module")
def flat(programs: Path) -> Iterator[SaltMaster]:
    """A master that expects no masters below it: it orders nobody whom it does not know."""
    with SaltMaster(programs, "flat", order_masters=False) as started:
        yield started


@pytest.fixture(scope="module")
def site(programs: Path, flat: SaltMaster) -> Iterator[SaltSite]:
    """A gateway whose devices are resources there."""
    if programs.parent.name != NEWEST:
        # That the others say so is a test of its own, below.
        pytest.skip("this release has no resources")
    with salt_site(flat, devices=DEVICES, resources="camera", resource_grains=["number"]) as started:
        registered(started, flat, DEVICES)
        yield started


def registered(site: SaltSite, master: SaltMaster, count: int) -> None:
    site.system.until(
        lambda: site.links()[master.address]["resources"]["count"] == count, f"{count} devices are resources"
    )


def of_the_site(site: SaltSite, found: dict[str, Any]) -> dict[str, Any]:
    """Without the device that comes later, and the gateway itself: a test may run before or after another."""
    return {name: value for name, value in found.items() if name in site.ids}


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        (["cam-00001"], [1]),
        (["-L", "cam-00001,cam-00003"], [1, 3]),
        (["-G", "number:2"], [2]),
        (["-P", "number:[13]"], [1, 3]),
        (["-C", "T@camera"], [0, 1, 2, 3]),
        (["-C", "T@camera:cam-00002"], [2]),
        (["-C", "T@camera and G@number:[02]"], [0, 2]),
    ],
)
def test_a_master_without_masters_below_it_orders_the_devices_that_it_knows(
    words: list[str], numbers: list[int], site: SaltSite, flat: SaltMaster
) -> None:
    answers = flat.salt(*words, "test.ping")
    assert of_the_site(site, answers.by_device()) == {site.ids[number]: True for number in numbers}, site.told(flat)
    assert answers.status == 0, answers


def test_a_job_by_type_is_in_the_job_cache(site: SaltSite, flat: SaltMaster) -> None:
    jid = flat.ordered("-C", "T@camera", "test.echo", "hello")
    wanted = dict.fromkeys(site.ids, "hello")
    flat.until(lambda: of_the_site(site, flat.returned(jid)) == wanted, f"job {jid} is in the cache")
    site.balanced()


def test_devices_behind_a_gateway_that_is_away_are_reported(site: SaltSite, flat: SaltMaster) -> None:
    site.cut()
    try:
        answers = flat.salt("-G", "number:2", "test.ping")
    finally:
        site.mend()
    assert answers.silent() == ["cam-00002"]
    assert answers.status != 0


def test_a_device_that_is_added_is_a_resource_soon(site: SaltSite, flat: SaltMaster) -> None:
    (lamp,) = site.system.add_swarm(1, NAME, prefix="lamp-", name="lamps")
    registered(site, flat, DEVICES + 1)
    assert flat.salt("-C", f"T@camera:{lamp}", "test.ping").by_device() == {lamp: True}
    assert f"camera:{lamp}" in flat.runner("resource.list_grains")


def test_every_device_behind_a_gateway_is_meant_by_its_name(site: SaltSite, flat: SaltMaster) -> None:
    answers = flat.salt("-C", f"M@{NAME}", "test.ping")
    assert of_the_site(site, answers.by_device()) == dict.fromkeys(site.ids, True), site.told(flat)


async def test_what_is_registered_is_taken_back_and_a_release_without_is_known(
    master: SaltMaster, programs: Path, tmp_path: Path
) -> None:
    on, off = ResourceSite(tmp_path), ResourceSite(tmp_path, None)
    bed = SaltBed(tmp_path)
    async with bed.uplink(master, rules=QUICK, registering=on.resources):
        await asyncio.to_thread(master.accept, "gw-1")
        await bed.state("connected")

        def state() -> str:
            return str(bed.up.status()["links"][0]["resources"]["state"])

        if programs.parent.name != NEWEST:
            await until(lambda: state() == "none", 60, what="the word that it has none")
            return
        await until(lambda: state() == "registered", 60, what="the registration")
    assert list(await asyncio.to_thread(master.runner, "resource.list_grains")) == ["camera:cam-1"]
    async with bed.uplink(master, rules=QUICK, registering=off.resources):
        await until(lambda: not any((tmp_path / "resources").iterdir()), 60, what="the mark is gone")
    assert "camera:cam-1" not in await asyncio.to_thread(master.runner, "resource.list_grains")
