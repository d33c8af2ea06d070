"""The gateway's end of the rope with several masters: who gets the spool, and what comes over links that stand by."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from device_agent.clock import Clock
from device_agent.protocol import limits
from device_agent.protocol.messages import Cancel
from tests.peers.ports import EPOCH, Above, Below
from tests.peers.rope import PlayedMaster, connected, master_of, new_keys, played_master, uplink_part
from tests.peers.waiting import until
from upstream import frames
from upstream import link as link_module
from upstream.uplink import MasterAddress, Uplink

JID = "20261121031500000000"
FAILOVER: dict[str, Any] = {"master_type": "failover"}
SILENT_SECONDS = 2.0
"""After so long a master is lost where its silence is what a test is about; else it says itself that it goes."""


@pytest.fixture
def below() -> Below:
    return Below()


@pytest.fixture(autouse=True)
def quick_hello(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master that does not answer is given up soon, and tried again soon."""
    monkeypatch.setattr(link_module, "HELLO_SECONDS", 1.0)
    monkeypatch.setattr(link_module, "FIRST_WAIT_SECONDS", 0.02)
    monkeypatch.setattr(link_module, "ROUND_CEILING_SECONDS", 0.05)


@pytest.fixture
async def masters() -> AsyncIterator[list[PlayedMaster]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(played_master()) for _ in range(3)]


def roles(uplink: Uplink) -> list[str]:
    """What each link is, in the order of the list."""
    return [link["role"] for link in uplink.status()["links"]]


def items(master: PlayedMaster) -> list[int]:
    """The sequences of what came of the spool."""
    return [sequence for batch in master.batches() for sequence, _ in batch.items]


def addresses(masters: list[PlayedMaster]) -> list[MasterAddress]:
    return [master.address for master in masters]


@asynccontextmanager
async def three_links(masters: list[PlayedMaster], below: Below, **rules: Any) -> AsyncIterator[Uplink]:
    """The first is fed, the others stand by, and all know. However busy the machine is, nobody is given up before."""
    with pytest.MonkeyPatch.context() as patience:
        patience.setattr(link_module, "HELLO_SECONDS", 60.0)
        async with uplink_part(below, *addresses(masters), **rules) as uplink:
            await until(lambda: roles(uplink) == ["active", "standby", "standby"], what="three links")
            await until(lambda: all(master.roles for master in masters), what="each knows what it is")
            patience.undo()
            yield uplink


async def test_when_the_active_master_is_lost_the_next_one_is_fed_over_the_link_it_has(
    masters: list[PlayedMaster], below: Below
) -> None:
    first, second, third = masters
    async with three_links(masters, below, master_alive_interval=SILENT_SECONDS, **FAILOVER) as uplink:
        below.add(b"one")
        await until(lambda: not below.items, what="the first item")
        first.answers = False
        below.add(b"two")
        await until(lambda: not below.items, what="the second item")
        assert roles(uplink) == ["", "active", "standby"]
        assert uplink.status()["master"] == second.address.address
        assert connected(uplink)
        # Without failback the first one stands by when it is back.
        first.answers = True
        await until(lambda: roles(uplink) == ["standby", "active", "standby"], what="the first is back")
        below.add(b"three")
        await until(lambda: not below.items, what="the third item")
    assert (second.hellos, third.hellos) == (1, 1)
    assert (items(second), items(third)) == ([2, 3], [])
    assert (second.roles, third.roles) == ([False, True], [False])
    # What was under way to the lost one may be there as well, and nothing more.
    assert items(first) in ([1], [1, 2])


async def test_the_list_is_recycled(masters: list[PlayedMaster], below: Below) -> None:
    async with three_links(masters, below, **FAILOVER) as uplink:
        for turn in range(6):
            lost, following = masters[turn % 3], masters[(turn + 1) % 3]
            await lost.goes_away()
            await until(lambda: following.roles[-1], what=f"turn {turn}")  # noqa: B023 - awaited at once
            below.add(b"%d" % turn)
            await until(lambda: not below.items, what="the item")
            assert turn + 1 in items(following)
            lost.answers = True
            await until(lambda: roles(uplink).count("standby") == 2, what="all are back")
            await until(lambda: not lost.roles[-1], what="it knows that it stands by")  # noqa: B023 - awaited at once


async def test_failback_after_its_interval(masters: list[PlayedMaster], below: Below) -> None:
    first, second, _ = masters
    rules = {**FAILOVER, "master_failback": True, "master_failback_interval": 4.0}
    async with three_links(masters, below, **rules) as uplink:
        await first.goes_away()
        await until(lambda: roles(uplink) == ["", "active", "standby"], what="the second is active")
        first.answers = True
        await until(lambda: roles(uplink) == ["standby", "active", "standby"], what="the first is back")
        back = next(link["since"] for link in uplink.status()["links"])
        await until(lambda: roles(uplink) == ["active", "standby", "standby"], what="failback")
        assert uplink.status()["since"] == back, "over the link it had"
        await until(lambda: second.roles == [False, True, False], what="the second is told")
        below.add(b"one")
        await until(lambda: not below.items, what="the item")
        assert (items(first), items(second)) == ([1], [])


async def test_a_master_that_flaps_does_not_get_the_spool_back_and_nothing_is_lost(
    masters: list[PlayedMaster], below: Below
) -> None:
    first = masters[0]
    rules = {**FAILOVER, "master_failback": True, "master_failback_interval": 30.0}
    async with three_links(masters, below, **rules) as uplink:
        for turn in range(8):
            hellos = first.hellos
            await first.say(frames.HelloAgain())
            below.add(b"%d" % turn)
            await until(lambda: first.hellos > hellos, what="it comes again")  # noqa: B023 - awaited at once
            await until(lambda: roles(uplink) == ["standby", "active", "standby"], what="it stands by")
            await until(lambda: not below.items, what="the item")
    assert first.roles.count(True) == 1
    assert sorted({*items(first), *items(masters[1])}) == list(range(1, 9))


async def test_jobs_and_cancels_of_every_master_are_taken_and_the_registry_goes_to_every_one(
    masters: list[PlayedMaster], below: Below
) -> None:
    async with three_links(masters, below):
        for number, master in enumerate(masters):
            await master.say(frames.SiteJob(b"%d" % number, 5.0), Cancel(f"2026112103150000000{number}"))
        await until(lambda: len(below.cancelled) == 3, what="three cancels")
        given = {(job.definition, master) for job, _, master in below.jobs}
        assert given == {(b"%d" % number, master.keys.public) for number, master in enumerate(masters)}
        below.roll.add(_record(1))
        await until(lambda: all(_records(master) == [1] for master in masters), what="the registry at every master")
        for number in range(2, 40):
            below.roll.add(_record(number))
        await until(lambda: all(_records(master)[-1] == 39 for master in masters), what="all of its changes")


async def test_seals_are_asked_of_the_master_that_gave_the_job_or_else_of_the_active_one(
    masters: list[PlayedMaster], below: Below
) -> None:
    def asked(master: PlayedMaster) -> list[str]:
        return [frame.reason for frame in master.heard if isinstance(frame, frames.Reseal)]

    async with three_links(masters, below, **FAILOVER) as uplink:
        await uplink.reseal("lisbon", JID, "given by the third", masters[2].keys.public)
        await uplink.reseal("lisbon", JID, "given by nobody", new_keys().public)
        await until(lambda: asked(masters[2]), what="the question to the third")
        await until(lambda: asked(masters[0]), what="the question to the first")
        await masters[2].goes_away()
        await until(lambda: roles(uplink)[2] == "", what="the third is lost")
        await uplink.reseal("lisbon", JID, "while it is away", masters[2].keys.public)
        await until(lambda: len(asked(masters[0])) == 2, what="the question to the first")
        assert [asked(master) for master in masters] == [
            ["given by nobody", "while it is away"],
            [],
            ["given by the third"],
        ]


async def test_the_link_is_lost_in_the_middle_of_batches_and_the_next_one_gets_all_that_was_not_confirmed(
    masters: list[PlayedMaster], below: Below
) -> None:
    first, second, _ = masters
    async with three_links(masters, below, **FAILOVER):
        first.confirms = False
        count = limits.BATCHES_IN_FLIGHT * limits.BATCH_ITEMS * 3
        below.add(*[b"x"] * count)
        await until(lambda: len(first.batches()) >= limits.BATCHES_IN_FLIGHT, what="a full window")
        await first.say(frames.Confirmed(EPOCH, "returns", first.batches()[0].items[-1][0]))
        confirmed = first.batches()[0].items[-1][0]
        await first.goes_away()
        await until(lambda: not below.items, what="everything is confirmed")
        assert items(second) == list(range(confirmed + 1, count + 1))
        sent = len(first.batches())
        below.add(b"one more")
        await until(lambda: not below.items, what="one more")
        assert len(first.batches()) == sent, "nothing is half running"


async def test_feeding_a_master_again_over_the_same_connection_goes_on_behind_what_it_was_sent(below: Below) -> None:
    """With real masters, that refuse whatever does not chain."""
    above = [Above(), Above()]
    keys = new_keys()
    async with master_of(above[0]) as first, master_of(above[1]) as second:
        for each in above:
            each.states[keys.public] = "accepted"
        pair = [first.address, second.address]
        async with uplink_part(below, *pair, keys=keys) as uplink:
            await until(lambda: roles(uplink) == ["active", "standby"], what="two links")
            for turn in range(20):
                below.add(*[b"%d" % turn] * 50)
                if turn % 2:
                    await until(lambda: not below.items, what="the items")
                pair.reverse()
                uplink.replace_masters(pair)
            await until(lambda: not below.items, what="the items")
            await until(lambda: [each.roles["lisbon"] for each in above] == [True, False], what="the roles are told")
    assert [each.up for each in above] == [["lisbon"], ["lisbon"]], "no link was lost"
    assert [each.reasons for each in above] == [{}, {}]
    got = [dict(each.items["lisbon"]) for each in above]
    assert sorted({**got[0], **got[1]}) == list(range(1, 1001))
    assert all(len(each.items["lisbon"]) == len(dict(each.items["lisbon"])) for each in above), "nothing twice"


async def test_a_gateway_that_was_held_up_itself_does_not_take_its_masters_for_lost(
    masters: list[PlayedMaster], below: Below
) -> None:
    async with three_links(masters, below, master_alive_interval=SILENT_SECONDS, **FAILOVER):
        clock = Clock()
        end = clock.monotonic() + 1.5 * SILENT_SECONDS
        while clock.monotonic() < end:
            pass
        heard = [len(master.heard) for master in masters]
        await until(
            lambda: all(len(master.heard) >= before + 3 for master, before in zip(masters, heard, strict=True)),
            what="the echoes go on",
        )
        assert [master.hellos for master in masters] == [1, 1, 1]


@pytest.mark.parametrize("master_type", ["str", "failover", "hot"])
async def test_it_goes_on_for_ever_with_all_masters_away(
    master_type: str, masters: list[PlayedMaster], below: Below
) -> None:
    for master in masters:
        master.answers = False
    async with uplink_part(below, *addresses(masters), master_type=master_type) as uplink:
        await until(lambda: all(master.hellos >= 5 for master in masters), what="five rounds")
        assert not connected(uplink)
        below.add(b"one")
        masters[2].answers = True
        await until(lambda: not below.items, what="the item")
        assert uplink.status()["master"] == masters[2].address.address


async def test_in_hot_mode_the_first_that_is_up_is_fed_and_the_others_get_nothing(
    masters: list[PlayedMaster], below: Below
) -> None:
    first, second, third = masters
    first.answers = False
    async with uplink_part(below, *addresses(masters), master_type="hot") as uplink:
        await until(lambda: roles(uplink) == ["", "active", "standby"], what="two links")
        below.add(b"one")
        await until(lambda: not below.items, what="the first item")
        first.answers = True
        await until(lambda: roles(uplink) == ["active", "standby", "standby"], what="three links")
        below.add(b"two")
        await until(lambda: not below.items, what="the second item")
    assert (items(first), items(second), items(third)) == ([2], [1], [])


async def test_a_master_with_several_addresses_has_one_link(below: Below) -> None:
    async with played_master() as master, played_master() as other:
        nowhere = MasterAddress("tcp://127.0.0.1:1", master.keys.public)
        async with uplink_part(below, nowhere, master.address, other.address) as uplink:
            await until(lambda: roles(uplink) == ["active", "standby"], what="two links")
            assert [link["address"] for link in uplink.status()["links"]] == [
                master.address.address,
                other.address.address,
            ]
            assert uplink.status()["masters"][0] == nowhere.address
            hellos = (master.hellos, other.hellos)
            uplink.replace_masters([master.address, other.address])
            await until(lambda: roles(uplink) == ["active", "standby"], what="two links")
            assert (master.hellos, other.hellos) == hellos


async def test_a_shuffled_list_is_drawn_once(
    masters: list[PlayedMaster], below: Below, monkeypatch: pytest.MonkeyPatch
) -> None:
    lots = iter([0.9, 0.1, 0.5])
    monkeypatch.setattr("random.SystemRandom.random", lambda _: next(lots, 0.0))
    async with uplink_part(below, *addresses(masters), master_shuffle=True, **FAILOVER) as uplink:
        await until(lambda: roles(uplink) == ["active", "standby", "standby"], what="three links")
        assert uplink.status()["master"] == masters[1].address.address
        uplink.replace_masters(addresses([masters[2], masters[0], masters[1]]))
        drawn = [masters[1], masters[2], masters[0]]
        assert [link["address"] for link in uplink.status()["links"]] == [master.address.address for master in drawn]


async def test_after_a_loss_each_gateway_waits_its_own_time(
    masters: list[PlayedMaster], below: Below, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds: list[float] = []

    def longest(_: object, low: float, high: float) -> float:
        bounds.append(high)
        return high

    async with uplink_part(below, *addresses(masters[:2]), random_reauth_delay=30.0) as uplink:
        await until(lambda: roles(uplink) == ["active", "standby"], what="two links")
        monkeypatch.setattr("random.SystemRandom.uniform", longest)
        await masters[0].say(frames.HelloAgain())
        await until(lambda: roles(uplink) == ["", "active"], what="the switch, which does not wait")
        lost = uplink.status()["links"][0]
        assert (lost["state"], max(bounds)) == ("waiting", 30.0)
        assert lost["next_attempt"] > lost["since"]


async def test_a_store_that_goes_on_under_a_new_epoch_says_so_to_every_master(
    masters: list[PlayedMaster], below: Below
) -> None:
    async with uplink_part(below, *addresses(masters[:2])) as uplink:
        await until(lambda: roles(uplink) == ["active", "standby"], what="two links")
        masters[1].welcome = frames.SiteWelcome("played", {"returns": 7}, 0)
        await masters[1].say(frames.HelloAgain())
        await until(lambda: below.reasons["false_position"], what="the refusal of what it cannot know")
        assert len(below.epochs) == 2, "one that says so for ever is not believed for ever"
        await until(lambda: roles(uplink)[0] == "active", what="the other master, which is not disturbed")
        masters[1].welcome = frames.SiteWelcome("played", {}, 0)
        await until(lambda: all(_epochs(master)[-1] == below.epoch for master in masters[:2]), what="two hellos")
        below.add(b"one")
        await until(lambda: not below.items, what="the item")
    assert [batch.epoch for batch in masters[0].batches()] == [below.epoch]


def _epochs(master: PlayedMaster) -> list[str]:
    return [frame.epoch for frame in master.heard if isinstance(frame, frames.SiteHello)]


def _records(master: PlayedMaster) -> list[int]:
    pages = [frame for frame in master.heard if isinstance(frame, frames.DeviceRecords)]
    return [record.revision for page in pages for record in page.records]


def _record(number: int) -> frames.DeviceRecord:
    return frames.DeviceRecord(
        id=f"cam-{number}",
        site="lisbon",
        link="mqtt",
        agent="0.1.0",
        grains=b"\x80",
        present=True,
        first_seen=1.0,
        last_seen=2.0,
        revision=number,
    )
