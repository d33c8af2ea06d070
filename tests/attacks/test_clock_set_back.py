"""An idle site whose gateway was stolen: time beacons of the masters keep the clock of its devices from going back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from device_agent.errors import Refused
from device_agent.trust import cose
from device_agent.trust.floor import MASTER_LIMIT_SECONDS, MOVED_SECONDS, WRITE_SECONDS
from device_agent.trust.keys import SigningKey
from device_agent.trust.time_beacon import EVERY_SECONDS, sign_time_beacon
from tests.peers.fleet import Fleet
from tests.peers.guarded import Guarded

DAY = 86_400


@pytest.fixture
def device() -> Guarded:
    return Guarded()


def reason(call: Callable[[], object]) -> str:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value.reason


def beacon(device: Guarded, *, key: SigningKey | None = None, ahead: int = 0) -> bytes:
    return sign_time_beacon(key or device.site.fleet.a.key, device.site.now() + ahead)


def lied_to(device: Guarded, said: int) -> int:
    """Power-cycle the device at a gateway that says it is this time; the time that the device then goes by."""
    device.another_guard()
    _, word = device.site.opened(device.connect(), issued=said)
    device.tell_session(word)
    return int(device.identity.floor.now(device.clock.monotonic()))


def idle_days(device: Guarded, days: int, *, beacons: bool) -> None:
    """Days on which nothing happens at the site; a session each day, and a beacon each hour or none."""
    for _ in range(days):
        device.live()
        for _ in range(24):
            if beacons:
                device.tell_time(beacon(device))
            device.clock.move(EVERY_SECONDS)
        device.guard.lost()


def test_a_gateway_that_lies_about_the_time_sets_a_device_back_by_hours_and_no_more(device: Guarded) -> None:
    began = device.site.now()
    idle_days(device, 20, beacons=True)
    assert lied_to(device, began) >= device.site.now() - EVERY_SECONDS
    # What had expired before the theft has still expired: a job of a master that was recorded ten days ago.
    old = device.site.job(1, issued=began + 10 * DAY, expires=began + 10 * DAY + 300, key=device.site.fleet.a.key)
    assert reason(lambda: device.order(old)) == "expired"


def test_without_beacons_the_same_lie_is_believed(device: Guarded) -> None:
    """What beacons are for: this is the fault that the test above would not find otherwise."""
    began = device.site.now()
    idle_days(device, 20, beacons=False)
    assert lied_to(device, began) < device.site.now() - 19 * DAY


def test_a_beacon_that_was_recorded_and_is_said_again_moves_nothing_and_costs_no_refusal(device: Guarded) -> None:
    device.live()
    old = beacon(device)
    device.tell_time(old)
    device.clock.move(5 * DAY)
    device.live()
    device.tell_time(beacon(device))
    floor = device.identity.floor.value
    assert floor == device.site.now()
    for _ in range(3):
        device.tell_time(old)
    assert (device.identity.floor.value, device.counters.refusals) == (floor, {})


def test_a_beacon_by_a_site_a_dropped_or_a_revoked_master_is_refused(device: Guarded) -> None:
    device.live()
    device.clock.move(DAY)
    fleet, floor = device.site.fleet, device.identity.floor.value
    assert reason(lambda: device.tell_time(beacon(device, key=device.site.key))) == "no_role"
    fleet.next_root(masters=(fleet.a.as_master(), fleet.b.as_master()), revoked=frozenset({fleet.b.kid}))
    device.tell_trust(device.site.bundle())
    assert reason(lambda: device.tell_time(beacon(device, key=fleet.b.key))) == "issuer_revoked"
    fleet.next_root(masters=(fleet.a.as_master(),), revoked=frozenset())
    device.tell_trust(device.site.bundle())
    assert reason(lambda: device.tell_time(beacon(device, key=fleet.b.key))) == "unknown_issuer"
    assert device.identity.floor.value == floor


def test_a_stolen_master_moves_no_floor_ahead_of_what_the_site_says(device: Guarded) -> None:
    device.live()
    device.clock.move(DAY)
    floor = device.identity.floor.value
    far = beacon(device, ahead=300 * DAY)
    assert reason(lambda: device.tell_time(far)) == "issued_in_future"
    assert reason(lambda: device.tell_time(beacon(device, ahead=MOVED_SECONDS + 1))) == "issued_in_future"
    # The broker keeps the newest: a device that connects hears it before its site has told it the time.
    device.another_guard()
    opening = device.connect()
    device.tell_time(far)
    assert device.identity.floor.value == floor
    device.accept(opening)
    assert device.identity.floor.value == floor
    assert device.counters.refusals == {"issued_in_future": 1}


def test_a_stolen_master_together_with_a_stolen_gateway_moves_a_floor_by_400_days_at_most(device: Guarded) -> None:
    device.live()
    root = device.identity.anchor.root
    assert root is not None
    # The site's certificate bounds what its gateway may say, and the root list what a master may.
    assert lied_to(device, device.site.now() + 25 * DAY) > device.site.now() + 24 * DAY
    device.tell_time(beacon(device, ahead=25 * DAY))
    assert device.identity.floor.value == device.site.now() + 25 * DAY
    floor = device.identity.floor
    floor.told(root.issued + 4000 * DAY, device.clock.monotonic())
    device.tell_time(beacon(device, ahead=3000 * DAY))
    assert floor.value == root.issued + MASTER_LIMIT_SECONDS


def test_a_beacon_heard_before_the_session_counts_once_the_site_has_told_the_time(device: Guarded) -> None:
    device.live()
    device.clock.move(DAY)
    device.another_guard()
    opening = device.connect()
    device.tell_time(beacon(device))
    assert device.identity.floor.value < device.site.now()
    device.accept(opening)
    assert device.identity.floor.value == device.site.now()


def test_beacons_of_three_masters_write_the_flash_once_an_hour() -> None:
    device = Guarded(Fleet())
    device.live()
    floor, writes = device.identity.floor, 0
    for turn in range(3 * 24):
        device.clock.move(EVERY_SECONDS / 3)
        device.tell_time(beacon(device, key=(device.site.fleet.a, device.site.fleet.b)[turn % 2].key))
        if floor.write_due(device.clock.monotonic()):
            floor.written(device.clock.monotonic())
            writes += 1
    assert 20 <= writes <= 24 * 3600 / WRITE_SECONDS


def test_a_beacon_is_no_job_and_leaves_no_answer(device: Guarded) -> None:
    device.live()
    device.taken()
    device.clock.move(10)
    assert device.tell_time(beacon(device)) is None
    assert device.taken() == []
    assert cose.kind(beacon(device)) == "os-tim"
