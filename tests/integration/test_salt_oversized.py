"""What is too large for any bound is not taken in at all: its line is dropped and made anew, and all else goes on."""

from __future__ import annotations

import asyncio
import logging

import pytest

from device_agent.errors import Refused
from device_agent.questions import Unanswered
from tests.peers.salt_sockets import PlayedMaster, ids_of, jid, ping
from tests.peers.salt_uplink_bed import SaltBed
from tests.peers.waiting import until
from upstream.salt import wire
from upstream.salt.channel import WIRE_CEILING_BYTES
from upstream.salt.ports import DeviceAnswer, ReturnsOfJob
from upstream.salt.subscription import MESSAGE_CEILING_BYTES

DOWN = "publishes is down"


def large(size: int) -> bytes:
    """A map with one value of so many bytes."""
    return b"\x81\xa1a\xc6" + size.to_bytes(4, "big") + bytes(size)


async def test_a_publish_beyond_all_bounds_is_said_and_the_next_order_taken_over_the_line_that_is_made_anew(
    bed: SaltBed, master: PlayedMaster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with bed.uplink(master):
        await bed.connected(master)
        await master.send(large(MESSAGE_CEILING_BYTES))
        await until(lambda: DOWN in caplog.text, what="the word that the line is down")
        assert f"larger than {MESSAGE_CEILING_BYTES} bytes" in caplog.text
        await master.subscribed()
        await master.publish(ping(1))
        await until(lambda: bed.orders.taken)
        assert bed.up.status()["state"] == "connected"
        assert bed.feed.runs[master.address] == 1, "the session went on meanwhile"
    assert bed.orders.jids == [jid(1)]
    assert not bed.refusals.reasons


@pytest.mark.parametrize(
    ("size", "raised"), [(wire.MOST_BYTES + 1, Refused), (WIRE_CEILING_BYTES + 1, Unanswered)], ids=["large", "beyond"]
)
async def test_a_reply_that_is_too_large_is_none_and_the_next_question_is_answered(
    bed: SaltBed, master: PlayedMaster, size: int, raised: type[Exception]
) -> None:
    reply = large(size)
    async with bed.uplink(master):
        await bed.connected(master)
        above = bed.feed.above[master.address]
        master.bend_reply = lambda sent: reply if master.last == "x" else sent
        with pytest.raises(raised) as no:
            await above.request("x", {}, patience=2.0 if raised is Unanswered else 30.0)
        assert not isinstance(no.value, Refused) or no.value.reason == "too_large"
        async with asyncio.TaskGroup() as group:
            entry = ReturnsOfJob(jid(1), "test.ping", {"cam-1": DeviceAnswer(True)})
            group.create_task(above.returns([entry]))
            group.create_task(above.announce(jid(1), ["cam-1"]))
        assert master.asked["_syndic_return"] == 1
        (told,) = [load for load in master.loads if load["cmd"] == "_syndic_return"]
        assert ids_of(told) == ["cam-1"]
        assert bed.up.status()["state"] == "connected"


async def test_a_line_that_its_master_has_closed_is_dialled_once(bed: SaltBed, master: PlayedMaster) -> None:
    async with bed.uplink(master):
        await bed.connected(master)
        for number in range(3):
            await master.publishes_anew()
            await master.subscribed()
            await master.publish(ping(2 * number))
            await master.publish(ping(2 * number + 1))
            await until(lambda: len(bed.orders.taken) == 2 * number + 2)  # noqa: B023 - waited for at once
        assert bed.feed.runs[master.address] == 1
    assert bed.orders.jids == [jid(number) for number in range(6)]
    assert not bed.refusals.reasons, "over two lines each would have come twice"
