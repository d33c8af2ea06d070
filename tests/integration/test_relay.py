"""The inbox of a relay, and the rows of registries that come up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from device_agent.protocol.links import Parcel
from device_agent.protocol.messages import (
    Close,
    Manifest,
    OutcomeRecord,
    encode,
)
from gateway.jobs.open_jobs import BranchState
from gateway.jobs.story_pages import Told
from gateway.rooms import Rooms
from tests.peers.central import EPOCH, a_master, a_record, an_event, answer, issued, outcomes
from tests.peers.database import FIRST_JID, a_job, encoded, spooled

JID = str(FIRST_JID)


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Rooms]:
    async with a_master(tmp_path, "lisbon", "madrid") as rooms:
        yield rooms


async def test_a_relay_passes_on_what_its_sites_say_and_answers_for_itself(tmp_path: Path) -> None:
    async with a_master(tmp_path, "lisbon", "madrid", masters=True) as relay:
        body = encode(a_job())
        await relay.acceptance.accept_from_above(Parcel(body, ()), 300.0, "tcp://above:1")
        before = await spooled(relay)
        event = an_event(1)
        await relay.inbox.commit("lisbon", EPOCH, "returns", encoded(event, *answer(JID, "a", "b")))
        await relay.inbox.commit("madrid", EPOCH, "returns", encoded(*answer(JID, "c", site="madrid")))
        items = [item for item in await spooled(relay) if item not in before]
        told = [item for item in items if isinstance(item, (Manifest, OutcomeRecord, Close))]
        assert event in items
        assert [(item.site, item.id) for item in told if isinstance(item, OutcomeRecord)] == [
            ("lisbon", "a"),
            ("lisbon", "b"),
            ("madrid", "c"),
        ]
        finals = [(item.site, item.ids) for item in told if isinstance(item, Manifest) and item.final]
        assert finals == [("central", [])]
        assert [(item.site, item.counts) for item in told if isinstance(item, Close)] == [("central", {"ok": 3})]
        assert isinstance(told[-1], Close)
        listed = {(page.site, device) for page in told if isinstance(page, Manifest) for device in page.ids}
        assert listed == {("lisbon", "a"), ("lisbon", "b"), ("madrid", "c")}


async def test_a_master_understands_what_a_relay_passes_on(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(a_master(tmp_path / "relay", "lisbon", masters=True))
        top = await stack.enter_async_context(a_master(tmp_path / "top", "central", name="top"))
        opened = await issued(top)
        jid = opened.job.jid
        await relay.acceptance.accept_from_above(Parcel(opened.body, ()), 300.0, "tcp://top:1")
        await relay.inbox.commit("lisbon", EPOCH, "returns", encoded(*answer(jid, "a", "b")))
        items = await relay.spool.read("returns", 0)
        await top.inbox.commit("central", relay.spool.epoch, "returns", items)
        assert outcomes(top, jid) == {("lisbon", "a"): "ok", ("lisbon", "b"): "ok"}
        assert top.open_jobs.get(jid) is None
        assert top.metrics.refusals == {}


async def test_a_relay_tells_a_job_for_its_sites_too(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(a_master(tmp_path / "relay", "lisbon", "madrid", masters=True))
        top = await stack.enter_async_context(a_master(tmp_path / "top", "central", name="top"))
        opened = await issued(top)
        jid, told = opened.job.jid, Told()

        async def tell() -> None:
            page = await relay.stories._pages.next(jid, told)
            assert page is not None
            assert not page.more
            await top.inbox.commit_story("central", page.items)

        await relay.acceptance.accept_from_above(Parcel(opened.body, ()), 300.0, "another")
        await relay.inbox.commit("lisbon", EPOCH, "returns", encoded(*answer(jid, "a", "b")))
        await tell()
        assert opened.branches["central"].state is BranchState.WAITING
        # Who answers at the second site is known later, and told before its outcomes.
        await relay.inbox.commit("madrid", EPOCH, "returns", encoded(*answer(jid, "c", site="madrid")))
        await tell()
        assert outcomes(top, jid) == {("lisbon", "a"): "ok", ("lisbon", "b"): "ok", ("madrid", "c"): "ok"}
        assert top.open_jobs.get(jid) is None
        assert top.metrics.refusals == {}


async def test_registry_rows_are_kept_with_the_sites_revision(tmp_path: Path) -> None:
    async with a_master(tmp_path, "lisbon") as rooms:
        rows = [a_record("a", "lisbon", 3), a_record("b", "lisbon", 5, present=False)]
        assert await rooms.inbox.commit_records("lisbon", EPOCH, rows) == 5
        await rooms.inbox.commit("lisbon", EPOCH, "returns", encoded(an_event(1)))
        assert await rooms.inbox.position("lisbon", EPOCH) == ({"returns": 1}, 5)
    async with a_master(tmp_path, "lisbon") as rooms:
        assert await rooms.inbox.position("lisbon", EPOCH) == ({"returns": 1}, 5)
        found = {device.id: device for device in rooms.registry.below("lisbon")}
        assert {name: (device.present, device.link) for name, device in found.items()} == {
            "a": (True, "lisbon"),
            "b": (False, "lisbon"),
        }
        await rooms.inbox.commit_records("lisbon", EPOCH, [a_record("b", "lisbon", 6, first_seen=0.5)])
        (device,) = [device for device in rooms.registry.below("lisbon") if device.id == "b"]
        # A site that forgot when it first saw a device does not make its master forget.
        assert (device.present, device.first_seen) == (True, 1.0)


async def test_a_relay_asks_for_rows_again_that_their_site_did_not_sign(tmp_path: Path) -> None:
    async with a_master(tmp_path, "lisbon", masters=True) as relay:
        assert relay.inbox.passes_on
        assert not await relay.inbox.rows_unproven("lisbon")
        await relay.inbox.commit_records("lisbon", EPOCH, [a_record("a", "lisbon", 1), a_record("b", "lisbon", 2)])
        assert await relay.inbox.rows_unproven("lisbon")
        again = [a_record("a", "lisbon", 1, proven=b"signed"), a_record("b", "lisbon", 2, proven=b"signed")]
        await relay.inbox.commit_records("lisbon", EPOCH, again)
        assert not await relay.inbox.rows_unproven("lisbon")
        assert [record.proven for record in await relay.registry.records_after(0) if record.site == "lisbon"] == [
            b"signed",
            b"signed",
        ]


async def test_a_master_does_not_ask_its_sites_to_sign(tmp_path: Path) -> None:
    async with a_master(tmp_path, "lisbon") as master:
        assert not master.inbox.passes_on
