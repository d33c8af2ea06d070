"""Masters that start again, keys that change, and lines that are cut: no answer is lost, and none comes twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.peers.salt_bus import listening
from tests.peers.salt_master import SaltMaster
from tests.peers.salt_site import NAME, SaltSite, salt_site

DEVICES = 6


@pytest.fixture(scope="module")
def site(master: SaltMaster) -> Iterator[SaltSite]:
    with salt_site(master, devices=DEVICES) as started:
        yield started


@pytest.mark.short
def test_a_cut_in_the_middle_of_a_job_costs_no_answer_and_doubles_none(site: SaltSite, master: SaltMaster) -> None:
    site.balanced()
    before = site.delivered()
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
    assert site.delivered() >= before + DEVICES


def test_a_master_that_starts_again_is_answered(site: SaltSite, master: SaltMaster) -> None:
    master.restart()
    site.connected()
    master.until(lambda: master.salt("cam-00001", "test.ping").each, "the site hears the master again")
    site.answered(master)


def test_keys_that_a_master_makes_anew_lose_no_job(site: SaltSite, master: SaltMaster) -> None:
    """It makes them when the key of anybody is deleted."""
    (master.folder / "pki" / "minions" / "door-9").write_text(master.key_pair()[1])
    with listening(master) as bus:
        master.key("--delete", "door-9")
        master.until(lambda: any(data.get("rotate_aes_key") for _, data in bus.events("key")), "the master's new keys")
        site.answered(master)
    site.answered(master)


def test_a_gateway_whose_key_was_deleted_asks_again_and_is_let_in(site: SaltSite, master: SaltMaster) -> None:
    master.key("--delete", NAME)
    assert master.salt("cam-*", "test.ping").each == []
    master.accept(NAME)
    site.connected()
    site.answered(master)
