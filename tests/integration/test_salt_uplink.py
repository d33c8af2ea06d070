"""The uplink to Salt masters, against one made by hand on real sockets that does what no real one would."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from device_agent.clock import Clock
from device_agent.errors import Refused
from device_agent.questions import Unanswered
from tests.peers.salt_double import SaltDouble, new_box
from tests.peers.salt_sockets import PlayedMaster, ids_of, jid, ping
from tests.peers.salt_uplink_bed import RULES, SaltBed
from tests.peers.waiting import until
from upstream.salt import wire
from upstream.salt.ports import DeviceAnswer, ReturnsOfJob, SaltAbove


async def test_an_order_is_taken_and_answered(bed: SaltBed, master: PlayedMaster) -> None:
    async with bed.uplink(master):
        await bed.connected(master)
        await master.publish(ping(1, arg=["a", {"__kwarg__": True, "b": 2}]))
        await until(lambda: bed.orders.taken)
        order, name = bed.orders.taken[0]
        assert (order.jid, order.arg, order.kwarg, name) == (jid(1), ["a"], {"b": 2}, master.address)
        above = bed.feed.above[master.address]
        await above.announce(jid(1), ["cam-1", "cam-2"])
        await above.returns([ReturnsOfJob(jid(1), "test.ping", {"cam-1": DeviceAnswer(True)}, master_id="m")])
        await above.events([("site/gw-1/x", {"a": 1})])
    announced, returned, event = master.loads[-3:]
    assert announced["pretag"] == "syndic/gw-1"
    assert announced["events"] == [{"tag": jid(1), "data": {"jid": jid(1), "minions": ["cam-1", "cam-2"]}}]
    assert ids_of(returned) == ["cam-1"]
    assert (returned["load"][0]["id"], returned["load"][0]["master_id"]) == ("gw-1", "m")
    assert (event["pretag"], event["events"]) == (None, [{"tag": "site/gw-1/x", "data": {"a": 1}}])


async def test_topics_are_kept_apart(bed: SaltBed, master: PlayedMaster) -> None:
    async with bed.uplink(master):
        await bed.connected(master)
        await master.send(b"0123456789abcdef", master.double.publish(ping(1), serial=1))
        await master.send(b"syndic", master.double.publish(ping(2), serial=2))
        await until(lambda: bed.orders.taken)
    assert bed.orders.jids == [jid(2)]


async def test_a_pending_key_waits_and_says_what_to_type(bed: SaltBed, master: PlayedMaster) -> None:
    master.standing = True
    async with bed.uplink(master):
        status = await bed.state("pending")
        assert "salt-key -a gw-1" in status["last_error"]
        assert bed.up.fingerprint in status["last_error"]
        master.standing = None
        await bed.state("connected")
    assert bed.feed.active_ones == [master.address]


async def test_a_rejected_key_is_loud_and_slow(bed: SaltBed, master: PlayedMaster) -> None:
    master.standing = False
    async with bed.uplink(master, rules=replace(RULES, acceptance_wait_time=1000.0)):
        status = await bed.state("refused")
        assert "salt-key -L" in status["last_error"]
        assert status["next_attempt"] > Clock().wall() + 5000.0
    assert master.asked["_auth"] == 1


async def test_an_address_that_is_none_is_said(bed: SaltBed, master: PlayedMaster) -> None:
    async with bed.uplink(master, rules=replace(RULES, acceptance_wait_time=1000.0)) as up:
        up.replace_masters(["2001:db8::1"])
        assert "no host" in (await bed.state("refused"))["last_error"]


HOSTILE: dict[str, tuple[Callable[[SaltDouble], bytes], str]] = {
    "garbage": (lambda double: b"\x81\xc1", "malformed"),
    "no map": (lambda double: wire.pack({"enc": "clear", "load": "x"}), "malformed"),
    "unsigned": (lambda double: wire.pack({"enc": "aes", "load": double.aes.seal(wire.pack(ping(1)))}), "unsigned"),
    "signed by another": (lambda double: SaltDouble("other").publish(ping(1), box=double.aes), "bad_signature"),
    "an unknown algorithm": (
        lambda double: wire.pack({"enc": "aes", "load": b"x", "sig": b"x", "sig_algo": "PKCS1v15-MD5"}),
        "unknown_algorithm",
    ),
    "too deep": (lambda double: b"\x81\xa1a" + b"\x91" * 5000, "too_deep"),
    "too large": (lambda double: b"\x81\xa1a\xc6" + (4 << 20).to_bytes(4, "big") + bytes(4 << 20), "too_large"),
    "no order": (lambda double: double.publish({"jid": "../x"}), "unusable_jid"),
    "no serial": (lambda double: double.publish({**ping(1), "serial": "1"}), "malformed"),
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_a_hostile_publish_is_counted_and_the_next_taken(bed: SaltBed, master: PlayedMaster, kind: str) -> None:
    make, reason = HOSTILE[kind]
    async with bed.uplink(master):
        await bed.connected(master)
        await master.send(make(master.double))
        await master.publish(ping(2))
        await until(lambda: bed.orders.taken)
    assert bed.orders.jids == [jid(2)]
    assert bed.refusals.reasons == {reason: 1}
    # Whose signature is not known could be the master's own with a new key: that is asked once.
    assert master.asked["_auth"] == (2 if reason == "bad_signature" else 1)


async def test_an_order_with_too_many_values_comes_with_its_fault(bed: SaltBed, master: PlayedMaster) -> None:
    order = {"fun": "test.arg", "arg": [0] * 1_000_001, **{key: ping(1)[key] for key in ("tgt", "tgt_type", "jid")}}
    async with bed.uplink(master):
        await bed.connected(master)
        await master.publish(order)
        await until(lambda: bed.orders.taken)
    ((taken, _),) = bed.orders.taken
    assert (taken.jid, taken.tgt, taken.fun) == (jid(1), "*", "test.arg")
    assert taken.fault == "the field arg of a publish: more than 1000000 values"
    assert bed.refusals.reasons == {}


async def test_a_replay_is_refused_and_a_gap_is_counted(bed: SaltBed, master: PlayedMaster) -> None:
    async with bed.uplink(master):
        await bed.connected(master)
        first = master.double.publish(ping(1))
        await master.send(first)
        await master.send(first)
        await master.send(master.double.publish(ping(2), serial=7))
        await until(lambda: len(bed.orders.taken) == 2)
        assert bed.up.status()["links"][0]["lost_publishes"] == 5
    assert bed.refusals.reasons == {"replayed": 1}


async def test_a_replay_is_refused_after_a_restart_and_over_another_link(bed: SaltBed, master: PlayedMaster) -> None:
    order = master.double.publish(ping(1))
    async with bed.uplink(master):
        await bed.connected(master)
        await master.send(order)
        await until(lambda: bed.orders.taken)
    async with bed.uplink(master):
        await master.subscribed()
        await master.send(order)
        await master.publish(ping(2))
        await until(lambda: len(bed.orders.taken) == 2)
    assert bed.refusals.reasons == {"replayed": 1}
    # The same master under another name: it has the same key.
    bed.refusals.reasons.clear()
    async with bed.uplink(master) as up:
        up.replace_masters([f"localhost:{master.port}"])
        await master.subscribed()
        await master.send(order)
        await master.publish(ping(3))
        await until(lambda: len(bed.orders.taken) == 3)
    assert bed.orders.jids == [jid(1), jid(2), jid(3)]
    assert bed.refusals.reasons == {"replayed": 1}


async def test_a_serial_that_cannot_be_kept_is_counted_and_not_taken_again_while_the_gateway_runs(
    bed: SaltBed, master: PlayedMaster
) -> None:
    async with bed.uplink(master):
        await bed.connected(master)
        bed.serials.broken = True
        order = master.double.publish(ping(1))
        await master.send(order)
        await until(lambda: bed.refusals.reasons["serial_not_kept"])
        await master.send(order)
        await until(lambda: bed.refusals.reasons["replayed"])
        bed.serials.broken = False
        await master.publish(ping(2))
        await until(lambda: len(bed.orders.taken) == 2)
    assert bed.orders.jids == [jid(1), jid(2)]


async def test_a_new_key_heals_and_the_same_message_is_taken(bed: SaltBed, master: PlayedMaster) -> None:
    async with bed.uplink(master):
        await bed.connected(master)
        await master.publish(ping(1))
        await until(lambda: bed.orders.taken)
        master.double.aes, master.double.session, master.double.serial = new_box(), new_box(), 0
        await master.publish(ping(2))
        await until(lambda: len(bed.orders.taken) == 2)
        assert await bed.feed.above[master.address].request("_file_envs", {}, patience=30.0) is None
    assert bed.orders.jids == [jid(1), jid(2)]
    assert (master.asked["_auth"], master.asked["bad load"]) == (2, 0)
    assert not bed.refusals.reasons


async def test_a_sign_in_that_is_not_answered_at_once_loses_no_order(bed: SaltBed, master: PlayedMaster) -> None:
    async with bed.uplink(master, rules=replace(RULES, auth_timeout=0.5)):
        await bed.connected(master)
        master.double.aes = new_box()
        silent = iter([None, None])
        master.bend_reply = lambda sent: next(silent, sent) if b"pub_key" in sent else sent
        await master.publish(ping(1))
        await until(lambda: bed.orders.taken)
    assert bed.orders.jids == [jid(1)]
    assert not bed.refusals.reasons


async def test_an_order_does_not_wait_for_the_random_time_of_a_sign_in(bed: SaltBed, master: PlayedMaster) -> None:
    async with bed.uplink(master, rules=replace(RULES, random_reauth_delay=1e9)):
        await bed.connected(master)
        master.double.aes, master.double.session = new_box(), new_box()
        above = bed.feed.above[master.address]
        async with asyncio.TaskGroup() as group:
            waits = group.create_task(above.request("x", {}, patience=30.0))
            await until(lambda: master.asked["bad load"], what="a request that waits for its random time")
            await master.publish(ping(1))
            await until(lambda: bed.orders.taken)
            waits.cancel()
    assert bed.orders.jids == [jid(1)]


async def test_a_stale_session_heals_with_one_sign_in_for_all_who_ask(bed: SaltBed, master: PlayedMaster) -> None:
    async with bed.uplink(master):
        await bed.connected(master)
        master.double.session = new_box()
        above = bed.feed.above[master.address]
        master.answer = lambda load: {"n": load["n"]}
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(above.request("x", {"n": n}, patience=30.0)) for n in range(3)]
    assert [task.result() for task in asked] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert master.asked["_auth"] == 2


async def test_old_messages_make_no_storm_of_sign_ins(bed: SaltBed, master: PlayedMaster) -> None:
    old = new_box()
    async with bed.uplink(master):
        await bed.connected(master)
        for number in range(30):
            await master.send(master.double.publish(ping(number), serial=number, box=old))
        await master.publish(ping(50))
        await until(lambda: bed.orders.taken)
    assert bed.orders.jids == [jid(50)]
    assert bed.refusals.reasons["bad_mac"] == 30
    # One at first, those allowed at once, and one more for each 20 s that this has taken.
    assert master.asked["_auth"] <= 7
    assert bed.refusals.reasons["sign_ins_capped"] >= 24


@pytest.mark.parametrize(
    ("reply", "raised"),
    [
        (b"\xc1", Refused),
        (wire.pack("bad load"), Refused),
        (wire.pack({}), Refused),
        (wire.pack(b"\xff" * 100), Refused),
        (None, Unanswered),
    ],
)
async def test_a_wrong_answer_is_no_answer(
    bed: SaltBed, master: PlayedMaster, reply: bytes | None, raised: type[Exception]
) -> None:
    async with bed.uplink(master):
        await bed.connected(master)
        right = master.bend_reply
        master.bend_reply = lambda sent: sent if b"pub_key" in sent else reply
        above = bed.feed.above[master.address]
        with pytest.raises(raised):
            await above.request("_file_envs", {}, patience=0.5 if reply is None else 30.0)
        master.bend_reply = right
        assert await above.request("_file_envs", {}, patience=30.0) is None


async def test_an_answer_to_another_question_is_not_taken(bed: SaltBed, master: PlayedMaster) -> None:
    async with bed.uplink(master):
        await bed.connected(master)
        old: list[bytes] = []

        def kept(sent: bytes) -> bytes:
            old.append(sent)
            return sent

        master.bend_reply = kept
        above = bed.feed.above[master.address]
        await above.request("_file_envs", {}, patience=30.0)
        replay = old[0]
        master.bend_reply = lambda sent: sent if b"pub_key" in sent else replay
        with pytest.raises(Refused) as refused:
            await above.request("_file_envs", {}, patience=30.0)
    assert refused.value.reason == "wrong_nonce"


async def test_two_masters_are_both_heard_and_one_is_active(bed: SaltBed, master: PlayedMaster) -> None:
    async with PlayedMaster("other") as second, bed.uplink(master, second):
        await bed.connected(master, second)
        await until(lambda: bed.feed.active_ones == [master.address])
        await master.publish(ping(1))
        await second.publish(ping(2))
        await until(lambda: len(bed.orders.taken) == 2)
        bed.up.replace_masters([second.address])
        await until(lambda: bed.feed.active_ones == [second.address])
        assert [link["address"] for link in bed.up.status()["links"]] == [second.address]


async def test_a_feed_that_fails_is_run_again(bed: SaltBed, master: PlayedMaster) -> None:
    bed.feed.fail = [Unanswered("x"), Refused("malformed", "y")]
    async with bed.uplink(master):
        await until(lambda: bed.feed.runs[master.address] >= 3)
    assert bed.refusals.reasons == {"malformed": 1}


async def test_a_cut_is_a_cut_and_ends(bed: SaltBed, master: PlayedMaster) -> None:
    async with bed.uplink(master):
        await bed.state("connected")
        bed.up.cut(1000.0)
        await bed.state("cut")
        assert bed.up.cut_until is not None
        assert not bed.feed.active_ones
        bed.up.mend()
        await bed.state("connected")


async def test_a_feed_that_misses_its_end_does_not_keep_the_link(
    bed: SaltBed, master: PlayedMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task group that is cancelled in the moment in which one of its tasks fails raises the failure alone."""

    async def misses_its_end(_above: SaltAbove, address: str) -> None:
        bed.feed.runs[address] += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise Unanswered("the sign-in was not taken") from None

    monkeypatch.setattr(bed.feed, "run", misses_its_end)
    async with bed.uplink(master):
        await until(lambda: bed.feed.runs[master.address])
        bed.up.cut(1000.0)
        await bed.state("cut")
        bed.up.mend()
        await until(lambda: bed.feed.runs[master.address] == 2)


async def test_the_station_asks_by_whoever_answers_for_it(bed: SaltBed, master: PlayedMaster) -> None:
    async def asked(above: SaltAbove, about: str, body: bytes, patience: float) -> bytes:
        return f"{about} {await above.request(body.decode(), {}, patience=patience)}".encode()

    master.answer = lambda load: load["cmd"]
    async with bed.uplink(master, asked=asked) as up:
        await bed.state("connected")
        assert await up.ask("files", b"_file_envs", patience=30.0) == b"files _file_envs"
        up.cut(1000.0)
        await bed.state("cut")
        with pytest.raises(Unanswered):
            await up.ask("files", patience=30.0)


async def test_nobody_to_ask_is_said(bed: SaltBed) -> None:
    async with bed.uplink() as up:
        with pytest.raises(Unanswered):
            await up.ask("files")
        assert (up.status()["state"], up.askable()) == ("no masters", {})
        with contextlib.suppress(Unanswered):
            await up.reseal("site", jid(1), "lost")
