"""Masters that start again, keys that change, and lines that are cut: no answer is lost, and none comes twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.peers.salt_bus import listening
from tests.peers.salt_master import SaltMaster
from tests.peers.salt_site import NAME, SaltSite, salt_site

DEVICES = 6
SIGNED_IN_AGAIN = "signed in again master="
"""In the gateway's log, when a publish or an answer was not under the keys that it had."""


@pytest.fixture(scope="module")
def site(master: SaltMaster) -> Iterator[SaltSite]:
    with salt_site(master, devices=DEVICES) as started:
        yield started


@pytest.mark.short
def test_a_cut_in_the_middle_of_a_job_costs_no_answer_and_doubles_none(site: SaltSite, master: SaltMaster) -> None:
    site.balanced()
    before = site.answers()
    with listening(master) as bus:
        jid = master.ordered("cam-*", "test.sleep", "3")
        site.system.until(lambda: site.system.waiting(NAME, jid) == {"running": DEVICES}, "all run")
        site.cut()
        site.system.until(lambda: site.system.counts(NAME, jid) == {"ok": DEVICES}, "all have ended")
        assert site.spooled() >= DEVICES
        site.mend()
        master.until(lambda: len(bus.events(f"salt/job/{jid}/ret/*")) >= DEVICES, "every return")
        site.balanced()
    came = Counter(tag.rpartition("/")[2] for tag, _ in bus.events(f"salt/job/{jid}/ret/*"))
    assert came == dict.fromkeys(site.ids, 1)
    assert master.returned(jid) == dict.fromkeys(site.ids, True)
    after = site.answers()
    assert after.confirmed == before.confirmed + DEVICES, "an answer was told twice, or not at all"
    assert after.accepted - before.accepted == after.delivered - before.delivered >= DEVICES
    assert not after.dropped


def test_a_master_that_starts_again_is_answered(site: SaltSite, master: SaltMaster) -> None:
    """Also what it ordered before, and ended while it was not there."""
    jid = master.ordered("cam-*", "test.sleep", "3")
    site.system.until(lambda: site.system.waiting(NAME, jid) == {"running": DEVICES}, "all run")
    master.stop()
    site.system.until(lambda: site.system.counts(NAME, jid) == {"ok": DEVICES}, "all have ended")
    master.start()
    site.connected()
    master.until(lambda: master.returned(jid) == dict.fromkeys(site.ids, True), "the answers of before")
    site.balanced()
    master.until(lambda: master.salt("cam-00001", "test.ping").each, "the site hears the master again")
    site.answered(master)


def test_keys_that_a_master_makes_anew_lose_no_job(site: SaltSite, master: SaltMaster) -> None:
    """It makes them when the key of anybody is deleted. The first job under the new one is how a gateway knows."""
    signed_in = site.system.log(NAME).count(SIGNED_IN_AGAIN)
    lost = site.links()[master.address]["lost_publishes"]
    (master.folder / "pki" / "minions" / "door-9").write_text(master.key_pair()[1])
    master.key("--delete", "door-9")

    def answered_under_the_new_key() -> bool:
        # Each of them comes back whole, also the one that is under the new key.
        site.answered(master)
        return site.system.log(NAME).count(SIGNED_IN_AGAIN) > signed_in

    master.until(answered_under_the_new_key, "a job under the master's new key")
    site.answered(master)
    site.balanced()
    assert site.system.log(NAME).count(SIGNED_IN_AGAIN) == signed_in + 1
    assert site.links()[master.address]["lost_publishes"] == lost


def test_a_gateway_whose_key_was_deleted_asks_again_and_is_let_in(site: SaltSite, master: SaltMaster) -> None:
    master.key("--delete", NAME)
    assert master.salt("cam-*", "test.ping").each == []
    master.accept(NAME)
    site.connected()
    site.answered(master)
