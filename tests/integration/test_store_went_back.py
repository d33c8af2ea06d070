"""A store that went back, seen from its masters: they show a loss to it, and fence it only if it is a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from device_agent.clock import Clock
from gateway.checks import store as store_check
from gateway.checks.finding import Finding
from gateway.rooms import Rooms
from gateway.store.witness import witness_path
from tests.peers.central import a_master
from tests.peers.database import opened_rooms
from tests.peers.witnessed_stores import gone, store_in, trust_of, witnessed
from upstream import frames
from upstream.dealer import LinkLost
from upstream.item_sender import ItemSender
from upstream.link_budget import LinkBudget
from upstream.ports import Entry
from upstream.window import Window


async def test_a_loss_that_only_a_master_knows_of_is_reported_as_well(tmp_path: Path) -> None:
    async with opened_rooms(tmp_path / "state", masters=True, working=True) as rooms:
        await rooms.bus.fire([rooms.bus.event("door/open", {"n": 1})])
        before = rooms.spool.epoch
        assert await store_check.check(rooms.facts) == [
            Finding(check="store", severity="ok", finding="never damaged, as far as is known")
        ]
        sender = ItemSender(rooms.spool, LinkBudget(0, Clock()), Window(Clock(), 15.0), "k" * 40, rooms.metrics)
        with pytest.raises(LinkLost, match="new epoch"):
            await sender.begin(frames.SiteWelcome("central", {"events": 7}, 0), rolled_back=False)
        assert rooms.spool.epoch != before
        (finding,) = await store_check.check(rooms.facts)
        assert finding.severity == "error"
        assert "a master knows more of this store" in finding.finding
    assert (await trust_of(store_in(tmp_path / "state"))).state == "went_back"


async def test_a_store_is_fenced_as_a_copy_only_if_it_is_one(tmp_path: Path) -> None:
    """One gateway whose store went back is let in under a new epoch, and of two copies one is fenced."""

    async def hello(rooms: Rooms) -> Entry:
        marks, fresh = await rooms.marks.next("north")
        said = frames.SiteHello(
            protocol=frames.PROTOCOL, site="lisbon", epoch=rooms.spool.epoch, release="1", marks=marks, fresh=fresh
        )
        entry = await master.fence.judge("lisbon", said, "192.0.2.1")
        if not entry.refused:
            await rooms.marks.welcomed("north", "central")
        return entry

    folder, left, copy = tmp_path / "lisbon", tmp_path / "left", tmp_path / "copy"
    async with a_master(tmp_path / "central", "lisbon") as master:
        async with opened_rooms(folder, masters=True) as rooms:
            await hello(rooms)
            await rooms.writer._connection.empty_log(1000)
            # These marks are in the log alone.
            for _ in range(3):
                assert await hello(rooms) == Entry()
            await witnessed(store_in(folder))
            shutil.copytree(folder, left)
        gone(store_in(left))
        async with opened_rooms(left, masters=True) as single:
            assert await hello(single) == Entry()
            assert master.fence.view("lisbon") == {}
            assert await hello(single) == Entry()
        shutil.copytree(left, copy)
        async with opened_rooms(left, masters=True) as one, opened_rooms(copy, masters=True) as other:
            assert await hello(one) == Entry()
            assert (await hello(other)).refused
            assert await hello(one) == Entry()
        # A copy that was made while the gateway ran, and whose files are of different moments, numbers anew; one of
        # the two is fenced all the same.
        async with opened_rooms(left, masters=True) as one:
            await one.writer._connection.empty_log(1000)
            shutil.rmtree(copy)
            shutil.copytree(left, copy)
            assert await hello(one) == Entry()
            await witnessed(store_in(left))
            shutil.copy(witness_path(store_in(left)), witness_path(store_in(copy)))
            async with opened_rooms(copy, masters=True) as other:
                assert (await trust_of(store_in(copy))).in_doubt
                assert await hello(other) == Entry()
                assert (await hello(one)).refused
                assert await hello(other) == Entry()
