"""A site of 200 devices below a master, both from the package: what was promised is kept, whatever is done to it."""

from __future__ import annotations

import pytest

from tests.peers.appliance import BROKER, GATEWAY, SECONDS, Site, make_site, package_of
from tests.peers.machines import TestBed
from tests.peers.waiting import until

DEVICES = 200
A_WHILE = "20"
"""Seconds for which a job runs on every device, so that what is done to the gateway is done in the middle of it."""


@pytest.fixture
async def site(bed: TestBed) -> Site:
    """The gateway, its master and the devices: joined, and all there."""
    return await make_site(bed, package_of(), DEVICES)


@pytest.mark.short
async def test_a_cut_link_loses_nothing(site: Site) -> None:
    await site.ended(await site.job("test.ping"))
    jid = await site.job("test.sleep", A_WHILE)
    await site.running(jid)
    await site.cut()
    await site.waits("returns", DEVICES)
    await site.gateway.run("outstation", "fire", "site/said/in/the/dark", "{n: 1}")
    await site.heal()
    await site.ended(jid)
    await site.ledger_adds_up()


async def test_a_gateway_that_crashes_is_back_and_loses_nothing(site: Site) -> None:
    jid = await site.job("test.sleep", A_WHILE)
    await site.running(jid)
    await site.gateway.run("systemctl", "kill", "--signal=KILL", GATEWAY)
    await site.ended(jid)
    assert await site.gateway.property_of(GATEWAY, "NRestarts") == "1"
    await site.ended(await site.job("test.ping"))
    await site.ledger_adds_up()


async def test_a_gateway_that_hangs_is_ended_by_the_watchdog_and_loses_nothing(site: Site) -> None:
    jid = await site.job("test.sleep", A_WHILE)
    await site.running(jid)
    await site.gateway.run("systemctl", "kill", "--kill-whom=main", "--signal=STOP", GATEWAY)

    async def restarted() -> bool:
        return await site.gateway.property_of(GATEWAY, "NRestarts") == "1"

    await until(restarted, SECONDS, "the watchdog")
    assert any("Watchdog timeout" in entry["MESSAGE"] for entry in await site.gateway.journal(f"UNIT={GATEWAY}"))
    await site.ended(jid)
    await site.ended(await site.job("test.ping"))
    await site.ledger_adds_up()


async def test_a_gateway_killed_with_everything_in_the_dark_loses_nothing(site: Site) -> None:
    jid = await site.job("test.sleep", A_WHILE)
    await site.running(jid)
    await site.cut()
    await site.waits("returns", DEVICES)
    before = await site.ledger()
    await site.gateway.kill()
    await site.gateway.start()
    await site.active(GATEWAY, BROKER)
    await site.present(site.gateway)
    assert (await site.ledger())["returns"]["pending"] >= before["returns"]["pending"]
    await site.heal()
    await site.ended(jid)
    await site.ended(await site.job("test.ping"))
    await site.ledger_adds_up()


async def test_a_master_killed_with_everything_is_told_again(site: Site) -> None:
    jid = await site.job("test.sleep", A_WHILE)
    await site.running(jid)
    await site.master.kill()
    await site.waits("returns", DEVICES)
    await site.master.start()
    await site.ended(jid)
    await site.ledger_adds_up()
