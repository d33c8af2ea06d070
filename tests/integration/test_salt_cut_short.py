"""What ends in the middle of an order, a kill or a lost line, loses none without a word."""

from __future__ import annotations

from tests.peers.salt_sockets import PlayedMaster, jid, ping
from tests.peers.salt_uplink_bed import SaltBed
from tests.peers.waiting import until


async def killed_while_an_order_is_written(bed: SaltBed, master: PlayedMaster) -> bytes:
    """The publish of that order; the one before it was taken."""
    async with bed.uplink(master):
        await bed.connected(master)
        await master.publish(ping(1))
        await until(lambda: bed.serials.kept)
        bed.orders.free.clear()
        order = master.double.publish(ping(2))
        await master.send(order)
        await until(lambda: bed.orders.begun == 2, what="an order that is being written")
    bed.orders.free.set()
    assert bed.orders.jids == [jid(1)]
    return order


async def test_an_order_that_a_kill_cut_short_is_taken_when_it_is_published_again(
    bed: SaltBed, master: PlayedMaster
) -> None:
    order = await killed_while_an_order_is_written(bed, master)
    async with bed.uplink(master):
        await bed.connected(master)
        await master.send(order)
        await until(lambda: len(bed.orders.taken) == 2)
        await master.send(order)
        await until(lambda: bed.refusals.reasons)
    assert bed.orders.jids == [jid(1), jid(2)]
    assert bed.refusals.reasons == {"replayed": 1}


async def test_an_order_that_a_kill_cut_short_is_counted_when_it_does_not_come_again(
    bed: SaltBed, master: PlayedMaster
) -> None:
    await killed_while_an_order_is_written(bed, master)
    async with bed.uplink(master) as up:
        await bed.connected(master)
        await master.publish(ping(3))
        await until(lambda: len(bed.orders.taken) == 2)
        assert up.status()["links"][0]["lost_publishes"] == 1
    assert bed.orders.jids == [jid(1), jid(3)]


async def test_an_order_in_the_middle_of_which_the_line_is_lost_is_taken_to_its_end(
    bed: SaltBed, master: PlayedMaster
) -> None:
    async with bed.uplink(master) as up:
        await bed.connected(master)
        bed.orders.free.clear()
        await master.publish(ping(1))
        await until(lambda: bed.orders.begun == 1)
        up.cut(3600.0)
        await bed.state("cut")
        bed.orders.free.set()
        await until(lambda: bed.serials.kept, what="how far the master was heard, on disk")
        assert bed.orders.jids == [jid(1)]


async def test_a_publish_that_is_no_order_is_known_after_a_restart_too(bed: SaltBed, master: PlayedMaster) -> None:
    odd = master.double.publish({**ping(1), "jid": "../x"})
    async with bed.uplink(master):
        await bed.connected(master)
        await master.send(odd)
        await until(lambda: bed.refusals.reasons["unusable_jid"])
    async with bed.uplink(master):
        await bed.connected(master)
        await master.send(odd)
        await until(lambda: bed.refusals.reasons["replayed"])
    assert bed.refusals.reasons == {"unusable_jid": 1, "replayed": 1}


async def test_an_order_that_the_store_did_not_keep_may_come_again_after_a_restart(
    bed: SaltBed, master: PlayedMaster
) -> None:
    order = master.double.publish(ping(1))
    bed.orders.broken = True
    async with bed.uplink(master):
        await bed.connected(master)
        await master.send(order)
        await until(lambda: bed.orders.begun == 1)
    bed.orders.broken = False
    async with bed.uplink(master):
        await bed.connected(master)
        await master.send(order)
        await until(lambda: bed.orders.taken, what=f"the order; {bed.refusals.reasons}")
    assert bed.orders.jids == [jid(1)]
    assert not bed.refusals.reasons
