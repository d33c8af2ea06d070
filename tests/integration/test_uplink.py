"""The gateway's end of the rope against masters that misbehave."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from device_agent.protocol import limits
from device_agent.protocol.links import Parcel
from device_agent.protocol.messages import Cancel
from tests.peers.ports import EPOCH, Below
from tests.peers.rope import (
    ECHO_SECONDS,
    SILENT_SECONDS,
    connected,
    new_keys,
    played_master,
    record,
    uplink_part,
)
from tests.peers.waiting import until
from upstream import frames
from upstream import link as link_module
from upstream.uplink import MasterAddress, Uplink


@pytest.fixture
def below() -> Below:
    return Below()


@pytest.fixture
def quick_hello(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master that does not answer is given up soon and tried again soon: perhaps one that only is slow as well."""
    monkeypatch.setattr(link_module, "HELLO_SECONDS", 1.0)
    monkeypatch.setattr(link_module, "ROUND_CEILING_SECONDS", 0.05)


async def test_a_half_open_link_is_noticed_by_the_echo(below: Below) -> None:
    async with (
        played_master() as frozen,
        uplink_part(below, frozen.address, master_alive_interval=SILENT_SECONDS) as uplink,
    ):
        await until(lambda: connected(uplink), what="the link")
        frozen.answers = False
        await until(lambda: not connected(uplink), what="the loss")
        assert "no echo" in uplink.status()["last_error"]
        frozen.answers = True
        await until(lambda: connected(uplink), what="the link again")
        assert frozen.hellos >= 2


async def test_a_master_that_has_forgotten_the_connection_gets_a_new_one(below: Below) -> None:
    async with played_master() as master, uplink_part(below, master.address) as uplink:
        await until(lambda: connected(uplink), what="the link")
        await master.say(frames.HelloAgain())
        await until(lambda: master.hellos == 2 and connected(uplink), what="the second link")


async def test_masters_that_do_not_answer_are_passed_over(below: Below) -> None:
    async with played_master() as silent, played_master() as refusing, played_master() as good:
        silent.answers = False
        refusing.welcome = frames.SiteRefused("rejected", "no")
        masters = [silent.address, refusing.address, good.address]
        async with uplink_part(below, *masters) as uplink:
            await until(lambda: connected(uplink), what="the third of them")
            assert uplink.status()["master"] == good.address.address
            assert uplink.status()["masters"] == [master.address for master in masters]
            assert good.hellos == 1


@pytest.mark.usefixtures("quick_hello")
async def test_the_list_is_gone_through_for_ever_until_one_answers(below: Below) -> None:
    async with played_master() as first, played_master() as second:
        first.answers = second.answers = False
        async with uplink_part(below, first.address, second.address) as uplink:
            await until(lambda: first.hellos >= 2, what="the second round")
            first.answers = True
            await until(lambda: connected(uplink), what="the first of them")
            assert uplink.status()["master"] == first.address.address


async def test_rounds_without_an_answer_come_ever_slower(below: Below, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many masters are in the list: two that refuse at once must not be asked for ever at full speed."""
    bounds: list[float] = []

    def bound(self: Any, low: float, high: float) -> float:
        bounds.append(high)
        return 0.0

    monkeypatch.setattr("random.SystemRandom.uniform", bound)
    async with played_master() as first, played_master() as second:
        first.welcome = second.welcome = frames.SiteRefused("rejected", "no")
        async with uplink_part(below, first.address, second.address):
            await until(lambda: min(first.hellos, second.hellos) >= 5, what="five rounds")
    assert sorted(bounds)[:8] == [0.5, 0.5, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0]


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "tcp://no.such.host.invalid:4510", "tcp://127.0.0.1:99999"])
async def test_an_address_that_leads_nowhere_is_only_another_master_that_does_not_answer(
    address: str, below: Below
) -> None:
    async with played_master() as good:
        nowhere = MasterAddress(address, new_keys().public)
        async with uplink_part(below, nowhere, good.address) as uplink:
            await until(lambda: connected(uplink), what="the second of them")


async def test_a_key_that_is_none_does_not_end_the_station(below: Below) -> None:
    async with played_master() as good:
        broken = MasterAddress(good.address.address, "#" * 40)
        async with uplink_part(below, broken, good.address) as uplink:
            await until(lambda: connected(uplink), what="the second of them")


async def test_a_master_with_another_key_than_the_settings_say_is_not_spoken_to(below: Below) -> None:
    async with played_master() as impostor, played_master() as good:
        wrong = MasterAddress(impostor.address.address, new_keys().public)
        async with uplink_part(below, wrong, good.address) as uplink:
            await until(lambda: connected(uplink), what="the good one")
            assert impostor.heard == []


async def test_bad_frames_of_a_master_are_counted_and_cost_nothing_else(below: Below) -> None:
    async with played_master() as master, uplink_part(below, master.address) as uplink:
        await until(lambda: connected(uplink), what="the link")
        await master.say(
            b"\xc1",
            b"",
            frames.encode(frames.Bye()),
            [b"two", b"frames"],
            frames.encode(frames.SiteJob(b"x", float("nan"))),
            frames.encode(Cancel("no jid")),
            frames.SiteJob(b"a good one", 5.0),
        )
        await until(lambda: below.jobs, what="the good one")
        assert below.jobs[0][:2] == (Parcel(b"a good one", ()), 5.0)
        assert below.reasons == {"malformed": 3, "wrong_type": 3}
        assert connected(uplink)
        assert master.hellos == 1


async def test_before_a_welcome_nothing_of_a_master_is_taken(below: Below) -> None:
    async with played_master() as master:
        master.welcome = frames.SiteJob(b"a job of nobody", 5.0)
        async with uplink_part(below, master.address) as uplink:
            await until(lambda: below.reasons["before_welcome"] == 1, what="the refusal")
            await master.say(frames.SiteWelcome("played", {}, 0))
            await until(lambda: connected(uplink), what="the link")
    assert below.jobs == []


async def test_a_confirmation_of_another_store_lets_nothing_go(below: Below) -> None:
    async with played_master() as master:
        master.confirms = False
        below.add(b"one", b"two")
        async with uplink_part(below, master.address):
            await until(master.batches, what="the batch")
            await master.say(frames.Confirmed("f" * 16, "returns", 2), frames.Confirmed(EPOCH, "returns", 1))
            await until(lambda: below.confirmed[-1:] == [1], what="the true one")
            assert below.items == [(2, b"two")]
            await master.say(frames.Confirmed(EPOCH, "returns", 2))
            await until(lambda: not below.items, what="the rest")


async def test_a_confirmation_of_what_was_never_sent_lets_nothing_go(below: Below) -> None:
    async with played_master() as master:
        master.confirms = False
        below.add(b"one")
        async with uplink_part(below, master.address):
            await until(master.batches, what="the batch")
            await master.say(frames.Confirmed(EPOCH, "returns", 2), frames.Confirmed(EPOCH, "audit", 2**62))
            await until(lambda: below.reasons["false_confirmation"] == 2, what="the refusals")
            below.add(b"two")
            await until(lambda: len(master.batches()) == 2, what="the second")
            assert (below.confirmed, len(below.items)) == ([], 2)
            await master.say(frames.Confirmed(EPOCH, "returns", 2))
            await until(lambda: not below.items, what="both")


async def test_what_a_disk_did_not_let_go_goes_without_another_confirmation(below: Below) -> None:
    async with played_master() as master, uplink_part(below, master.address) as uplink:
        await until(lambda: connected(uplink), what="the link")
        below.failing = True
        below.add(b"one")
        await until(master.batches, what="the batch")
        await master.say(Cancel("20260101000000000001"))
        await until(lambda: below.cancelled, what="what came after the confirmation")
        below.failing = False
        await until(lambda: not below.items, what="the item")


async def test_no_more_is_under_way_than_the_protocol_allows(below: Below) -> None:
    async with played_master() as master:
        master.confirms = False
        below.add(*[b"x"] * (limits.BATCHES_IN_FLIGHT * limits.BATCH_ITEMS * 3))
        async with uplink_part(below, master.address, echo_seconds=0.2):
            await until(lambda: len(master.batches()) >= limits.BATCHES_IN_FLIGHT, what="a full window")
            echoes = sum(isinstance(frame, frames.Echo) for frame in master.heard)
            await until(
                lambda: sum(isinstance(frame, frames.Echo) for frame in master.heard) >= echoes + 2, what="some time"
            )
            under_way = master.batches()
            assert len(under_way) <= limits.BATCHES_IN_FLIGHT + 1
            await master.say(frames.Confirmed(EPOCH, "returns", under_way[0].items[-1][0]))
            await until(lambda: len(master.batches()) > len(under_way), what="the next one")
            master.confirms = True
            await master.say(frames.Confirmed(EPOCH, "returns", master.batches()[-1].items[-1][0]))
            await until(lambda: not below.items, what="all of it")
    sequences = [sequence for batch in master.batches() for sequence, _ in batch.items]
    assert sequences == sorted(set(sequences))
    assert all(sum(len(body) for _, body in batch.items) <= limits.BATCH_BYTES for batch in master.batches())


async def test_a_batch_says_what_it_follows(below: Below) -> None:
    async with played_master() as master:
        below.add(*[b"x"] * (limits.BATCH_ITEMS + 5))
        async with uplink_part(below, master.address):
            await until(lambda: not below.items, what="all of it")
    assert [(batch.after, len(batch.items)) for batch in master.batches()] == [
        (0, limits.BATCH_ITEMS),
        (limits.BATCH_ITEMS, 5),
    ]


async def test_a_store_from_a_backup_goes_on_under_a_new_epoch(below: Below) -> None:
    """Its numbers would be those of items that the master has had."""
    async with played_master() as master:
        below.add(b"one", b"two")
        master.first_welcomes = [frames.SiteWelcome("played", {"returns": 7}, 0)]
        async with uplink_part(below, master.address):
            await until(lambda: not below.items, what="both items")
    assert [frame.epoch for frame in master.heard if isinstance(frame, frames.SiteHello)] == below.epochs
    assert len(set(below.epochs)) == 2
    assert [(batch.epoch, batch.after) for batch in master.batches()] == [(below.epoch, 0)]


async def test_a_disk_that_does_not_answer_at_the_welcome_costs_the_link_and_not_the_station(below: Below) -> None:
    below.failing = True
    async with played_master() as master, uplink_part(below, master.address) as uplink:
        await until(lambda: uplink.status()["last_error"], what="the loss")
        assert "disk does not answer" in uplink.status()["last_error"]
        below.failing = False
        await until(lambda: connected(uplink), what="the link")


async def test_what_a_master_has_already_is_let_go_at_the_welcome(below: Below) -> None:
    async with played_master() as master:
        below.add(b"one", b"two", b"three")
        below.roll.add(record(1), record(2))
        master.welcome = frames.SiteWelcome("played", {"returns": 2}, 1)
        async with uplink_part(below, master.address):
            await until(lambda: not below.items, what="the third")
            await until(
                lambda: any(isinstance(frame, frames.DeviceRecords) for frame in master.heard), what="the registry"
            )
        assert [batch.items for batch in master.batches()] == [[(3, b"three")]]
        pages = [frame for frame in master.heard if isinstance(frame, frames.DeviceRecords)]
        assert [entry.revision for page in pages for entry in page.records] == [2]


async def test_a_registry_goes_up_page_by_page(below: Below) -> None:
    async with played_master() as master:
        below.roll.add(*(record(number) for number in range(1, limits.REGISTRY_PAGE + 11)))
        async with uplink_part(below, master.address):

            def pages() -> list[int]:
                found = [frame for frame in master.heard if isinstance(frame, frames.DeviceRecords)]
                return [len(page.records) for page in found]

            await until(lambda: pages() == [limits.REGISTRY_PAGE, 10], what="two pages")
            below.roll.add(record(5000))
            await until(lambda: pages() == [limits.REGISTRY_PAGE, 10, 1], what="the change")


@pytest.mark.parametrize("confirms", [True, False], ids=["confirmed", "never confirmed"])
async def test_a_gateway_that_stops_says_goodbye(confirms: bool, below: Below, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Uplink, "drain_seconds", 1.0)
    async with played_master() as master:
        master.confirms = confirms
        async with uplink_part(below, master.address) as uplink:
            await until(lambda: connected(uplink), what="the link")
            below.add(b"the last word")
        await until(lambda: any(isinstance(frame, frames.Bye) for frame in master.heard), what="the goodbye")
        assert bool(below.items) != confirms


async def test_an_address_that_changes_while_a_gateway_stops_cuts_no_farewell_short(
    below: Below, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Uplink, "drain_seconds", 60.0)
    async with played_master() as master, uplink_part(below, master.address) as uplink:
        await until(lambda: connected(uplink), what="the link")
        master.confirms = False
        below.add(b"the last word")
        await until(master.batches, what="the last word")
        async with asyncio.TaskGroup() as group:
            group.create_task(uplink.drain())
            await asyncio.sleep(0)
            uplink.replace_masters([MasterAddress("tcp://127.0.0.1:9", master.keys.public)])
            (batch,) = master.batches()
            await master.say(frames.Confirmed(batch.epoch, batch.stream, batch.items[-1][0]))
        assert not below.items


async def test_another_list_of_masters_is_used_at_once(below: Below) -> None:
    async with played_master() as first, played_master() as second, uplink_part(below, first.address) as uplink:
        await until(lambda: connected(uplink), what="the first")
        uplink.replace_masters([first.address])
        uplink.replace_masters([second.address, first.address])
        await until(lambda: second.hellos == 1 and connected(uplink), what="the second")
        await until(lambda: uplink.status()["master"] == second.address.address, what="the second is active")
        assert first.hellos == 1


@pytest.mark.parametrize("where", ["connected to the last", "waiting for another round", "asking the last"])
async def test_a_shorter_list_is_used_wherever_the_walk_is(
    where: str, below: Below, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with played_master() as first, played_master() as last, played_master() as good:
        first.welcome = frames.SiteRefused("rejected", "no")
        last.answers = where != "asking the last"
        monkeypatch.setattr(link_module, "HELLO_SECONDS", 60.0)
        async with uplink_part(below, first.address, last.address) as uplink:
            if where == "asking the last":
                await until(lambda: last.hellos == 1, what=where)
            else:
                await until(lambda: connected(uplink), what=where)
            if where == "waiting for another round":
                monkeypatch.setattr("random.SystemRandom.uniform", lambda *_: 60.0)
                await last.goes_away()
                await until(lambda: uplink.status()["links"][1]["state"] == "waiting", what=where)
            uplink.replace_masters([good.address])
            # The API may ask at any moment.
            assert uplink.status()["masters"] == [good.address.address]
            await until(lambda: good.hellos == 1 and connected(uplink), what="the only one")
            assert uplink.status()["master"] == good.address.address


@pytest.mark.parametrize("turns", range(8))
async def test_a_link_that_is_lost_in_the_moment_of_the_stop_does_not_hold_it_up(turns: int, below: Below) -> None:
    async with (
        played_master() as first,
        played_master() as other,
        asyncio.timeout(60),
        uplink_part(below, first.address) as uplink,
    ):
        await until(lambda: connected(uplink), what="the link")
        uplink.replace_masters([other.address])
        for _ in range(turns):
            await asyncio.sleep(0)


async def test_the_next_attempt_is_told_while_it_is_waited_for(below: Below, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.SystemRandom.uniform", lambda *_: 30.0)
    async with played_master() as master:
        master.welcome = frames.SiteRefused("denied", "another key")
        async with uplink_part(below, master.address) as uplink:
            await until(lambda: uplink.status()["state"] == "waiting", what="the wait")
            status = uplink.status()
            assert status["next_attempt"] > status["since"]
            assert status["last_error"] == "denied: another key"
            assert (await asyncio.to_thread(lambda: master.hellos)) == 1


async def test_an_echo_is_sent_as_often_as_it_was_agreed(below: Below) -> None:
    async with played_master() as master, uplink_part(below, master.address, echo_seconds=ECHO_SECONDS):
        await until(lambda: sum(isinstance(frame, frames.Echo) for frame in master.heard) >= 3, what="three echoes")
        nonces = [frame.nonce for frame in master.heard if isinstance(frame, frames.Echo)]
        assert nonces[:3] == [1, 2, 3]
