"""Keys of Salt masters that change or do not help, against one made by hand: whose word counts, and what is said."""

from __future__ import annotations

from dataclasses import replace

from tests.peers.salt_double import SaltDouble, new_box, public_pem, rsa_key
from tests.peers.salt_sockets import PlayedMaster, jid, ping
from tests.peers.salt_uplink_bed import RULES, SaltBed
from tests.peers.waiting import until
from upstream.salt import wire

VOUCHED = replace(RULES, verify_master_pubkey_sign=True, acceptance_wait_time=1000.0)


async def test_a_changed_master_key_is_refused_and_set_aside(bed: SaltBed, master: PlayedMaster) -> None:
    async with bed.uplink(master):
        await bed.state("connected")
    before, master.double = master.double, SaltDouble("other")
    master.double.publish_port = before.publish_port
    async with bed.uplink(master, rules=replace(RULES, acceptance_wait_time=1000.0)):
        status = await bed.state("refused")
        aside = next((bed.keys_dir / "masters").glob("*.refused"))
        assert aside.read_text().strip() == master.double.pem
        assert f"mv {aside} " in status["last_error"]
    assert bed.refusals.reasons["master_key_changed"] == 1
    assert not master.loads[1:], "the other key was told something"


def signing_key_placed(bed: SaltBed, name: str = "signing") -> None:
    """An operator has put the public half of the masters' signing key where the gateway looks."""
    bed.keys_dir.mkdir(exist_ok=True)
    (bed.keys_dir / "master_sign.pub").write_text(public_pem(rsa_key(name)))


def made_anew(master: PlayedMaster, signing: str = "signing") -> SaltDouble:
    """The master has new keys of all kinds; the session of before is still good."""
    before, fresh = master.double, SaltDouble("other")
    fresh.publish_port, fresh.session = before.publish_port, before.session
    fresh.signing = rsa_key(signing)
    master.double = fresh
    return fresh


async def test_a_changed_master_key_that_is_vouched_for_costs_no_order(bed: SaltBed, master: PlayedMaster) -> None:
    master.double.signing = rsa_key("signing")
    signing_key_placed(bed)
    async with bed.uplink(master, rules=VOUCHED):
        await bed.connected(master)
        await master.publish(ping(1))
        await until(lambda: bed.orders.taken)
        fresh = made_anew(master)
        await master.publish(ping(2))
        await until(lambda: len(bed.orders.taken) == 2)
    kept = [path.read_text().strip() for path in (bed.keys_dir / "masters").iterdir()]
    assert kept == [fresh.pem]
    assert not bed.refusals.reasons


async def test_a_changed_master_key_that_is_signed_falsely_is_refused_in_words(
    bed: SaltBed, master: PlayedMaster
) -> None:
    master.double.signing = rsa_key("signing")
    signing_key_placed(bed)
    async with bed.uplink(master, rules=VOUCHED):
        await bed.connected(master)
        first = master.double.pem
        made_anew(master, signing="another")
        await master.publish(ping(2))
        words = (await bed.state("refused"))["last_error"]
    assert "does not vouch" in words
    assert f"master_sign.pub to {bed.keys_dir / 'master_sign.pub'}" in words
    kept = [path.read_text().strip() for path in (bed.keys_dir / "masters").iterdir()]
    assert kept == [first]
    assert bed.refusals.reasons["master_key_not_vouched"] >= 1
    assert not bed.orders.taken


async def test_a_signing_key_that_is_not_there_and_a_signature_that_is_not_are_told_apart(
    bed: SaltBed, master: PlayedMaster
) -> None:
    async with bed.uplink(master, rules=VOUCHED):
        assert "no key here" in (await bed.state("refused"))["last_error"]
    signing_key_placed(bed)
    async with bed.uplink(master, rules=VOUCHED):
        assert "master_sign_pubkey: True" in (await bed.state("refused"))["last_error"]
    (bed.keys_dir / "master_sign.pub").write_text("garbage")
    async with bed.uplink(master, rules=VOUCHED):
        assert "cannot be read" in (await bed.state("refused"))["last_error"]


async def test_a_master_that_lets_in_and_takes_nothing_then_is_told_with_the_time(
    bed: SaltBed, master: PlayedMaster
) -> None:
    master.bend_reply = lambda sent: sent if b"pub_key" in sent else wire.pack("bad load")
    async with bed.uplink(master, rules=replace(RULES, acceptance_wait_time=1000.0)):
        words = (await bed.state("refused"))["last_error"]
    assert "request_server_ttl" in words
    assert "date -u" in words
    assert not bed.feed.runs, "it was told something"
    assert master.asked["_auth"] == 2


async def test_a_key_that_cannot_be_kept_is_not_believed(bed: SaltBed, master: PlayedMaster) -> None:
    bed.keys_dir.mkdir()
    (bed.keys_dir / "masters").write_text("a file where a folder should be")
    async with bed.uplink(master, rules=replace(RULES, acceptance_wait_time=1000.0)):
        assert "cannot be" in (await bed.state("refused"))["last_error"]
    assert not master.loads


async def test_what_is_signed_by_nobody_known_makes_no_storm_of_sign_ins(bed: SaltBed, master: PlayedMaster) -> None:
    other = SaltDouble("other")
    async with bed.uplink(master):
        await bed.connected(master)
        for number in range(30):
            await master.send(other.publish(ping(number), serial=number, box=master.double.aes))
        # What the master does itself is healed all the same.
        master.double.aes, master.double.serial = new_box(), 0
        await master.publish(ping(50))
        await until(lambda: bed.orders.taken)
    assert bed.orders.jids == [jid(50)]
    assert bed.refusals.reasons == {"bad_signature": 30}
    assert master.asked["_auth"] <= 7
