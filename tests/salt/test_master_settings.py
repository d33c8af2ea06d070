"""Settings that an operator's master may have: each lets the gateway in, and orders reach it once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.peers.salt_master import SaltMaster
from tests.peers.salt_uplink_bed import RULES, SaltBed
from tests.peers.waiting import until

QUICK = replace(RULES, acceptance_wait_time=0.5)
PLAIN = {"zmq_filtering": False, "auth_mode": 1, "master_sign_pubkey": False}
"""As Salt has it when nothing is set."""


@pytest.fixture
def bed(tmp_path: Path) -> SaltBed:
    return SaltBed(tmp_path)


@pytest.fixture(autouse=True)
def nobody_known(master: SaltMaster) -> None:
    """What another test left at the master."""
    for names in master.keys().values():
        for name in names:
            master.key("--delete", name)


async def started_with(master: SaltMaster, **settings: object) -> None:
    """Start it anew with these settings, and everything else plain."""
    await asyncio.to_thread(master.restart, **{**PLAIN, **settings})


async def ordered(master: SaltMaster, bed: SaltBed, *words: str) -> None:
    """Order a job, and see that it was taken."""
    jid = await asyncio.to_thread(master.ordered, *words)
    await until(lambda: jid in bed.orders.jids, what=f"job {jid} taken; {dict(bed.refusals.reasons)}")


async def heard_again(master: SaltMaster, bed: SaltBed) -> None:
    """Order until one is taken: what was published while nobody listened is gone."""

    async def heard() -> bool:
        before = len(bed.orders.jids)
        await asyncio.to_thread(master.ordered, "cam-*", "test.ping")
        return len(bed.orders.jids) > before

    await until(heard, seconds=120, what="an order of the master that started anew")


async def test_a_master_that_names_topics_is_heard_once_for_every_kind_of_target(
    master: SaltMaster, bed: SaltBed
) -> None:
    """A target that it resolves goes out for each id and to the syndics; any other to all."""
    await started_with(master, zmq_filtering=True)
    async with bed.uplink(master, rules=QUICK):
        await asyncio.to_thread(master.accept, "gw-1")
        await bed.state("connected")
        for words in (["gw-*"], ["-L", "gw-1,cam-1"], ["cam-*"], ["-G", "os:Linux"], ["-E", "gw-.*"]):
            await ordered(master, bed, *words, "test.ping")
        assert len(bed.orders.jids) == len(set(bed.orders.jids)) == 5
        assert bed.up.status()["links"][0]["lost_publishes"] == 0
        # And back, without a word to the gateway.
        await started_with(master)
        await heard_again(master, bed)
    assert not bed.refusals.reasons


async def test_a_master_of_auth_mode_2_lets_in_whoever_knows_its_key_already(master: SaltMaster, bed: SaltBed) -> None:
    await started_with(master, auth_mode=2)
    async with bed.uplink(master, rules=QUICK):
        await asyncio.to_thread(master.accept, "gw-1")
        await bed.state("connected")
        await ordered(master, bed, "cam-*", "test.ping")
    async with bed.uplink(master, rules=QUICK):
        await bed.state("connected")
        await ordered(master, bed, "cam-*", "test.ping")
    assert not bed.refusals.reasons


async def test_a_changed_key_that_the_signing_key_vouches_for_needs_nobody_at_the_site(
    master: SaltMaster, bed: SaltBed
) -> None:
    await started_with(master, master_sign_pubkey=True)
    pki = master.folder / "pki"
    bed.keys_dir.mkdir()
    rules = replace(QUICK, verify_master_pubkey_sign=True)
    async with bed.uplink(master, rules=rules):
        await asyncio.to_thread(master.accept, "gw-1")
        assert "no key here" in (await bed.state("refused"))["last_error"]
    (bed.keys_dir / "master_sign.pub").write_bytes((pki / "master_sign.pub").read_bytes())
    async with bed.uplink(master, rules=rules):
        await bed.state("connected")
        await ordered(master, bed, "cam-*", "test.ping")
        before = await asyncio.to_thread(master.fingerprint)
        await asyncio.to_thread(master.stop)
        master.forget_key_pair()
        await asyncio.to_thread(master.start)
        assert await asyncio.to_thread(master.fingerprint) != before
        await heard_again(master, bed)
    # Nothing of it is needed any more where the key is known.
    await started_with(master)
    async with bed.uplink(master, rules=rules):
        await bed.state("connected")
    async with bed.uplink(master, rules=replace(rules, always_verify_signature=True)):
        assert "master_sign_pubkey: True" in (await bed.state("refused"))["last_error"]
