"""The rope: both real ends on real sockets with real CURVE, and each of them against an end that misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from device_agent.errors import ConfigInvalid
from device_agent.protocol import limits
from device_agent.protocol.messages import Cancel, Deliver, encode_value
from tests.peers.clock import HandClock
from tests.peers.rope import (
    ECHO_SECONDS,
    EPOCH,
    Above,
    Below,
    PlayedSite,
    connected,
    new_keys,
    played_master,
    played_site,
    sites_part,
    uplink_part,
)
from tests.peers.waiting import until
from upstream import frames
from upstream import sites as sites_module
from upstream import uplink as uplink_module
from upstream.sites import Sites
from upstream.uplink import MasterAddress, Uplink

JID = "20261121031500000000"


@pytest.fixture
def above() -> Above:
    return Above()


@pytest.fixture
def below() -> Below:
    return Below()


@pytest.fixture
def quick_hello(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master that does not answer is given up soon, and the next one is tried soon."""
    monkeypatch.setattr(uplink_module, "HELLO_SECONDS", 0.3)
    monkeypatch.setattr(uplink_module, "ROUND_CEILING_SECONDS", 0.05)


class Master:
    """The real end above, with its keys and its ports."""

    def __init__(self, above: Above, clock: HandClock | None = None) -> None:
        self.above = above
        self.keys = new_keys()
        self.part: Sites = sites_part(above, self.keys, clock=clock)

    @property
    def address(self) -> MasterAddress:
        return MasterAddress(self.part.address, self.keys.public)

    @asynccontextmanager
    async def site(
        self, *, accepted: bool = True, hello: bool = True, name: str = "lisbon"
    ) -> AsyncIterator[PlayedSite]:
        """A connection that the test plays; accepted and welcome unless told otherwise."""
        keys = new_keys()
        if accepted:
            self.above.states[keys.public] = "accepted"
        async with played_site(self.part.address, self.keys.public, keys) as played:
            if hello:
                await played.hello(name)
                if accepted:
                    await played.hears(frames.SiteWelcome)
            yield played


@asynccontextmanager
async def master_of(above: Above, clock: HandClock | None = None) -> AsyncIterator[Master]:
    made = Master(above, clock)
    async with made.part:
        yield made


@pytest.fixture
async def master(above: Above) -> AsyncIterator[Master]:
    async with master_of(above) as made:
        yield made


@asynccontextmanager
async def uplinked(below: Below, *masters: MasterAddress, **given: Any) -> AsyncIterator[Uplink]:
    async with uplink_part(below, masters, **given) as uplink:
        yield uplink


def accept_all(above: Above) -> None:
    """Accept whoever asked so far."""
    for key in above.states:
        above.states[key] = "accepted"


def record(number: int, **changed: Any) -> frames.DeviceRecord:
    given: dict[str, Any] = {
        "id": f"cam-{number}",
        "site": "lisbon",
        "link": "mqtt",
        "agent": "0.1.0",
        "grains": encode_value({"number": number}),
        "present": True,
        "first_seen": 1.0,
        "last_seen": 2.0,
        "revision": number,
        **changed,
    }
    return frames.DeviceRecord(**given)


# --- both real ends --------------------------------------------------------------------------------------------------


async def test_a_site_waits_to_be_accepted_and_then_everything_goes_both_ways(
    master: Master, above: Above, below: Below
) -> None:
    below.add(b"one", b"two")
    below.roll.add(record(1), record(2))
    async with uplinked(below, master.address) as uplink:
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
        await master.part.deliver(b"a job", 12.5, ["lisbon", "nowhere"])
        await master.part.cancel(JID, ["lisbon"])
        await until(lambda: below.cancelled == [JID], what="the cancel")
        assert below.jobs == [(b"a job", 12.5, master.address.address)]
        below.add(b"three")
        await until(lambda: below.confirmed[-1:] == [3], what="the third item")
    await until(lambda: above.down == [("lisbon", "the site stopped")], what="the goodbye")
    assert above.reasons == {}
    assert below.reasons == {}


async def test_a_rejected_site_is_told_and_its_live_link_dropped(master: Master, above: Above, below: Below) -> None:
    keys = new_keys()
    above.states[keys.public] = "accepted"
    async with uplinked(below, master.address, keys=keys) as uplink:
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
    above.items["lisbon"], above.positions["lisbon", EPOCH] = [(n, b"%d" % n) for n in (1, 2, 3)], [3, 0]
    async with uplinked(below, master.address, keys=keys):
        await until(lambda: below.confirmed[-1:] == [5], what="the rest")
    assert above.items["lisbon"] == [(n, b"%d" % n) for n in (1, 2, 3, 4, 5)]


async def test_a_commit_that_outlives_its_link_is_waited_for_and_not_repeated(
    master: Master, above: Above, below: Below, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Uplink, "drain_seconds", 0.2)
    keys = new_keys()
    above.states[keys.public] = "accepted"
    above.disk.clear()
    async with uplinked(below, master.address, keys=keys) as uplink:
        await until(lambda: connected(uplink), what="the link")
        below.add(b"one", b"two")
    await until(lambda: above.down, what="the goodbye")
    async with uplinked(below, master.address, keys=keys) as uplink:
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
    async with uplinked(below, master.address, keys=keys, echo_seconds=0.5) as uplink:
        await until(lambda: connected(uplink), what="the link")
        await until(lambda: above.heard["lisbon"] > limits.BATCHES_IN_FLIGHT, what="a full window")
        above.disk.set()
        await until(lambda: below.items == [], seconds=30, what="every item confirmed")
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
    async with uplinked(below, master.address, keys=keys):
        await until(lambda: len(above.records["lisbon"]) == per_page - 1, what="the registry")


async def test_two_stations_do_not_listen_at_one_address(master: Master, above: Above) -> None:
    async with asyncio.TaskGroup():
        with pytest.raises(ExceptionGroup) as error:
            async with sites_part(above, new_keys(), listen=master.part.address):
                raise AssertionError("two listen at one address")
    assert error.group_contains(ConfigInvalid, match="address for sites")
    async with master.site() as site:
        assert await site.hears_nothing_before_the_echo() == []


# --- the master's end against a site that misbehaves -----------------------------------------------------------------


async def test_a_second_connection_of_a_site_takes_the_place_of_the_first(master: Master, above: Above) -> None:
    keys = new_keys()
    above.states[keys.public] = "accepted"
    address = master.part.address
    async with (
        played_site(address, master.keys.public, keys) as first,
        played_site(address, master.keys.public, keys) as second,
    ):
        await first.hello()
        await first.hears(frames.SiteWelcome)
        await second.hello()
        await second.hears(frames.SiteWelcome)
        await until(lambda: above.up == ["lisbon", "lisbon"], what="both")
        assert above.down == [("lisbon", "it connected again")]
        await first.say(frames.Batch(EPOCH, 0, [(1, b"of the old connection")]))
        await first.hears(frames.HelloAgain)
        assert above.reasons == {"no_hello": 1}
        await master.part.deliver(b"job", 1.0, ["lisbon"])
        assert (await second.hears(Deliver)).job == b"job"
    assert above.items == {}


@pytest.mark.parametrize("said", [frames.Echo(1), frames.Bye(), bytes(2000)], ids=["echo", "goodbye", "much"])
async def test_a_connection_without_a_hello_is_asked_for_one(
    said: frames.FromSite | bytes, master: Master, above: Above
) -> None:
    async with master.site(hello=False) as site:
        await site.say(said)
        await site.hears(frames.HelloAgain)
        assert above.reasons.total() == 1
        await site.hello()
        await site.hears(frames.SiteWelcome)


async def test_a_key_in_quarantine_is_heard_for_a_hello_and_nothing_else(master: Master, above: Above) -> None:
    async with master.site(accepted=False) as site:
        refusal = await site.hears(frames.SiteRefused)
        assert refusal.state == "pending"
        assert "outstation keys accept lisbon" in refusal.reason
        await site.say(
            frames.Batch(EPOCH, 0, [(1, b"item")]),
            frames.DeviceRecords(EPOCH, [record(1)]),
            frames.Echo(1),
            frames.Bye(),
            b"\xc1 nonsense",
            bytes(2000),
        )
        await until(lambda: above.reasons.total() == 6, what="six refusals")
        assert above.reasons == {"not_accepted": 5, "malformed": 1}
        await master.part.deliver(b"secret", 1.0, ["lisbon"])
        accept_all(above)
        await master.part.keys_changed()
        # Nothing of the master's came before the welcome: neither the job nor an echo.
        await site.hears(frames.SiteWelcome)
        assert [type(frame) for frame in site.heard] == [frames.SiteRefused, frames.SiteWelcome]
    assert above.items == {}
    assert above.records == {}


async def test_whoever_brings_no_key_is_not_heard_at_all(master: Master, above: Above) -> None:
    async with played_site(master.part.address, "", curve=False) as site, master.site() as witness:
        await site.try_hello()
        assert await witness.hears_nothing_before_the_echo() == []
        assert [name for name, _ in above.judged] == ["lisbon"]


async def test_whoever_has_the_wrong_key_of_the_master_is_not_heard(master: Master, above: Above) -> None:
    async with (
        played_site(master.part.address, new_keys().public) as site,
        master.site(name="madrid") as witness,
    ):
        await site.try_hello("porto")
        await witness.hears_nothing_before_the_echo()
        assert [name for name, _ in above.judged] == ["madrid"]


async def test_unknown_keys_come_in_at_a_bounded_rate(above: Above) -> None:
    clock = HandClock()
    async with master_of(above, clock) as master:
        admitted = limits.PENDING_KEYS_PER_SECOND
        async with asyncio.TaskGroup() as group:
            done = asyncio.Event()

            async def knock(number: int) -> None:
                async with played_site(master.part.address, master.keys.public) as site:
                    await site.hello(f"site-{number}")
                    async with asyncio.timeout(30):
                        await done.wait()

            for number in range(admitted + 5):
                group.create_task(knock(number))
            await until(lambda: len(above.judged) == admitted, what="as many as the rate lets in")
            await until(lambda: above.reasons["too_many_unknown_keys"] >= 5, what="the others refused")
            async with master.site(name="known") as known:
                assert await known.hears_nothing_before_the_echo() == []
            assert len(above.judged) == admitted + 1
            done.set()


async def test_quarantine_is_bounded_and_the_oldest_gives_way(above: Above, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PENDING_KEYS", 3)
    clock = HandClock()
    async with master_of(above, clock) as master, master.site(accepted=False) as first:
        await first.hears(frames.SiteRefused)
        async with master.site(accepted=False), master.site(accepted=False), master.site(accepted=False) as last:
            await last.hears(frames.SiteRefused)
            await until(lambda: len(above.judged) == 4, what="four")
            assert above.reasons["quarantine_full"] == 1
            assert len(master.part._peers) == 3
            accept_all(above)
            await master.part.keys_changed()
            await last.hears(frames.SiteWelcome)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"", "malformed"),
        (b"\xc1", "malformed"),
        (b"\x93\x01\x02\x03", "wrong_type"),
        (frames.encode(frames.Confirmed(EPOCH, 1)), "wrong_type"),
        (frames.encode(frames.Batch("f" * 16, 0, [(1, b"x")])), "wrong_epoch"),
        (frames.encode(frames.Batch(EPOCH, 0, [(2, b"x"), (1, b"x")])), "out_of_order"),
        (frames.encode(frames.Batch(EPOCH, 7, [(8, b"x")])), "gap"),
        (msgspec.msgpack.encode({"type": "batch", "epoch": EPOCH, "after": 0, "items": [[1, 2]]}), "wrong_type"),
        (frames.encode(frames.DeviceRecords(EPOCH, [record(1, first_seen=float("nan"))])), "wrong_type"),
    ],
)
async def test_a_bad_frame_is_counted_with_its_peer_and_the_next_good_one_is_taken(
    sent: bytes, reason: str, master: Master, above: Above
) -> None:
    async with master.site() as site:
        await site.say(sent, frames.Batch(EPOCH, 0, [(1, b"good")]))
        assert (await site.hears(frames.Confirmed)).sequence == 1
        assert above.reasons == {reason: 1}
        assert above.peers == {"lisbon@127.0.0.1"}
        assert above.items["lisbon"] == [(1, b"good")]


async def test_a_message_of_several_frames_is_refused(master: Master, above: Above) -> None:
    async with master.site() as site:
        await site.socket.send_multipart([b"a", b"b"])
        await until(lambda: above.reasons == {"malformed": 1}, what="the refusal")
        assert await site.hears_nothing_before_the_echo() == []


async def test_a_site_of_another_protocol_is_told_so(master: Master, above: Above) -> None:
    async with master.site(hello=False) as site:
        await site.hello(protocol=2)
        refusal = await site.hears(frames.SiteRefused)
        assert refusal.state == "unsupported"
        assert "protocol 1" in refusal.reason
    assert above.reasons == {"unsupported_protocol": 1}
    assert above.judged == []


async def test_a_message_over_the_bound_ends_its_own_connection_and_no_other(master: Master, above: Above) -> None:
    async with master.site() as site, master.site(name="madrid") as witness:
        await site.say(bytes(limits.UPLINK_FRAME_BYTES + 1))
        await site.say(frames.Echo(1))
        assert await witness.hears_nothing_before_the_echo() == []
        await witness.say(frames.Batch(EPOCH, 0, [(1, b"x")]))
        await witness.hears(frames.Confirmed)
    assert above.items == {"madrid": [(1, b"x")]}


async def test_a_repeated_or_overlapping_batch_is_confirmed_and_taken_once(master: Master, above: Above) -> None:
    async with master.site() as site:
        first = frames.Batch(EPOCH, 0, [(1, b"a"), (2, b"b")])
        await site.say(first, first, frames.Batch(EPOCH, 1, [(2, b"b"), (3, b"c")]))
        assert [(await site.hears(frames.Confirmed)).sequence for _ in range(3)] == [2, 2, 3]
        assert above.items["lisbon"] == [(1, b"a"), (2, b"b"), (3, b"c")]


async def test_a_site_that_floods_is_dropped_and_the_others_are_served(master: Master, above: Above) -> None:
    async with master.site() as site, master.site(name="madrid") as witness:
        above.disk.clear()
        await site.say(*(frames.Batch(EPOCH, n, [(n + 1, b"x")]) for n in range(sites_module.QUEUED_FRAMES + 10)))
        await until(lambda: above.reasons["flooding"] == 1, what="the flood is noticed")
        assert ("lisbon", "it sent more than may be under way") in above.down
        assert not master.part.connected("lisbon")
        assert await witness.hears_nothing_before_the_echo() == []
        assert master.part.connected("madrid")
        above.disk.set()
        await site.hears(frames.HelloAgain)
    assert len(above.items["lisbon"]) <= 1


async def test_one_slow_commit_does_not_hold_up_another_site(above: Above, master: Master) -> None:
    async with master.site() as slow, master.site(name="madrid") as witness:
        above.disk.clear()
        await slow.say(frames.Batch(EPOCH, 0, [(1, b"x")]))
        await until(lambda: above.heard["lisbon"] == 1, what="the batch")
        assert await witness.hears_nothing_before_the_echo() == []
        # The slow one's own echo is answered too: the loop that answers is not the one that writes.
        assert await slow.hears_nothing_before_the_echo() == []
        above.disk.set()
        await slow.hears(frames.Confirmed)


async def test_what_could_not_be_kept_is_not_confirmed_and_may_come_again(master: Master, above: Above) -> None:
    above.full = True
    async with master.site() as site:
        await site.say(frames.Batch(EPOCH, 0, [(1, b"x")]))
        await until(lambda: above.down == [("lisbon", "what it sent could not be kept")], what="the drop")
        assert above.reasons["not_kept"] == 1
        above.full = False
    async with master.site() as site:
        await site.say(frames.Batch(EPOCH, 0, [(1, b"x")]))
        assert (await site.hears(frames.Confirmed)).sequence == 1
    assert above.items["lisbon"] == [(1, b"x")]


async def test_a_site_that_says_nothing_is_dark(above: Above) -> None:
    clock = HandClock()
    async with master_of(above, clock) as master, master.site() as talker, master.site(name="madrid"):
        clock.move(sites_module.SILENT_SECONDS - 1)
        await talker.hears_nothing_before_the_echo()
        clock.move(2)
        await until(lambda: above.down, what="one is dark")
        assert [site for site, _ in above.down] == ["madrid"]
        assert master.part.connected("lisbon")


async def test_many_hellos_on_one_connection_are_judged_once(above: Above) -> None:
    async with master_of(above, HandClock()) as master, master.site(accepted=False) as site:
        await site.hears(frames.SiteRefused)
        for number in range(50):
            await site.hello(f"name-{number}")
        await until(lambda: above.reasons["hello_too_often"] == 50, what="fifty refusals")
        assert above.judged[0][0] == "lisbon"
        assert len(above.judged) == 1


# --- the gateway's end against a master that misbehaves --------------------------------------------------------------


async def test_a_half_open_link_is_noticed_by_the_echo(below: Below) -> None:
    async with played_master() as frozen, uplinked(below, frozen.address) as uplink:
        await until(lambda: connected(uplink), what="the link")
        frozen.answers = False
        await until(lambda: not connected(uplink), what="the loss")
        assert "no echo" in uplink.status()["last_error"]
        frozen.answers = True
        await until(lambda: connected(uplink), what="the link again")
        assert frozen.hellos >= 2


async def test_a_master_that_has_forgotten_the_connection_gets_a_new_one(below: Below) -> None:
    async with played_master() as master, uplinked(below, master.address) as uplink:
        await until(lambda: connected(uplink), what="the link")
        await master.say(frames.HelloAgain())
        await until(lambda: master.hellos == 2 and connected(uplink), what="the second link")


@pytest.mark.usefixtures("quick_hello")
async def test_masters_that_do_not_answer_are_passed_over_in_the_order_of_the_list(below: Below) -> None:
    async with played_master() as silent, played_master() as refusing, played_master() as good:
        silent.answers = False
        refusing.welcome = frames.SiteRefused("rejected", "no")
        masters = [silent.address, refusing.address, good.address]
        async with uplinked(below, *masters) as uplink:
            await until(lambda: connected(uplink), what="the third of them")
            assert uplink.status()["master"] == good.address.address
            assert uplink.status()["masters"] == [master.address for master in masters]
            assert (silent.hellos, refusing.hellos, good.hellos) == (1, 1, 1)


@pytest.mark.usefixtures("quick_hello")
async def test_at_the_end_of_the_list_the_walk_starts_over(below: Below) -> None:
    async with played_master() as first, played_master() as second:
        first.answers = second.answers = False
        async with uplinked(below, first.address, second.address) as uplink:
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
        async with uplinked(below, first.address, second.address):
            await until(lambda: second.hellos >= 5, what="five rounds")
    assert bounds[:4] == [0.5, 1.0, 2.0, 4.0]


@pytest.mark.usefixtures("quick_hello")
@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "tcp://no.such.host.invalid:4510", "tcp://127.0.0.1:99999"])
async def test_an_address_that_leads_nowhere_is_only_another_master_that_does_not_answer(
    address: str, below: Below
) -> None:
    async with played_master() as good:
        nowhere = MasterAddress(address, new_keys().public)
        async with uplinked(below, nowhere, good.address) as uplink:
            await until(lambda: connected(uplink), what="the second of them")


@pytest.mark.usefixtures("quick_hello")
async def test_a_key_that_is_none_does_not_end_the_station(below: Below) -> None:
    async with played_master() as good:
        broken = MasterAddress(good.address.address, "#" * 40)
        async with uplinked(below, broken, good.address) as uplink:
            await until(lambda: connected(uplink), what="the second of them")


@pytest.mark.usefixtures("quick_hello")
async def test_a_master_with_another_key_than_the_settings_say_is_not_spoken_to(below: Below) -> None:
    async with played_master() as impostor, played_master() as good:
        wrong = MasterAddress(impostor.address.address, new_keys().public)
        async with uplinked(below, wrong, good.address) as uplink:
            await until(lambda: connected(uplink), what="the good one")
            assert impostor.heard == []


async def test_bad_frames_of_a_master_are_counted_and_cost_nothing_else(below: Below) -> None:
    async with played_master() as master, uplinked(below, master.address) as uplink:
        await until(lambda: connected(uplink), what="the link")
        await master.say(
            b"\xc1",
            b"",
            frames.encode(frames.Bye()),
            [b"two", b"frames"],
            frames.encode(Deliver(b"x", float("nan"))),
            frames.encode(Cancel("no jid")),
            Deliver(b"a good one", 5.0),
        )
        await until(lambda: below.jobs, what="the good one")
        assert below.jobs[0][:2] == (b"a good one", 5.0)
        assert below.reasons == {"malformed": 3, "wrong_type": 3}
        assert connected(uplink)
        assert master.hellos == 1


async def test_before_a_welcome_nothing_of_a_master_is_taken(below: Below) -> None:
    async with played_master() as master:
        master.welcome = Deliver(b"a job of nobody", 5.0)
        async with uplinked(below, master.address) as uplink:
            await until(lambda: below.reasons["before_welcome"] == 1, what="the refusal")
            await master.say(frames.SiteWelcome("played", 0, 0))
            await until(lambda: connected(uplink), what="the link")
    assert below.jobs == []


async def test_a_confirmation_of_another_store_lets_nothing_go(below: Below) -> None:
    async with played_master() as master:
        master.confirms = False
        below.add(b"one", b"two")
        async with uplinked(below, master.address):
            await until(master.batches, what="the batch")
            await master.say(frames.Confirmed("f" * 16, 2), frames.Confirmed(EPOCH, 1))
            await until(lambda: below.confirmed[-1:] == [1], what="the true one")
            assert below.items == [(2, b"two")]
            await master.say(frames.Confirmed(EPOCH, 2))
            await until(lambda: not below.items, what="the rest")


async def test_no_more_is_under_way_than_the_protocol_allows(below: Below) -> None:
    async with played_master() as master:
        master.confirms = False
        # Three of these are too many for one batch.
        below.add(*[bytes(limits.MESSAGE_BYTES)] * (limits.BATCHES_IN_FLIGHT * 8))
        async with uplinked(below, master.address, echo_seconds=0.2):
            await until(lambda: len(master.batches()) >= limits.BATCHES_IN_FLIGHT, what="a full window")
            echoes = sum(isinstance(frame, frames.Echo) for frame in master.heard)
            await until(
                lambda: sum(isinstance(frame, frames.Echo) for frame in master.heard) >= echoes + 2, what="some time"
            )
            under_way = master.batches()
            assert len(under_way) <= limits.BATCHES_IN_FLIGHT + 1
            await master.say(frames.Confirmed(EPOCH, under_way[0].items[-1][0]))
            await until(lambda: len(master.batches()) > len(under_way), what="the next one")
            master.confirms = True
            await master.say(frames.Confirmed(EPOCH, master.batches()[-1].items[-1][0]))
            await until(lambda: not below.items, what="all of it")
    sequences = [sequence for batch in master.batches() for sequence, _ in batch.items]
    assert sequences == sorted(set(sequences))
    assert all(sum(len(body) for _, body in batch.items) <= limits.BATCH_BYTES for batch in master.batches())


async def test_a_batch_says_what_it_follows(below: Below) -> None:
    async with played_master() as master:
        below.add(*[b"x"] * (limits.BATCH_ITEMS + 5))
        async with uplinked(below, master.address):
            await until(lambda: not below.items, what="all of it")
    assert [(batch.after, len(batch.items)) for batch in master.batches()] == [
        (0, limits.BATCH_ITEMS),
        (limits.BATCH_ITEMS, 5),
    ]


async def test_a_store_from_a_backup_goes_on_under_a_new_epoch(below: Below) -> None:
    """Its numbers would be those of items that the master has had."""
    async with played_master() as master:
        below.add(b"one", b"two")
        master.welcome = frames.SiteWelcome("played", 7, 0)
        async with uplinked(below, master.address):
            await until(lambda: master.hellos == 1, what="the first hello")
            master.welcome = frames.SiteWelcome("played", 0, 0)
            await until(lambda: not below.items, what="both items")
    assert [frame.epoch for frame in master.heard if isinstance(frame, frames.SiteHello)] == below.epochs
    assert len(set(below.epochs)) == 2
    assert [(batch.epoch, batch.after) for batch in master.batches()] == [(below.epoch, 0)]


async def test_a_disk_that_does_not_answer_at_the_welcome_costs_the_link_and_not_the_station(below: Below) -> None:
    below.failing = True
    async with played_master() as master, uplinked(below, master.address) as uplink:
        await until(lambda: uplink.status()["last_error"], what="the loss")
        assert "disk does not answer" in uplink.status()["last_error"]
        below.failing = False
        await until(lambda: connected(uplink), what="the link")


async def test_what_a_master_has_already_is_let_go_at_the_welcome(below: Below) -> None:
    async with played_master() as master:
        below.add(b"one", b"two", b"three")
        below.roll.add(record(1), record(2))
        master.welcome = frames.SiteWelcome("played", 2, 1)
        async with uplinked(below, master.address):
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
        async with uplinked(below, master.address):

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
        async with uplinked(below, master.address) as uplink:
            await until(lambda: connected(uplink), what="the link")
            below.add(b"the last word")
        await until(lambda: any(isinstance(frame, frames.Bye) for frame in master.heard), what="the goodbye")
        assert bool(below.items) != confirms


async def test_another_list_of_masters_is_used_at_once(below: Below) -> None:
    async with played_master() as first, played_master() as second, uplinked(below, first.address) as uplink:
        await until(lambda: connected(uplink), what="the first")
        uplink.replace_masters([first.address])
        uplink.replace_masters([second.address, first.address])
        await until(lambda: second.hellos == 1 and connected(uplink), what="the second")
        assert first.hellos == 1


@pytest.mark.usefixtures("quick_hello")
@pytest.mark.parametrize("where", ["connected to the last", "waiting for another round", "asking the last"])
async def test_a_shorter_list_is_used_wherever_the_walk_is(
    where: str, below: Below, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with played_master() as first, played_master() as last, played_master() as good:
        first.answers = last.answers = False
        state: Callable[[Uplink], bool]
        if where == "connected to the last":
            last.answers = True
            state = connected
        elif where == "waiting for another round":
            monkeypatch.setattr("random.SystemRandom.uniform", lambda *_: 30.0)
            last.answers = True
            state = connected
        else:
            monkeypatch.setattr(uplink_module, "HELLO_SECONDS", 30.0)
            first.answers = True
            first.welcome = frames.SiteRefused("rejected", "no")

            def state(uplink: Uplink) -> bool:
                return last.hellos == 1

        async with uplinked(below, first.address, last.address) as uplink:
            await until(lambda: state(uplink), what=where)
            if where == "waiting for another round":
                last.answers = False
                await until(lambda: uplink.status()["state"] == "waiting", what=where)
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
        asyncio.timeout(10),
        uplinked(below, first.address) as uplink,
    ):
        await until(lambda: connected(uplink), what="the link")
        uplink.replace_masters([other.address])
        for _ in range(turns):
            await asyncio.sleep(0)


async def test_the_next_attempt_is_told_while_it_is_waited_for(below: Below, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.SystemRandom.uniform", lambda *_: 30.0)
    async with played_master() as master:
        master.welcome = frames.SiteRefused("denied", "another key")
        async with uplinked(below, master.address) as uplink:
            await until(lambda: uplink.status()["state"] == "waiting", what="the wait")
            status = uplink.status()
            assert status["next_attempt"] > status["since"]
            assert status["last_error"] == "denied: another key"
            assert (await asyncio.to_thread(lambda: master.hellos)) == 1


async def test_an_echo_is_sent_as_often_as_it_was_agreed(below: Below) -> None:
    async with played_master() as master, uplinked(below, master.address, echo_seconds=ECHO_SECONDS):
        await until(lambda: sum(isinstance(frame, frames.Echo) for frame in master.heard) >= 3, what="three echoes")
        nonces = [frame.nonce for frame in master.heard if isinstance(frame, frames.Echo)]
        assert nonces[:3] == [1, 2, 3]
