"""device_agent/trust/epochs.py: who may hand out a group key, and which of them a device still opens jobs with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.trust import claims as c
from device_agent.trust import cose, epochs
from device_agent.trust.chain import Anchor
from device_agent.trust.epochs import EPOCH_MAX, PREVIOUS_SECONDS, EpochKey, GroupKeys, open_epoch, seal_epoch
from tests.peers.fleet import SITE, Fleet, kem_key, party
from tests.peers.flips import any_claims, reasons_of_flips, refused_or_read

FLEET = Fleet()
ANCHOR = FLEET.anchor()
CAMERA = FLEET.device("cam-1")
KEY = b"\x05" * 32
SITE_KID = FLEET.site.kid


def sealed(signer: Any = FLEET.site, **changes: Any) -> bytes:
    fields = {"device": CAMERA.did, "site": SITE, "issued": FLEET.now, "epoch": 3, "revocation": False}
    return seal_epoch(signer.key, **{**fields, "group_key": KEY, "kem_public": CAMERA.kem.public, **changes})


def opened(body: bytes, anchor: Anchor = ANCHOR) -> EpochKey:
    """As a device opens it: the chain judges who may sign an epoch for our site."""
    return open_epoch(
        body, lambda kid: anchor.issuer(kid, "epoch", SITE, FLEET.now), CAMERA.kem, device=CAMERA.did, site=SITE
    )


def given_key(epoch: int, *, revocation: bool = False, site_kid: bytes | None = SITE_KID) -> EpochKey:
    return EpochKey(epoch, bytes([epoch % 256]) * 32, revocation, FLEET.now, site_kid)


def refused(call: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(Refused) as caught:
        call(*arguments)
    return caught.value.reason


# --- the proof -----------------------------------------------------------------------------------------------------


def test_a_site_and_a_master_hand_out_group_keys() -> None:
    assert opened(sealed(revocation=True)) == EpochKey(3, KEY, True, FLEET.now, SITE_KID)
    assert opened(sealed(FLEET.b)) == EpochKey(3, KEY, False, FLEET.now, None)


def test_a_certificate_of_another_site_hands_out_no_group_key_here() -> None:
    porto = party("porto")
    anchor = FLEET.anchor()
    anchor.take_site_certificate(FLEET.certify_site(porto), FLEET.now)
    with pytest.raises(Refused) as caught:
        opened(sealed(porto), anchor)
    assert caught.value.reason == "wrong_site"


def test_a_site_without_the_role_hands_out_no_group_key() -> None:
    anchor = Anchor(FLEET.fingerprint)
    anchor.take_root_lists(FLEET.chain)
    anchor.take_site_certificate(FLEET.certify_site(roles=("job", "enrol")), FLEET.now)
    with pytest.raises(Refused) as caught:
        opened(sealed(), anchor)
    assert caught.value.reason == "no_role"


def test_a_device_hands_out_no_group_key() -> None:
    assert refused(opened, sealed(CAMERA)) == "unknown_issuer"


def test_a_group_key_is_for_one_device_of_one_site() -> None:
    assert refused(opened, sealed(device=FLEET.device("cam-2").did)) == "not_for_us"
    assert refused(opened, sealed(site="porto")) == "wrong_site"
    assert refused(opened, sealed(kem_public=kem_key("cam-2").public)) == "not_sealed_to_us"


def test_a_sealed_group_key_cannot_be_given_another_epoch() -> None:
    claims = cose.read(sealed(), "os-ep").claims
    moved = cose.sign(FLEET.site.key, "os-ep", {**claims, c.EPOCH: 4})
    assert refused(opened, moved) == "not_sealed_to_us"


def test_a_key_of_another_length_and_the_epoch_zero_are_refused() -> None:
    assert refused(opened, sealed(group_key=b"short")) == "malformed"
    assert refused(opened, sealed(epoch=0)) == "claim_invalid"


def test_whatever_bit_is_turned_over_it_is_refused() -> None:
    assert "bad_signature" in reasons_of_flips(sealed(), opened)


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(body: bytes) -> None:
    assert refused(opened, body)


@given(any_claims([c.SUB, c.AUD, c.IAT, c.EPOCH, c.FLAGS, c.CT]))
def test_any_claims_under_a_good_signature_are_read_or_refused(claims: dict[int, Any]) -> None:
    refused_or_read(opened, cose.sign(FLEET.site.key, epochs.TYP, claims))


# --- the keys that a device holds ----------------------------------------------------------------------------------


def held(*taken: EpochKey) -> GroupKeys:
    keys = GroupKeys()
    keys.start(SITE_KID)
    for each in taken:
        keys.take(each, 0.0)
    return keys


def test_the_newest_epoch_counts_and_the_one_before_for_ten_minutes() -> None:
    keys = held(given_key(3), given_key(4))
    assert keys.key(4, 1e6) == bytes([4]) * 32
    assert keys.key(3, PREVIOUS_SECONDS - 0.1) == bytes([3]) * 32
    assert refused(keys.key, 3, float(PREVIOUS_SECONDS)) == "stale_epoch"


def test_an_epoch_older_than_the_one_before_is_refused() -> None:
    keys = held(given_key(3), given_key(4), given_key(5))
    assert refused(keys.key, 3, 0.0) == "stale_epoch"
    assert refused(keys.key, 2, 0.0) == "stale_epoch"


def test_a_revocation_ends_the_epoch_before_at_once() -> None:
    keys = held(given_key(3), given_key(4, revocation=True))
    assert refused(keys.key, 3, 0.0) == "stale_epoch"


def test_a_revocation_ends_also_an_epoch_that_had_minutes_left() -> None:
    keys = held(given_key(3), given_key(4), given_key(5, revocation=True))
    assert refused(keys.key, 3, 0.0) == "stale_epoch"
    assert refused(keys.key, 4, 0.0) == "stale_epoch"


def test_an_epoch_that_is_not_known_yet_is_told_apart_from_an_old_one() -> None:
    assert refused(held(given_key(3)).key, 4, 0.0) == "unknown_epoch"
    assert refused(held().key, 0, 0.0) == "unknown_epoch"
    assert refused(held().key, 1, 0.0) == "unknown_epoch"


def test_a_replayed_rekey_is_refused_and_changes_nothing() -> None:
    keys = held(given_key(3), given_key(5))
    for old in (3, 4, 5):
        assert refused(keys.take, given_key(old, revocation=True), 1.0) == "replayed_epoch"
    assert (keys.epoch, keys.key(3, 1.0), keys.key(5, 1.0)) == (5, bytes([3]) * 32, bytes([5]) * 32)


def test_a_new_site_key_starts_again_so_that_the_last_epoch_of_a_thief_locks_nobody_out() -> None:
    keys = held(given_key(EPOCH_MAX))
    successor = b"\x09" * 8
    assert keys.start(successor)
    assert refused(keys.key, EPOCH_MAX, 0.0) == "unknown_epoch"
    keys.take(given_key(1, site_kid=successor), 0.0)
    assert keys.key(1, 0.0) == bytes([1]) * 32
    assert not keys.start(successor)
    assert keys.key(1, 0.0) == bytes([1]) * 32


def test_a_rekey_by_the_site_key_that_was_replaced_is_refused() -> None:
    keys = held(given_key(3))
    keys.start(b"\x09" * 8)
    assert refused(keys.take, given_key(4), 0.0) == "wrong_site_key"


def test_a_rekey_by_a_master_counts_for_the_key_of_our_site() -> None:
    keys = held(given_key(3), given_key(4, site_kid=None))
    assert keys.epoch == 4
    assert refused(GroupKeys().take, given_key(4, site_kid=None), 0.0) == "wrong_site_key"


def test_what_an_acceptance_gives_is_held_as_the_newest() -> None:
    keys = held(given_key(7))
    keys.hold(SITE_KID, 2, KEY)
    assert keys.key(2, 0.0) == KEY
    assert refused(keys.key, 7, 0.0) == "unknown_epoch"
