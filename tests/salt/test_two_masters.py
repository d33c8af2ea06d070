"""Two stock masters above one gateway: one is active until it is lost, with one key pair or two; or both are hot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.salt_bus import listening
from tests.peers.salt_master import SaltMaster
from tests.peers.salt_site import NAME, SaltSite, salt_site

DEVICES = 4


@pytest.fixture(scope="module", params=["one pair", "two pairs", "hot"])
def site(request: pytest.FixtureRequest, programs: Path) -> Iterator[SaltSite]:
    rules = {"master_type": "hot"} if request.param == "hot" else {"master_type": "failover", "master_failback": True}
    with SaltMaster(programs, "north") as north:
        pair = north.key_pair() if request.param == "one pair" else None
        with (
            SaltMaster(programs, "south", pair=pair) as south,
            salt_site(north, south, devices=DEVICES, **rules) as started,
        ):
            yield started


def test_each_orders_and_has_the_answers_of_its_own_jobs_alone(site: SaltSite) -> None:
    for own, other in (site.masters, reversed(site.masters)):
        with listening(other) as bus:
            jid = own.ordered("cam-*", "test.echo", own.name)
            own.until(lambda: own.returned(jid) == dict.fromkeys(site.ids, own.name), f"{own.name} has its answers")  # noqa: B023 - called at once
            site.balanced()
        assert bus.events(f"salt/job/{jid}/ret/*") == []


def test_what_happens_while_the_first_is_away_goes_to_the_second(site: SaltSite) -> None:
    north, south = site.masters
    assert site.active() == north.address
    site.answered(north)
    north.kill()
    site.system.until(lambda: site.active() == south.address, "the second is active")
    site.answered(south)
    with listening(south) as bus:
        site.system.issue(NAME, "cam-00001", "event.send", "door/opened")
        south.until(lambda: bus.events("*door/opened"), "the event at the second")
    north.start()
    site.system.until(lambda: site.active() == north.address, "the first is active again")
    site.answered(north)
    site.answered(south)


def test_answers_wait_for_the_master_that_ordered_them(site: SaltSite) -> None:
    north, _ = site.masters
    jid = north.ordered("cam-*", "test.sleep", "3")
    site.system.until(lambda: site.system.waiting(NAME, jid) == {"running": DEVICES}, "all run")
    north.kill()
    site.system.until(lambda: site.system.counts(NAME, jid) == {"ok": DEVICES}, "all have ended")
    north.start()
    north.until(lambda: north.returned(jid) == dict.fromkeys(site.ids, True), "the answers of before")
    site.balanced()
