"""Jobs as a device takes them: the order of what is asked of one, and everything that keeps one from running."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from device_agent.errors import Refused
from device_agent.heard import Delivery
from device_agent.protocol import bitmap
from device_agent.trust.deliveries import job_delivery
from device_agent.trust.policy import SitePolicy
from device_agent.trust.root_list import MASTER_ROLES
from tests.peers.fleet import Fleet, party, signing_key
from tests.peers.guarded import Guarded, joined

DAY = 86_400


@pytest.fixture
def device() -> Guarded:
    made = Guarded()
    made.live()
    return made


def refusal(call: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(Refused) as caught:
        call(*arguments)
    return caught.value.reason


def delivered(device: Guarded, payload: bytes) -> Delivery:
    """A job whose signature holds, still sealed."""
    delivery = device.tell_me(payload)
    assert isinstance(delivery, Delivery)
    return delivery


def test_a_job_is_what_its_issuer_signed(device: Guarded) -> None:
    site = device.site
    body = site.job(
        7,
        tgt="cam-*",
        fun="test.echo",
        arg=["a", b"\x00", 1.5],
        kwarg={"k": [None]},
        user="ops",
        late="run",
        run_limit=9.0,
    )
    for payload in (body, site.job(8, to=device.did)):
        delivery = delivered(device, payload)
        job, remaining = delivery.open()
        assert (job.jid, job.tgt, job.issued, job.expires) == (
            delivery.jid,
            delivery.tgt,
            float(site.now()),
            float(site.now() + 300),
        )
        assert remaining == 300.0
    job, _ = delivered(
        device, site.job(9, fun="test.echo", arg=["a"], kwarg={"k": 1}, late="run", run_limit=9.0)
    ).open()
    assert (job.fun, job.arg, job.kwarg, job.user, job.late, job.run_limit) == (
        "test.echo",
        ["a"],
        {"k": 1},
        "ops",
        "run",
        9.0,
    )


# --- who signed it, and for whom: counted and never answered ---------------------------------------------------------


def test_only_who_may_order_jobs_is_heard(device: Guarded) -> None:
    site, fleet = device.site, device.site.fleet
    fleet.next_root(masters=(fleet.a.as_master([role for role in MASTER_ROLES if role != "job"]), fleet.b.as_master()))
    device.tell_trust(site.bundle())
    assert refusal(device.tell_me, site.job(1, key=fleet.a.key)) == "no_role"
    assert refusal(device.tell_me, site.job(1, key=signing_key("thief"))) == "unknown_issuer"
    assert refusal(device.tell_me, site.job(1, key=fleet.roots[0])) == "unknown_issuer"
    assert device.order(site.job(1, key=fleet.b.key)).fun == "test.ping"


def test_a_job_of_one_signer_is_not_another_ones(device: Guarded) -> None:
    site = device.site
    body = site.sealed(1, key=signing_key("thief"))
    kid, other = signing_key("thief").kid, site.fleet.a.key.kid
    assert refusal(device.tell_me, job_delivery(body.replace(kid, other), 300.0, None)) == "bad_signature"


def test_a_job_for_another_site_or_another_device_is_not_answered(device: Guarded) -> None:
    joined(device.site, device.clock, "cam-8")
    [other] = [did for did in device.site.requests if did != device.did]
    assert refusal(device.tell_me, device.site.job(1, site="porto")) == "wrong_site"
    assert refusal(device.tell_me, device.site.job(1, to=other)) == "not_for_us"


def test_a_hint_can_withhold_and_shorten_and_no_more(device: Guarded) -> None:
    site = device.site
    assert device.tell_all(site.job(1, bits=bitmap.pack([1, 2]))) is None
    assert device.counters.ignored == 1
    delivery = device.tell_all(site.job(1, remaining=10.0, bits=bitmap.pack([0])))
    assert isinstance(delivery, Delivery)
    assert delivery.open()[1] == 10.0
    # However long the hint says, it ends with the job's own expiry and the skew.
    assert delivered(device, site.job(2, remaining=3000.0)).open()[1] == 300.0 + 120.0


def test_a_bitmap_means_nothing_before_this_connections_session(device: Guarded) -> None:
    device.connect()
    assert device.tell_all(device.site.job(1, bits=bitmap.pack([0]))) is None
    assert device.counters.ignored == 1


@pytest.mark.parametrize("grouped", [True, False])
def test_every_change_of_one_byte_of_a_job_is_refused(device: Guarded, grouped: bool) -> None:
    body = device.site.sealed(1) if grouped else device.site.sealed(1, to=device.did)
    for place in range(len(body)):
        changed = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
        with pytest.raises(Refused):
            device.tell_me(job_delivery(changed, 300.0, None))
    assert device.order(job_delivery(body, 300.0, None)).fun == "test.ping"


# --- time ------------------------------------------------------------------------------------------------------------


def test_a_job_past_its_expiry_and_the_skew_has_expired(device: Guarded) -> None:
    job = device.site.job(1, remaining=3000.0)
    device.clock.move(300 + 119)
    assert delivered(device, job).open()[1] == 1.0
    late = device.site.job(2, issued=device.site.now() - 500, expires=device.site.now() - 121)
    assert refusal(delivered(device, late).open) == "expired"
    assert refusal(delivered(device, device.site.job(3, remaining=0.0)).open) == "expired"


def test_a_job_from_far_in_the_future_is_refused(device: Guarded) -> None:
    now, key = device.site.now(), device.site.key
    ahead = device.site.job(1, key=key, issued=now + DAY - 10, expires=now + DAY + 290)
    assert delivered(device, ahead).open()[1] == 300.0
    beyond = device.site.job(2, key=key, issued=now + DAY + 180, expires=now + DAY + 480)
    assert refusal(delivered(device, beyond).open) == "issued_in_future"


def test_before_the_site_has_told_the_time_only_masters_are_obeyed(device: Guarded) -> None:
    device.another_guard()
    device.connect()
    assert refusal(device.tell_me, device.site.job(1, key=device.site.key)) == "no_time"
    # The floor says only that it is not earlier: what a master signed since may be of today.
    years = 3 * 365 * DAY
    later = device.site.job(2, issued=device.site.now() + years, expires=device.site.now() + years + 300)
    assert device.order(later).fun == "test.ping"
    old = device.site.job(3, issued=device.site.now() - 1000, expires=device.site.now() - 700)
    assert refusal(delivered(device, old).open) == "expired"


def test_what_a_master_signs_moves_the_floor_and_not_beyond_the_roots(device: Guarded) -> None:
    floor = device.identity.floor
    root = device.site.fleet.root.issued
    device.order(device.site.job(1, issued=device.site.now() + 240, expires=device.site.now() + 540))
    assert floor.value == device.site.now() + 240
    stolen = device.site.job(2, issued=root + 4000 * DAY, expires=root + 4000 * DAY + 300)
    assert refusal(delivered(device, stolen).open) == "issued_in_future"
    # What is refused as of the future has not become the past.
    assert floor.value == device.site.now() + 240
    assert device.identity.floor.dirty


def test_a_stolen_master_moves_the_floor_of_a_device_without_a_time_so_far_and_no_further(device: Guarded) -> None:
    root = device.site.fleet.root.issued
    device.another_guard()
    device.guard.begin()
    device.guard.connected()
    device.tell_trust(device.site.bundle())
    delivered(device, device.site.job(2, issued=root + 4000 * DAY, expires=root + 4000 * DAY + 300))
    assert device.identity.floor.value == root + 400 * DAY


# --- once ------------------------------------------------------------------------------------------------------------


def test_each_number_of_a_signer_is_taken_once(device: Guarded) -> None:
    body = device.site.job(1)
    first, second = delivered(device, body), delivered(device, body)
    first.open()
    assert refusal(second.open) == "replayed"
    # Another signer counts for itself.
    assert device.order(device.site.job(2, key=device.site.fleet.b.key, seq=first.seq)).fun == "test.ping"


def test_after_a_restart_nothing_at_or_below_the_journals_mark_is_taken(device: Guarded) -> None:
    early, started, later = (device.site.job(number) for number in (1, 2, 3))
    mark = delivered(device, started)
    device.another_guard({mark.kid: mark.seq})
    device.live()
    assert refusal(delivered(device, early).open) == "stale_seq"
    assert refusal(delivered(device, started).open) == "stale_seq"
    assert device.order(later).fun == "test.ping"


def test_a_number_counts_as_taken_only_when_the_job_may_run(device: Guarded) -> None:
    old = device.site.group_key
    device.site.rotate()
    device.tell_epoch(device.site.epoch_for(device.did, revocation=True))
    stale = delivered(device, device.site.job(1, epoch=1, group=old))
    assert refusal(stale.open) == "stale_epoch"
    assert device.order(device.site.job(1, seq=stale.seq)).fun == "test.ping"


# --- seal and grant --------------------------------------------------------------------------------------------------


def test_a_job_of_an_epoch_that_is_not_known_yet_is_refused_as_such(device: Guarded) -> None:
    device.site.rotate()
    assert refusal(delivered(device, device.site.job(1)).open) == "unknown_epoch"


def test_a_group_key_alone_seals_nothing_that_runs(device: Guarded) -> None:
    assert refusal(delivered(device, device.site.job(1, group=b"\x00" * 32)).open) == "not_sealed_to_us"


def granted(device: Guarded, grants: dict[str, Any], **fields: Any) -> Callable[[], object]:
    """A job signed by the site, when it has these grants."""
    site = device.site
    device.clock.move(1)
    certificate = site.fleet.certify_site(policy=replace(SitePolicy(), **grants), issued=site.now())
    site.certificates = [certificate]
    device.tell_trust(site.bundle())
    return delivered(device, site.job(int(device.clock.monotonic()), key=site.key, **fields)).open


def test_a_site_may_order_what_it_was_granted_and_nothing_else(device: Guarded) -> None:
    echo = {"fun": ("test.echo", "state.*"), "arg": {"state.apply": ("site/*",)}}
    granted(device, echo, fun="test.echo", arg=["x"])()
    granted(device, echo, fun="state.apply", arg=["site/cameras"])()
    assert refusal(granted(device, echo, fun="test.ping")) == "not_granted"
    assert refusal(granted(device, echo, fun="state.apply", arg=["fleet/cameras"])) == "not_granted"
    assert refusal(granted(device, echo, fun="state.apply")) == "not_granted"
    assert refusal(granted(device, {}, fun="cmd.run", arg=["true"])) == "not_granted"
    # Granted by a master that may not order commands itself: it cannot lend what it does not have.
    assert refusal(granted(device, {"fun": ("cmd.*",)}, fun="cmd.run", arg=["true"])) == "not_granted"
    fleet = device.site.fleet
    fleet.next_root(masters=(fleet.a.as_master([*MASTER_ROLES, "root-shell"]), fleet.b.as_master()))
    granted(device, {"fun": ("cmd.*",)}, fun="cmd.run", arg=["true"])()


def test_a_job_of_a_site_lives_no_longer_and_reaches_no_further_than_granted(device: Guarded) -> None:
    now = device.site.now
    assert refusal(granted(device, {"ttl": 299})) == "not_granted"
    granted(device, {"ttl": 300}, issued=now() + 1, expires=now() + 301)()
    assert refusal(granted(device, {"grp": ()})) == "not_granted"
    granted(device, {"grp": ()}, to=device.did)()


def test_a_master_runs_commands_only_with_the_role_for_it(device: Guarded) -> None:
    fleet = device.site.fleet
    assert refusal(delivered(device, device.site.job(1, fun="cmd.run", arg=["true"])).open) == "not_granted"
    fleet.next_root(masters=(fleet.a.as_master([*MASTER_ROLES, "root-shell"]), fleet.b.as_master()))
    device.tell_trust(device.site.bundle())
    assert device.order(device.site.job(2, fun="cmd.run", arg=["true"])).fun == "cmd.run"
    assert refusal(delivered(device, device.site.job(3, fun="cmd.run", key=fleet.b.key)).open) == "not_granted"


def test_a_site_whose_certificate_has_expired_orders_nothing() -> None:
    fleet = Fleet()
    device = Guarded(fleet)
    device.live()
    job = device.site.job(1, key=device.site.key, expires=device.site.now() + 3600)
    device.clock.move(30 * DAY + 121)
    assert refusal(device.tell_me, job) == "issuer_expired"
    fleet.certify_site(party("lisbon"))
