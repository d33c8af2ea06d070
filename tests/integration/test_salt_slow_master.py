"""A Salt master that is slow, silent, or tells much at once, on real sockets."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.peers.salt_double import new_box
from tests.peers.salt_sockets import PlayedMaster, jid, ping
from tests.peers.salt_uplink_bed import RULES, SaltBed
from tests.peers.waiting import until
from upstream.salt.channel import CONNECTIONS
from upstream.salt.ports import DeviceAnswer, ReturnsOfJob
from upstream.salt.probe import PROBES


async def test_a_master_that_is_slow_to_store_answers_is_not_lost_and_can_be_told_of_more(
    bed: SaltBed, master: PlayedMaster
) -> None:
    async with bed.uplink(master, rules=replace(RULES, master_alive_interval=0.05)):
        await bed.connected(master)
        above = bed.feed.above[master.address]
        stored = master.slow["_syndic_return"] = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for number in range(CONNECTIONS + 1):
                entry = ReturnsOfJob(jid(number), "test.ping", {"cam-1": DeviceAnswer(True)})
                group.create_task(above.returns([entry]))
            await until(lambda: master.asked["_syndic_return"] == CONNECTIONS)
            probed, announced = master.asked["_file_envs"], master.asked["_minion_event"]
            await above.announce(jid(7), ["cam-1"])
            await until(lambda: master.asked["_file_envs"] > probed + PROBES, what="probes that are answered meanwhile")
            master.double.aes = new_box()
            await master.publish(ping(8))
            await until(lambda: bed.orders.taken, what="an order under a new key")
            stored.set()
        assert bed.up.status()["state"] == "connected"
    assert (master.asked["_minion_event"], bed.feed.runs[master.address]) == (announced + 1, 1)


async def test_a_burst_of_jobs_is_taken_whole_though_the_first_is_slow_to_write(
    bed: SaltBed, master: PlayedMaster
) -> None:
    async with bed.uplink(master):
        await bed.connected(master)
        bed.orders.free.clear()
        for number in range(200):
            await master.publish(ping(number))
        bed.orders.free.set()
        await until(lambda: len(bed.orders.taken) == 200)
        assert bed.up.status()["links"][0]["lost_publishes"] == 0
    assert bed.orders.jids == [jid(number) for number in range(200)]
    assert not bed.refusals.reasons


@pytest.mark.timeout(240)
async def test_a_master_that_falls_silent_is_lost_and_found_again(bed: SaltBed, master: PlayedMaster) -> None:
    silent = asyncio.Event()
    async with bed.uplink(master, rules=replace(RULES, master_alive_interval=0.05)):
        await bed.connected(master)
        master.bend_reply = lambda sent: None if silent.is_set() and b"pub_key" not in sent else sent
        silent.set()
        await until(lambda: not bed.feed.active_ones, what="the loss of the master")
        silent.clear()
        # What was asked in between is waited for before the link is made anew.
        await until(lambda: bed.feed.active_ones, seconds=90, what="the master found again")
        await until(lambda: bed.feed.runs[master.address] >= 2, what="told again")
