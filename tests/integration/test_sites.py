"""The master's end of the rope against sites that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
import zmq

from device_agent.protocol import limits
from device_agent.protocol.links import Parcel
from tests.peers.clock import HandClock
from tests.peers.ports import EPOCH, Above
from tests.peers.rope import (
    Master,
    accept_all,
    master_of,
    new_keys,
    played_site,
    record,
)
from tests.peers.waiting import until
from upstream import frames
from upstream import sites as sites_module
from upstream.peer import QUEUED_FRAMES
from upstream.ports import Entry
from upstream.twin_frames import Twin


@pytest.fixture
def above() -> Above:
    return Above()


@pytest.fixture
async def master(above: Above) -> AsyncIterator[Master]:
    async with master_of(above) as made:
        yield made


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
        await first.say(frames.Batch(EPOCH, "returns", 0, [(1, b"of the old connection")]))
        await first.hears(frames.HelloAgain)
        assert above.reasons == {"no_hello": 1}
        await master.part.deliver(Parcel(b"job", ()), 1.0, ["lisbon"])
        assert (await second.hears(frames.SiteJob)).job == b"job"
    assert above.items == {}


@pytest.mark.parametrize("said", [frames.Echo(1), frames.Bye(), bytes(20_000)], ids=["echo", "goodbye", "much"])
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
            frames.Batch(EPOCH, "returns", 0, [(1, b"item")]),
            frames.DeviceRecords(EPOCH, [record(1)]),
            frames.Echo(1),
            frames.Bye(),
            b"\xc1 nonsense",
            bytes(20_000),
        )
        await until(lambda: above.reasons.total() == 6, what="six refusals")
        assert above.reasons == {"not_accepted": 5, "malformed": 1}
        await master.part.deliver(Parcel(b"secret", ()), 1.0, ["lisbon"])
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
                    async with asyncio.timeout(60):
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
        (frames.encode(frames.Confirmed(EPOCH, "returns", 1)), "wrong_type"),
        (frames.encode(frames.Batch("f" * 16, "returns", 0, [(1, b"x")])), "wrong_epoch"),
        (frames.encode(frames.Batch(EPOCH, "returns", 0, [(2, b"x"), (1, b"x")])), "out_of_order"),
        (
            msgspec.msgpack.encode(
                {"type": "batch", "epoch": EPOCH, "stream": "returns", "after": 0, "items": [[1, 2]]}
            ),
            "wrong_type",
        ),
        (frames.encode(frames.DeviceRecords(EPOCH, [record(1, first_seen=float("nan"))])), "wrong_type"),
    ],
)
async def test_a_bad_frame_is_counted_with_its_peer_and_the_next_good_one_is_taken(
    sent: bytes, reason: str, master: Master, above: Above
) -> None:
    async with master.site() as site:
        await site.say(sent, frames.Batch(EPOCH, "returns", 0, [(1, b"good")]))
        assert (await site.hears(frames.Confirmed)).sequence == 1
        assert above.reasons == {reason: 1}
        assert above.peers == {"lisbon@127.0.0.1"}
        assert above.items["lisbon"] == [(1, b"good")]


async def test_a_gap_asks_for_a_new_hello(master: Master, above: Above) -> None:
    async with master.site() as site:
        await site.say(frames.Batch(EPOCH, "returns", 0, [(1, b"w")]), frames.Batch(EPOCH, "returns", 7, [(8, b"x")]))
        await site.hears(frames.HelloAgain)
        assert above.reasons == {"gap": 1}
        assert above.items["lisbon"] == [(1, b"w")]


async def test_a_site_goes_on_beyond_what_another_master_has_taken(master: Master, above: Above) -> None:
    async with master.site() as site:
        await site.say(frames.Batch(EPOCH, "returns", 7, [(8, b"x")]), frames.Batch(EPOCH, "events", 2, [(3, b"y")]))
        confirmed = [await site.hears(frames.Confirmed) for _ in range(2)]
        assert confirmed == [frames.Confirmed(EPOCH, "returns", 8), frames.Confirmed(EPOCH, "events", 3)]
    assert above.positions["lisbon", EPOCH] == {"returns": 8, "events": 3}


async def test_a_message_of_several_frames_is_refused(master: Master, above: Above) -> None:
    async with master.site() as site:
        await site.socket.send_multipart([b"a", b"b"])
        await until(lambda: above.reasons == {"malformed": 1}, what="the refusal")
        assert await site.hears_nothing_before_the_echo() == []


async def test_a_site_of_another_protocol_is_told_so(master: Master, above: Above) -> None:
    async with master.site(hello=False) as site:
        await site.hello(protocol=1)
        refusal = await site.hears(frames.SiteRefused)
        assert refusal.state == "unsupported"
        assert f"protocol {frames.PROTOCOL}" in refusal.reason
    assert above.reasons == {"unsupported_protocol": 1}
    assert above.judged == []


async def test_a_message_over_the_bound_ends_its_own_connection_and_no_other(master: Master, above: Above) -> None:
    async with master.site() as site, master.site(name="madrid") as witness:
        await site.say(bytes(limits.UPLINK_FRAME_BYTES + 1))
        await site.ended()
        assert await witness.hears_nothing_before_the_echo() == []
        await witness.say(frames.Batch(EPOCH, "returns", 0, [(1, b"x")]))
        await witness.hears(frames.Confirmed)
    assert above.items == {"madrid": [(1, b"x")]}


async def test_a_repeated_or_overlapping_batch_is_confirmed_and_taken_once(master: Master, above: Above) -> None:
    async with master.site() as site:
        first = frames.Batch(EPOCH, "returns", 0, [(1, b"a"), (2, b"b")])
        await site.say(first, first, frames.Batch(EPOCH, "returns", 1, [(2, b"b"), (3, b"c")]))
        assert [(await site.hears(frames.Confirmed)).sequence for _ in range(3)] == [2, 2, 3]
        assert above.items["lisbon"] == [(1, b"a"), (2, b"b"), (3, b"c")]


async def test_a_site_that_floods_is_dropped_and_the_others_are_served(master: Master, above: Above) -> None:
    async with master.site() as site, master.site(name="madrid") as witness:
        above.disk.clear()
        await site.say(*(frames.Batch(EPOCH, "returns", n, [(n + 1, b"x")]) for n in range(QUEUED_FRAMES + 10)))
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
        await slow.say(frames.Batch(EPOCH, "returns", 0, [(1, b"x")]))
        await until(lambda: above.heard["lisbon"] == 1, what="the batch")
        assert await witness.hears_nothing_before_the_echo() == []
        # The slow one's own echo is answered too: the loop that answers is not the one that writes.
        assert await slow.hears_nothing_before_the_echo() == []
        above.disk.set()
        await slow.hears(frames.Confirmed)


async def test_what_could_not_be_kept_is_not_confirmed_and_may_come_again(master: Master, above: Above) -> None:
    above.full = True
    async with master.site() as site:
        await site.say(frames.Batch(EPOCH, "returns", 0, [(1, b"x")]))
        await until(lambda: above.down == [("lisbon", "what it sent could not be kept")], what="the drop")
        assert above.reasons["not_kept"] == 1
        above.full = False
    async with master.site() as site:
        await site.say(frames.Batch(EPOCH, "returns", 0, [(1, b"x")]))
        assert (await site.hears(frames.Confirmed)).sequence == 1
    assert above.items["lisbon"] == [(1, b"x")]


class LookedAt(HandClock):
    """Counts how often somebody asked for the time."""

    looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return super().monotonic()


async def test_a_site_that_says_nothing_is_dark(above: Above) -> None:
    clock = HandClock()
    async with master_of(above, clock) as master, master.site() as talker, master.site(name="madrid"):
        clock.move(sites_module.SILENT_SECONDS - 1)
        await talker.hears_nothing_before_the_echo()
        clock.move(2)
        await until(lambda: above.down, what="one is dark")
        assert [site for site, _ in above.down] == ["madrid"]
        assert master.part.connected("lisbon")


async def test_a_master_that_was_held_up_itself_takes_nobody_for_silent(above: Above) -> None:
    clock = LookedAt()
    async with master_of(above, clock) as master, master.site() as talker:
        socket = master.part._socket
        assert socket is not None
        above.door.clear()
        async with master.site(name="madrid", accepted=False):
            await until(lambda: len(above.judged) == 2, what="the master is at the hello of another")
            await talker.say(frames.Echo(7))
            await until(lambda: int(socket.get(zmq.EVENTS)) & zmq.POLLIN, what="the echo waits")
            clock.move(sites_module.SILENT_SECONDS + 1)
            looks = clock.looks
            await until(lambda: clock.looks >= looks + 2, what="somebody looked for silence")
            above.door.set()
            assert (await talker.hears(frames.EchoReply)).nonce == 7
        assert above.down == []


async def test_many_hellos_on_one_connection_are_judged_once(above: Above) -> None:
    async with master_of(above, HandClock()) as master, master.site(accepted=False) as site:
        await site.hears(frames.SiteRefused)
        for number in range(50):
            await site.hello(f"name-{number}")
        await until(lambda: above.reasons["hello_too_often"] == 50, what="fifty refusals")
        assert above.judged[0][0] == "lisbon"
        assert len(above.judged) == 1


async def test_new_seals_are_asked_for_by_the_site_that_needs_them_and_by_no_other(
    master: Master, above: Above
) -> None:
    asked = []

    async def ask(site: str, jid: str, reason: str) -> None:
        asked.append((site, jid, reason))

    master.part.on_reseal(ask)
    jid = "20261121031500000000"
    async with master.site() as site:
        await site.say(
            frames.Reseal(jid=jid, site="madrid", reason="stale_epoch"),
            frames.Reseal(jid=jid, site="lisbon", reason="stale_epoch"),
        )
        assert await site.hears_nothing_before_the_echo() == []
    assert asked == [("lisbon", jid, "stale_epoch")]
    assert above.reasons == {"foreign_site": 1}


async def test_what_a_site_brings_with_its_hello_is_judged_with_its_key(master: Master, above: Above) -> None:
    async with master.site(hello=False) as site:
        await site.hello(request=b"a request", certificate=b"a certificate")
        await site.hears(frames.SiteWelcome)
    assert above.brought == {"lisbon": (b"a request", b"a certificate")}


class _Overtaken:
    """A fence that has let in a later hello of the same gateway."""

    async def judge(self, site: str, hello: frames.SiteHello, address: str) -> Entry:
        return Entry(late=bool(hello.marks))


async def test_an_old_hello_takes_nobodys_place_and_nobody_is_told_of_a_copy(master: Master, above: Above) -> None:
    master.part._fence = _Overtaken()
    keys = new_keys()
    above.states[keys.public] = "accepted"
    address = master.part.address
    async with (
        played_site(address, master.keys.public, keys) as site,
        played_site(address, master.keys.public, keys) as old,
    ):
        await site.hello()
        await site.hears(frames.SiteWelcome)
        await old.hello(marks=[bytes(16)])
        await old.hears(frames.HelloAgain)
        await master.part.keys_changed()
        await site.say(frames.Echo(1))
        await site.hears(frames.EchoReply)
        assert not [frame for frame in site.heard if isinstance(frame, Twin)]
    assert above.up == ["lisbon"]
