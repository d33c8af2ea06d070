"""Clocks and the ages of keys: what heals by itself, and what is said where it does not."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from device_agent.clock import Clock
from tests.peers.salt_master import SaltMaster
from tests.peers.salt_uplink_bed import RULES, SaltBed
from tests.peers.waiting import until

QUICK = replace(RULES, acceptance_wait_time=0.5, master_alive_interval=1.0)


class Behind(Clock):
    """A clock of a machine without a battery, until it is set."""

    late = 3600.0

    def wall(self) -> float:
        return super().wall() - self.late


async def test_a_wrong_clock_is_told_where_the_master_minds_and_a_right_one_is_enough(
    master: SaltMaster, tmp_path: Path
) -> None:
    bed = SaltBed(tmp_path)
    bed.clock = clock = Behind()
    await asyncio.to_thread(master.restart, request_server_ttl=600)
    async with bed.uplink(master, rules=QUICK):
        await asyncio.to_thread(master.accept, "gw-1")
        words = (await bed.state("refused"))["last_error"]
        assert "request_server_ttl" in words
        clock.late = 0.0
        await bed.state("connected")
        jid = await asyncio.to_thread(master.ordered, "cam-*", "test.ping")
        await until(lambda: jid in bed.orders.jids, what="an order")
    await asyncio.to_thread(master.restart, request_server_ttl=0)


async def test_a_session_and_a_key_that_grow_too_old_cost_no_order(master: SaltMaster, tmp_path: Path) -> None:
    """Every day in Salt, and every few seconds here: the session at all, the key for publishes at 3006."""
    bed = SaltBed(tmp_path)
    for names in (await asyncio.to_thread(master.keys)).values():
        for name in names:
            await asyncio.to_thread(master.key, "--delete", name)
    await asyncio.to_thread(master.restart, publish_session=10)
    async with bed.uplink(master, rules=QUICK):
        await asyncio.to_thread(master.accept, "gw-1")
        await bed.state("connected")
        (link,) = bed.up._links.in_order()
        first = link._current()
        timed = "/3006/" in str(master.programs)

        async def made_anew() -> bool:
            jid = await asyncio.to_thread(master.ordered, "cam-*", "test.ping")
            await until(lambda: jid in bed.orders.jids, what=f"job {jid}; {dict(bed.refusals.reasons)}")
            now = link._current()
            return now.box.key != first.box.key and (now.aes.key != first.aes.key or not timed)

        await until(made_anew, seconds=240, what="new keys")
        assert bed.up.status()["state"] == "connected"
    assert not bed.refusals.reasons
