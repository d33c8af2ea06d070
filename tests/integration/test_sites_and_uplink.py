"""The rope: both real ends on real sockets with real CURVE."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from device_agent.errors import ConfigInvalid
from device_agent.protocol import limits
from device_agent.protocol.links import Parcel, Sealed
from device_agent.protocol.messages import encode_value
from tests.peers.ports import EPOCH, Above, Below
from tests.peers.rope import (
    Master,
    accept_all,
    connected,
    master_of,
    new_keys,
    record,
    sites_part,
    uplink_part,
)
from tests.peers.waiting import until
from upstream.uplink import Uplink

JID = "20261121031500000000"


@pytest.fixture
def above() -> Above:
    return Above()


@pytest.fixture
def below() -> Below:
    return Below()


@pytest.fixture
async def master(above: Above) -> AsyncIterator[Master]:
    async with master_of(above) as made:
        yield made


async def test_a_site_waits_to_be_accepted_and_then_everything_goes_both_ways(
    master: Master, above: Above, below: Below
) -> None:
    below.add(b"one", b"two")
    below.roll.add(record(1), record(2))
    async with uplink_part(below, master.address) as uplink:
        await until(lambda: uplink.status()["state"] == "pending", what="the pending key")
        assert "outstation keys accept lisbon" in uplink.status()["last_error"]
        assert (above.items, above.up, below.items[0]) == ({}, [], (1, b"one"))
        assert not master.part.connected("lisbon")
        accept_all(above)
        await master.part.keys_changed()
        await until(lambda: connected(uplink), what="the welcome")
        await until(lambda: below.confirmed[-1:] == [2], what="the confirmation of both items")
        assert above.items == {"lisbon": [(1, b"one"), (2, b"two")]}
        assert below.items == []
        await until(lambda: len(above.records["lisbon"]) == 2, what="the registry")
        assert master.part.connected("lisbon")
        parcel = Parcel(b"a job", (Sealed("lisbon", "", b"sealed"),))
        await master.part.deliver(parcel, 12.5, ["lisbon", "nowhere"])
        await master.part.cancel(JID, ["lisbon"])
        await until(lambda: below.cancelled == [JID], what="the cancel")
        assert below.jobs == [(parcel, 12.5, master.keys.public)]
        below.add(b"three")
        await until(lambda: below.confirmed[-1:] == [3], what="the third item")
    await until(lambda: above.down == [("lisbon", "the site stopped")], what="the goodbye")
    assert above.reasons == {}
    assert below.reasons == {}


async def test_a_rejected_site_is_told_and_its_live_link_dropped(master: Master, above: Above, below: Below) -> None:
    keys = new_keys()
    above.states[keys.public] = "accepted"
    async with uplink_part(below, master.address, keys=keys) as uplink:
        await until(lambda: connected(uplink), what="the link")
        above.states[keys.public] = "rejected"
        await master.part.keys_changed()
        await until(lambda: not connected(uplink), what="the end of the link")
        assert "rejected" in uplink.status()["last_error"]
        assert above.down == [("lisbon", "its key is rejected")]
        assert not master.part.connected("lisbon")
        below.add(b"not for you")
        await until(lambda: len(above.judged) >= 3, what="another try")
        assert above.items == {}


async def test_after_a_reconnect_the_sequence_goes_on_where_the_master_has_it(
    master: Master, above: Above, below: Below
) -> None:
    keys = new_keys()
    above.states[keys.public] = "accepted"
    below.add(*[b"%d" % number for number in range(1, 6)])
    # Three of them have come to the disk, which the site was never told.
    above.items["lisbon"], above.positions["lisbon", EPOCH] = [(n, b"%d" % n) for n in (1, 2, 3)], {"returns": 3}
    async with uplink_part(below, master.address, keys=keys):
        await until(lambda: below.confirmed[-1:] == [5], what="the rest")
    assert above.items["lisbon"] == [(n, b"%d" % n) for n in (1, 2, 3, 4, 5)]


async def test_a_commit_that_outlives_its_link_is_waited_for_and_not_repeated(
    master: Master, above: Above, below: Below, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Uplink, "drain_seconds", 0.2)
    keys = new_keys()
    above.states[keys.public] = "accepted"
    above.disk.clear()
    async with uplink_part(below, master.address, keys=keys) as uplink:
        await until(lambda: connected(uplink), what="the link")
        below.add(b"one", b"two")
    await until(lambda: above.down, what="the goodbye")
    async with uplink_part(below, master.address, keys=keys) as uplink:
        await until(lambda: len(above.judged) == 2, what="the second hello")
        assert not connected(uplink)
        above.disk.set()
        await until(lambda: below.confirmed[-1:] == [2], what="the confirmation")
    assert above.items["lisbon"] == [(1, b"one"), (2, b"two")]


async def test_items_of_every_size_go_up_in_order_while_the_disk_is_slow(
    master: Master, above: Above, below: Below
) -> None:
    """Batches of few large items are many batches: what is under way is bounded as the master bounds it."""
    keys = new_keys()
    above.states[keys.public] = "accepted"
    above.disk.clear()
    # Each is a batch of its own.
    below.add(*[bytes([number]) * limits.MESSAGE_BYTES for number in range(240)])
    async with uplink_part(below, master.address, keys=keys, echo_seconds=0.5) as uplink:
        await until(lambda: connected(uplink), what="the link")
        await until(lambda: above.heard["lisbon"] > limits.BATCHES_IN_FLIGHT, what="a full window")
        above.disk.set()
        await until(lambda: below.items == [], what="every item confirmed")
        assert above.reasons == {}
        assert above.up == ["lisbon"]
    sent = [sequence for sequence, _ in above.items["lisbon"]]
    assert sent == list(range(1, len(sent) + 1))


async def test_a_registry_page_of_large_grains_goes_through(master: Master, above: Above, below: Below) -> None:
    keys = new_keys()
    above.states[keys.public] = "accepted"
    grains = encode_value({"text": "x" * (limits.GRAINS_BYTES - 100)})
    per_page = limits.UPLINK_FRAME_BYTES // limits.GRAINS_BYTES - 2
    below.roll.add(*(record(number, grains=grains) for number in range(1, per_page)))
    async with uplink_part(below, master.address, keys=keys):
        await until(lambda: len(above.records["lisbon"]) == per_page - 1, what="the registry")


async def test_two_stations_do_not_listen_at_one_address(master: Master, above: Above) -> None:
    async with asyncio.TaskGroup():
        with pytest.raises(ExceptionGroup) as error:
            async with sites_part(above, new_keys(), listen=master.part.address):
                raise AssertionError("two listen at one address")
    assert error.group_contains(ConfigInvalid, match="address for sites")
    async with master.site() as site:
        assert await site.hears_nothing_before_the_echo() == []
