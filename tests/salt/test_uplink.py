"""The uplink by itself at stock masters: let in, heard, and healed of whatever they do to their keys."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.peers.salt_master import SaltMaster
from tests.peers.salt_uplink_bed import RULES, SaltBed
from tests.peers.waiting import until
from upstream.salt.ports import DeviceAnswer, ReturnsOfJob
from upstream.salt.terms import SaltRules

QUICK = replace(RULES, acceptance_wait_time=0.5)


@pytest.fixture
def bed(tmp_path: Path) -> SaltBed:
    return SaltBed(tmp_path)


@pytest.fixture
async def joined(master: SaltMaster, bed: SaltBed) -> AsyncIterator[SaltBed]:
    """One that the master has let in."""
    await asyncio.to_thread(forget, master)
    async with bed.uplink(master, rules=replace(QUICK, master_alive_interval=1.0)):
        await asyncio.to_thread(master.accept, "gw-1")
        await bed.state("connected")
        yield bed


def forget(master: SaltMaster) -> None:
    """What another test left at the master."""
    for names in master.keys().values():
        for name in names:
            master.key("--delete", name)


async def order(master: SaltMaster, bed: SaltBed) -> str:
    """Order a job, and return its id once it was taken."""
    jid = await asyncio.to_thread(master.ordered, "cam-*", "test.ping")
    await until(lambda: jid in bed.orders.jids, what=f"job {jid} taken; {dict(bed.refusals.reasons)}")
    return jid


def aes(bed: SaltBed) -> str:
    """The key for publishes that it has now."""
    (link,) = bed.up._links.in_order()
    return link._current().aes.key


@pytest.mark.short
async def test_a_gateway_is_let_in_hears_and_answers(master: SaltMaster, bed: SaltBed) -> None:
    (master.files / "a.txt").write_text("content")
    (master.pillar / "top.sls").write_text("base: {gw-1: [cameras]}")
    (master.pillar / "cameras.sls").write_text("cameras: {cam-1: {password: secret}}")
    await asyncio.to_thread(forget, master)
    async with bed.uplink(master, rules=QUICK):
        words = (await bed.state("pending"))["last_error"]
        shown = await asyncio.to_thread(master.run, "salt-key", "--finger", "gw-1", "--out=json")
        assert json.loads(shown.out)["minions_pre"]["gw-1"] in words
        await asyncio.to_thread(master.accept, "gw-1")
        await bed.state("connected")
        jid = await order(master, bed)
        above = bed.feed.above[master.address]
        await above.announce(jid, ["cam-1", "cam-2"])
        answers = {"cam-1": DeviceAnswer(True), "cam-2": DeviceAnswer({"a": [1, None, "ü"]}, retcode=1, success=False)}
        await above.returns([ReturnsOfJob(jid, "test.ping", answers)])
        assert await asyncio.to_thread(master.returned, jid) == {"cam-1": True, "cam-2": {"a": [1, None, "ü"]}}
        found = await above.request("_file_hash", {"path": "a.txt", "saltenv": "base"}, patience=60.0)
        assert found["hsum"] == "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"
        assert (await above.pillar({}, patience=60.0))["cameras"] == {"cam-1": {"password": "secret"}}
        assert await above.request("no_such_thing", {}, patience=60.0) == {}
    assert not bed.refusals.reasons


@pytest.mark.short
async def test_the_first_contact_and_a_changed_key_show_the_fingerprint_as_salt_key_does(
    master: SaltMaster, bed: SaltBed, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.to_thread(forget, master)
    shown = await asyncio.to_thread(master.fingerprint)
    async with bed.uplink(master, rules=QUICK):
        await asyncio.to_thread(master.accept, "gw-1")
        await bed.state("connected")
    assert f"={shown} " in caplog.text
    async with bed.uplink(master, rules=replace(QUICK, master_finger=("00:" * 31 + "00",))):
        assert shown in (await bed.state("refused"))["last_error"]


async def test_the_older_algorithms_and_a_fingerprint(master: SaltMaster, bed: SaltBed) -> None:
    await asyncio.to_thread(forget, master)
    rules: SaltRules = replace(
        QUICK,
        encryption_algorithm="OAEP-SHA1",
        signing_algorithm="PKCS1v15-SHA1",
        master_finger=(await asyncio.to_thread(master.fingerprint),),
    )
    async with bed.uplink(master, rules=rules):
        await asyncio.to_thread(master.accept, "gw-1")
        await bed.state("connected")
        await order(master, bed)


async def test_a_master_with_another_fingerprint_is_refused(master: SaltMaster, bed: SaltBed) -> None:
    await asyncio.to_thread(forget, master)
    async with bed.uplink(master, rules=replace(QUICK, master_finger=("00:" * 31 + "00",))):
        await asyncio.to_thread(master.accept, "gw-1")
        words = (await bed.state("refused"))["last_error"]
        assert "another key" in words
        assert await asyncio.to_thread(master.fingerprint) in words, "as salt-key -F prints it there"


async def test_a_restarted_master_is_found_again(master: SaltMaster, joined: SaltBed) -> None:
    before = aes(joined)
    await asyncio.to_thread(master.restart)

    async def heard() -> bool:
        # What is published while the line is down is gone; nothing but a publish tells of the new key.
        await asyncio.to_thread(master.ordered, "cam-*", "test.ping")
        return aes(joined) != before

    await until(heard, 120, "a publish under the key that it has made at its start")
    await joined.state("connected")
    await order(master, joined)


async def test_no_order_is_lost_when_the_master_makes_a_new_key(
    master: SaltMaster, joined: SaltBed, tmp_path: Path
) -> None:
    other = SaltBed(tmp_path / "other")
    async with other.uplink(master, rules=replace(QUICK, id="gw-2")):
        await asyncio.to_thread(master.accept, "gw-2")
        await other.state("connected")
    before = aes(joined)
    await asyncio.to_thread(master.key, "--delete", "gw-2")

    async def renewed() -> bool:
        await order(master, joined)
        return aes(joined) != before

    await until(renewed, seconds=120, what="a new key")
    assert not joined.refusals.reasons
    assert joined.up.status()["links"][0]["lost_publishes"] == 0


async def test_a_deleted_key_waits_to_be_accepted_again(master: SaltMaster, joined: SaltBed) -> None:
    await asyncio.to_thread(master.key, "--delete", "gw-1")
    await joined.state("pending")
    await asyncio.to_thread(master.accept, "gw-1")
    await joined.state("connected")
    await order(master, joined)


async def test_a_rejected_key_is_said(master: SaltMaster, joined: SaltBed) -> None:
    await asyncio.to_thread(master.key, "--delete", "gw-1")
    await joined.state("pending")
    await asyncio.to_thread(master.key, "--reject", "gw-1")
    assert "salt-key -L" in (await joined.state("refused"))["last_error"]


async def test_a_master_that_hangs_is_lost_and_found_again(master: SaltMaster, joined: SaltBed) -> None:
    master.hang()
    try:
        await until(lambda: not joined.feed.active_ones, what="the loss of the master")
    finally:
        master.go_on()
    await joined.state("connected")
    await order(master, joined)
