"""upstream/item_sender.py, where a link would have to be caught in the middle of something."""

from __future__ import annotations

import asyncio

import pytest

from device_agent.protocol import limits
from tests.peers.clock import HandClock
from tests.peers.ports import EPOCH, Below
from tests.peers.waiting import until
from upstream import frames
from upstream.dealer import LinkLost
from upstream.item_sender import ItemSender
from upstream.link_budget import LinkBudget


class Sent:
    """What was sent."""

    def __init__(self) -> None:
        self.batches: list[frames.Batch] = []

    async def send(self, frame: frames.FromSite) -> None:
        assert isinstance(frame, frames.Batch)
        self.batches.append(frame)


@pytest.fixture
def below() -> Below:
    return Below()


async def begun(below: Below) -> ItemSender:
    sender = ItemSender(below, LinkBudget(0, HandClock()), "k" * 40, below)
    await sender.begin(frames.SiteWelcome("played", {}, 0), rolled_back=False)
    return sender


async def test_what_was_sent_before_another_master_made_the_store_go_on_under_a_new_epoch_is_not_sent_twice(
    below: Below,
) -> None:
    sender, sent = await begun(below), Sent()
    below.add(b"one")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(sender.run(sent.send))
        await until(lambda: sent.batches, what="the batch")
        running.cancel()
    await below.renew_epoch()
    sender.confirmed(frames.Confirmed(EPOCH, "returns", 1))
    async with asyncio.TaskGroup() as group:
        letting_go = group.create_task(sender.let_go())
        await until(lambda: not below.items, what="the item")
        letting_go.cancel()
    below.add(b"two")
    with pytest.raises(LinkLost, match="new epoch"):
        await sender.run(sent.send)
    assert len(sent.batches) == 1


async def test_a_role_that_comes_and_goes_puts_no_more_under_way_than_the_protocol_allows(below: Below) -> None:
    sender, sent = await begun(below), Sent()
    below.add(*[bytes(limits.BATCH_BYTES)] * (limits.BATCHES_IN_FLIGHT * 3))
    for _ in range(3):
        async with asyncio.TaskGroup() as group:
            running = group.create_task(sender.run(sent.send))
            await until(lambda: len(sent.batches) >= limits.BATCHES_IN_FLIGHT, what="a full window")
            await asyncio.sleep(0)
            running.cancel()
    assert len(sent.batches) == limits.BATCHES_IN_FLIGHT
