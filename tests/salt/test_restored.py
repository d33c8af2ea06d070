"""A gateway that is restored on another machine is known to its stock master, and knows it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from tests.peers.backed_up import Gateway, furnished
from tests.peers.salt_master import SaltMaster
from tests.peers.salt_uplink_bed import RULES, SaltBed
from tests.peers.waiting import until


async def test_a_dead_box_is_replaced_without_salt_key(master: SaltMaster, tmp_path: Path) -> None:
    old, new = Gateway(tmp_path / "old"), Gateway(tmp_path / "new")
    new.configure()
    await furnished(old)
    before, after = SaltBed(old.state), SaltBed(new.state)
    async with before.uplink(master, rules=replace(RULES, acceptance_wait_time=0.5)):
        await asyncio.to_thread(master.accept, "gw-1")
        await before.state("connected")
    old.take(overwrite=True)
    new.put_back(old.backup)
    kept = {path.name: path.read_bytes() for path in (after.keys_dir / "masters").iterdir()}
    assert len(kept) == 1
    async with after.uplink(master, rules=RULES):
        await after.state("connected")
        jid = await asyncio.to_thread(master.ordered, "cam-*", "test.ping")
        await until(lambda: jid in after.orders.jids, what="an order for the restored gateway")
    assert {path.name: path.read_bytes() for path in (after.keys_dir / "masters").iterdir()} == kept
    assert not after.refusals.reasons
