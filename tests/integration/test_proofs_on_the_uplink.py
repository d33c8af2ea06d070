"""When a site signs what it says: only for a station that passes it on, and registry rows again where one has none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from device_agent.protocol.messages import Event, encode
from device_agent.protocol.proven import split_proof
from device_agent.trust.batches import check_item, open_batch, read_proof
from gateway.devices.site_prover import RECORDS, SiteProver
from gateway.rooms import Rooms
from tests.peers.database import opened_rooms
from tests.peers.ports import EPOCH, Above, Below
from tests.peers.rope import Master, accept_all, connected, master_of, record, uplink_part
from tests.peers.waiting import until
from upstream.frames import DeviceRecord, decode_record

ITEMS = [encode(Event(tag=f"door/{number}", data={}, stamp=1.0, site="lisbon")) for number in range(3)]


@pytest.fixture
def above() -> Above:
    return Above()


@pytest.fixture
async def master(above: Above) -> AsyncIterator[Master]:
    async with master_of(above) as made:
        yield made


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Rooms]:
    async with opened_rooms(tmp_path, masters=True) as rooms:
        yield rooms


async def sent(master: Master, above: Above, site: Rooms, below: Below, *rows: DeviceRecord) -> None:
    """The site has told all that it has."""
    below.add(*ITEMS, stream="events")
    below.roll.add(*rows)
    async with AsyncExitStack() as stack:
        uplink = await stack.enter_async_context(
            uplink_part(below, master.address, prover=SiteProver("lisbon", site.authority))
        )
        await until(lambda: uplink.status()["state"] in {"pending", "connected"}, what="the key")
        accept_all(above)
        await master.part.keys_changed()
        await until(lambda: connected(uplink), what="the welcome")
        await until(lambda: len(above.items["lisbon"]) == len(ITEMS), what="the items")
        await until(lambda: len(above.records["lisbon"]) >= len(rows), what="the rows")


async def test_a_master_gets_items_and_rows_without_proofs(master: Master, above: Above, site: Rooms) -> None:
    await sent(master, above, site, Below(), record(1))
    assert [body for _, body in above.items["lisbon"]] == ITEMS
    assert [row.proven for row in above.records["lisbon"]] == [b""]


async def test_a_relay_gets_each_with_a_proof_by_the_sites_key(master: Master, above: Above, site: Rooms) -> None:
    above.passes_on = True
    await sent(master, above, site, Below(), record(1))
    signing = site.authority.signing
    (row,) = above.records["lisbon"]
    for sequence, raw in [*above.items["lisbon"], (row.revision, row.proven)]:
        body, proof = split_proof(raw)
        read = read_proof(proof)
        batch = open_batch(read.batch, lambda kid: signing.public)
        check_item(batch, read, body)
        assert (batch.site, batch.store, read.sequence) == ("lisbon", EPOCH, sequence)
        assert batch.stream == (RECORDS if raw == row.proven else "events")
    assert decode_record(split_proof(row.proven)[0]) == record(1)
    assert [split_proof(raw)[0] for _, raw in above.items["lisbon"]] == ITEMS


async def test_a_relay_that_has_rows_without_a_proof_gets_every_row_again(
    master: Master, above: Above, site: Rooms
) -> None:
    above.passes_on = above.unproven = True
    above.revisions["lisbon", EPOCH] = 2
    below = Below()
    below.roll.add(record(1), record(2))
    await sent(master, above, site, below, record(3))
    await until(lambda: [row.revision for row in above.records["lisbon"]] == [1, 2, 3], what="every row")
    assert all(row.proven for row in above.records["lisbon"])


async def test_a_relay_whose_rows_have_proofs_gets_the_new_ones_alone(
    master: Master, above: Above, site: Rooms
) -> None:
    above.passes_on = True
    above.revisions["lisbon", EPOCH] = 2
    below = Below()
    below.roll.add(record(1), record(2))
    await sent(master, above, site, below, record(3))
    assert [row.revision for row in above.records["lisbon"]] == [3]
