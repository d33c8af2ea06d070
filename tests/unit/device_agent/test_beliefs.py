"""What a device takes from whom: root lists, site certificates, revocations, names, group keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from device_agent.errors import Refused
from device_agent.heard import Renamed, SessionLost
from device_agent.protocol.messages import Certificate, Confirm, EpochWanted
from device_agent.trust.chain import Anchor
from device_agent.trust.revocations import sign_revocations
from device_agent.trust.sessions import sign_prekey
from tests.peers.fleet import Fleet, party, signing_key
from tests.peers.guarded import Guarded, joined


@pytest.fixture
def device() -> Guarded:
    return Guarded()


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value.reason


# --- whom it believes ------------------------------------------------------------------------------------------------


def test_the_same_bytes_are_judged_once(device: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    device.live()
    taken = []
    real = Anchor.take_root_lists

    def counted(anchor: Anchor, chain: Sequence[bytes]) -> bool:
        taken.append(chain)
        return real(anchor, chain)

    monkeypatch.setattr(Anchor, "take_root_lists", counted)
    bundle = device.site.bundle(prekey=device.site.signed_prekey())
    device.tell_trust(bundle)
    first = len(taken)
    device.tell_trust(bundle)
    assert first <= 1
    assert len(taken) == first
    # What was refused in part is judged again: it may be right by then.
    stranger = Fleet("porto")
    mixed = device.site.bundle(site_certificates=[device.site.fleet.site_certificate, stranger.site_certificate])
    for times in (1, 2):
        device.tell_trust(mixed)
        assert device.counters.refusals["wrong_site"] == times


def test_a_bundle_by_someone_with_full_rights_at_the_broker_changes_nothing(device: Guarded) -> None:
    device.live()
    session = device.guard.session
    thief = party("thief")
    forged = sign_prekey(
        thief.key, site="lisbon", public=thief.kem.public, issued=device.site.now(), instance=b"forged!!"
    )
    assert refusal(lambda: device.tell_trust(device.site.bundle(prekey=forged))) == "unknown_issuer"
    own_fleet = Fleet()
    own_fleet.roots = [signing_key(f"thief {number}") for number in range(3)]
    other_root = own_fleet.next_root(roots=tuple(root.public for root in own_fleet.roots), keys=own_fleet.roots[:2])
    certificate = device.site.fleet.certify_site(thief, master=thief)
    whole = device.site.bundle(
        root_lists=[*device.site.fleet.chain, other_root], site_certificates=[certificate], prekey=forged
    )
    assert refusal(lambda: device.tell_trust(whole)) == "unknown_issuer"
    assert device.counters.refusals["too_few_signatures"] == 1
    assert device.guard.session == session
    assert device.identity.anchor.root == device.site.fleet.root
    assert not device.identity.changed


def test_a_master_that_the_roots_have_dropped_orders_nothing_more(device: Guarded) -> None:
    device.live()
    fleet = device.site.fleet
    assert device.order(device.site.job(1, key=fleet.b.key)).fun == "test.ping"
    late = device.site.job(2, key=fleet.b.key)
    fleet.next_root(masters=(fleet.a.as_master(),))
    device.tell_trust(device.site.bundle())
    assert refusal(lambda: device.tell_me(late)) in {"unknown_issuer", "issuer_revoked"}
    assert device.identity.changed


def test_a_revoked_gateway_is_not_believed_and_its_successor_is(device: Guarded) -> None:
    device.live()
    stolen = device.site.key
    device.clock.move(1000)
    device.site.replace_gateway()
    device.site.revocations = [
        sign_revocations(device.site.fleet.a.key, version=1, kids=[stolen.kid], issued=device.site.now())
    ]
    assert device.tell_trust(device.site.bundle()) == SessionLost()
    device.tick(1)
    opening = device.opening()
    device.site.opened(opening)
    latest = device.site.openings[device.did][-1]
    assert refusal(lambda: device.tell_session(device.site.word(latest, key=stolen))) == "issuer_revoked"
    assert device.tell_session(device.site.word(latest)) is not None
    # Its group keys went with it: the device asks for the successor's.
    assert EpochWanted() in device.heard()
    device.tell_epoch(device.site.epoch_for(device.did))
    assert device.order(device.site.job(1)).fun == "test.ping"


def test_a_session_with_a_gateway_that_is_revoked_ends_even_when_it_says_so_itself(device: Guarded) -> None:
    device.live()
    confirm = device.site.frame(device.did, Confirm(["1" * 20]))
    master = device.site.fleet.b.key
    device.site.revocations = [
        sign_revocations(master, version=1, kids=[device.site.key.kid], issued=device.site.now())
    ]
    assert refusal(lambda: device.tell_trust(device.site.bundle())) == "issuer_revoked"
    assert device.guard.session == ""
    assert refusal(lambda: device.tell_me(confirm)) == "unknown_session"
    device.tick(100)
    # It opens no other with the one that is gone; it waits for a successor.
    device.guard.lost()
    device.guard.begin()
    device.guard.connected()
    assert refusal(lambda: device.tell_trust(device.site.bundle())) == "issuer_revoked"
    device.taken()
    device.tick(100)
    assert device.taken() == []


def test_a_new_certificate_gives_the_device_another_name(device: Guarded) -> None:
    device.live()
    before = device.identity.certificate
    device.clock.move(10)
    heard = device.tell_me(device.site.renamed(device.did, "gate-north"))
    assert heard == Renamed()
    assert device.guard.name == "gate-north"
    assert device.tell_me(device.site.renamed(device.did, "gate-north")) is None
    device.another_guard()
    assert device.guard.name == "gate-north"
    device.live()
    stale = device.site.renamed(device.did, "cam-7", issued=device.site.now() - 1000)
    assert refusal(lambda: device.tell_me(stale)) == "stale_certificate"
    assert device.identity.certificate != before


def test_a_certificate_of_another_device_is_not_for_this_one(device: Guarded) -> None:
    device.live()
    joined(device.site, device.clock, "cam-8")
    [other] = [did for did in device.site.requests if did != device.did]
    body = device.site.certify(other, "cam-7")
    assert refusal(lambda: device.tell_me(device.site.frame(device.did, Certificate(body)))) == "not_for_us"


def test_a_time_to_come_that_a_site_told_is_put_right_by_the_next_session(device: Guarded) -> None:
    _, word = device.site.opened(device.connect(), issued=device.site.now() + 20 * 86_400)
    device.tell_session(word)
    device.live()
    assert device.identity.floor.now(device.clock.monotonic()) == device.site.now()


# --- group keys ------------------------------------------------------------------------------------------------------


def test_a_newer_group_key_is_asked_for_and_the_one_before_counts_for_ten_minutes(device: Guarded) -> None:
    device.live()
    before = device.site.job(1, expires=device.site.now() + 3600)
    old_key = device.site.group_key
    device.site.rotate()
    device.tell_epoch(device.site.epoch_for(device.did))
    assert device.order(device.site.job(2)).fun == "test.ping"
    device.clock.move(599)
    assert device.order(before).fun == "test.ping"
    device.clock.move(2)
    late = device.site.job(3, epoch=1, group=old_key)
    assert refusal(lambda: device.order(late)) == "stale_epoch"


def test_a_group_key_after_a_revocation_ends_the_one_before_at_once(device: Guarded) -> None:
    device.live()
    late = device.site.job(1)
    device.site.rotate()
    device.tell_epoch(device.site.epoch_for(device.did, revocation=True))
    assert refusal(lambda: device.order(late)) == "stale_epoch"


def test_group_keys_come_from_the_own_site_or_a_master_once_and_never_older(device: Guarded) -> None:
    device.live()
    device.site.rotate(5)
    stranger = Fleet("porto")
    device.identity.anchor.take_site_certificate(device.site.fleet.certify_site(party("porto")), device.site.now())
    assert refusal(lambda: device.tell_epoch(device.site.epoch_for(device.did, key=stranger.site.key))) == "wrong_site"
    first = device.site.epoch_for(device.did, key=device.site.fleet.b.key)
    device.tell_epoch(first)
    assert refusal(lambda: device.tell_epoch(first)) == "replayed_epoch"
    device.site.rotate(4)
    assert refusal(lambda: device.tell_epoch(device.site.epoch_for(device.did))) == "replayed_epoch"
    assert device.identity.groups.epoch == 5


def test_a_device_that_was_away_at_a_rotation_asks_when_it_is_back(device: Guarded) -> None:
    device.site.rotate()
    opening = device.connect()
    device.accept(opening)
    assert device.heard() == [EpochWanted()]
