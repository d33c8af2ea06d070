"""device_agent/trust/chain.py: who may revoke whom, and that the word of who counts no more counts no more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from device_agent.trust.chain import Anchor
from device_agent.trust.policy import SitePolicy
from tests.peers.fleet import Fleet, party
from tests.peers.flips import reasons_of_flips
from tests.peers.refusals import reason

DAY = 86_400
DEVTTL = 90 * DAY


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(policy=SitePolicy(devttl=DEVTTL))


@pytest.fixture
def anchor(fleet: Fleet) -> Anchor:
    return fleet.anchor()


def test_a_site_revokes_its_devices_and_no_others(fleet: Fleet, anchor: Anchor) -> None:
    porto = party("porto")
    anchor.take_site_certificate(fleet.certify_site(porto), fleet.now)
    ours, theirs = fleet.device("cam-1"), fleet.device("cam-2", issuer=porto, site="porto")
    assert anchor.take_revocations(fleet.revoke(fleet.site, ours.kid, theirs.kid, site="lisbon"))
    assert reason(anchor.open_device_certificate, ours.certificate, fleet.now) == "revoked"
    assert anchor.open_device_certificate(theirs.certificate, fleet.now).name == "cam-2"
    assert anchor.device_revoked(theirs.kid, "lisbon")
    assert not anchor.device_revoked(theirs.kid, "porto")
    assert anchor.device_revoked(theirs.kid), "asked without a site, any site's word counts"


def test_a_site_revokes_neither_masters_nor_sites(fleet: Fleet, anchor: Anchor) -> None:
    porto = party("porto")
    anchor.take_site_certificate(fleet.certify_site(porto), fleet.now)
    for kid in (fleet.a.kid, porto.kid, fleet.site.kid, fleet.roots[0].kid):
        listed = fleet.revoke(fleet.site, kid, site="lisbon")
        assert reason(anchor.take_revocations, listed) == "not_its_to_revoke"
    assert anchor.site_version(fleet.site.kid) == 0


def test_a_site_that_comes_after_the_list_is_not_revoked_by_it(fleet: Fleet, anchor: Anchor) -> None:
    porto = party("porto")
    anchor.take_revocations(fleet.revoke(fleet.site, porto.kid, site="lisbon"))
    anchor.take_site_certificate(fleet.certify_site(porto), fleet.now)
    assert anchor.issuer(porto.kid, "job", "porto", fleet.now).public


def test_a_site_s_list_is_for_its_own_site(fleet: Fleet, anchor: Anchor) -> None:
    for site in ("porto", None):
        listed = fleet.revoke(fleet.site, b"12345678", site=site)
        assert reason(anchor.take_revocations, listed) == "wrong_site"
    assert reason(anchor.take_revocations, fleet.revoke(fleet.a, b"12345678", site="lisbon")) == "wrong_site"


def test_a_master_revokes_a_site_and_what_rests_on_it(fleet: Fleet, anchor: Anchor) -> None:
    device = fleet.device()
    anchor.take_revocations(fleet.revoke(fleet.site, b"12345678", site="lisbon"))
    assert anchor.open_device_certificate(device.certificate, fleet.now).body
    assert anchor.take_revocations(fleet.revoke(fleet.b, fleet.site.kid))
    assert reason(anchor.issuer, fleet.site.kid, "job", "lisbon", fleet.now) == "issuer_revoked"
    assert reason(anchor.site_by_kid, fleet.site.kid, fleet.now) == "issuer_revoked"
    assert reason(anchor.open_device_certificate, device.certificate, fleet.now) == "issuer_revoked"
    assert reason(anchor.take_site_certificate, fleet.certify_site(issued=fleet.now + 9), fleet.now) == "revoked"
    assert anchor.site_certificate("lisbon") is None
    assert not anchor.device_revoked(b"12345678"), "the list of a revoked site counts no more"
    assert anchor.revocation_lists() == [fleet.revoke(fleet.b, fleet.site.kid)]
    late = fleet.revoke(fleet.site, device.kid, version=2, site="lisbon")
    assert reason(anchor.take_revocations, late) == "issuer_revoked"


def test_a_replacement_gateway_speaks_for_the_site_of_the_revoked_one(fleet: Fleet, anchor: Anchor) -> None:
    anchor.take_revocations(fleet.revoke(fleet.a, fleet.site.kid))
    replacement = replace(party("replacement"), name="lisbon")
    anchor.take_site_certificate(fleet.certify_site(replacement), fleet.now)
    certificate = anchor.site_certificate("lisbon")
    assert certificate is not None
    assert certificate.kid == replacement.kid
    assert anchor.open_device_certificate(fleet.device(issuer=replacement).certificate, fleet.now).body


def test_a_master_revokes_a_device_of_any_site(fleet: Fleet, anchor: Anchor) -> None:
    device = fleet.device()
    anchor.take_revocations(fleet.revoke(fleet.a, device.kid))
    assert anchor.device_revoked(device.kid, "lisbon")
    assert reason(anchor.open_device_certificate, device.certificate, fleet.now) == "revoked"


def test_versions_count_for_each_signer_and_never_go_back(fleet: Fleet, anchor: Anchor) -> None:
    huge = fleet.revoke(fleet.site, b"12345678", version=2**60, site="lisbon")
    assert anchor.take_revocations(huge)
    assert not anchor.take_revocations(huge)
    assert anchor.take_revocations(fleet.revoke(fleet.a, b"abcdefgh", version=2)), "nobody blocks another's list"
    for version in (1, 2):
        assert reason(anchor.take_revocations, fleet.revoke(fleet.a, version=version)) == "rollback"
    assert anchor.device_revoked(b"abcdefgh")
    assert anchor.take_revocations(fleet.revoke(fleet.a, version=3)), "a newer list replaces the one before"
    assert not anchor.device_revoked(b"abcdefgh")
    assert (anchor.site_version(fleet.site.kid), anchor.site_version(fleet.b.kid)) == (2**60, 0)


def test_a_list_is_signed_by_whom_it_names(fleet: Fleet, anchor: Anchor) -> None:
    listed = fleet.revoke(fleet.a, b"12345678")
    assert reason(anchor.take_revocations, listed[:-1] + b"\x00") == "bad_signature"
    assert reason(anchor.take_revocations, fleet.revoke(party("stranger"))) == "unknown_issuer"
    fleet.next_root(masters=(fleet.a.as_master(("job",)), fleet.b.as_master()))
    anchor.take_root_lists(fleet.chain)
    assert reason(anchor.take_revocations, listed) == "no_role"
    assert not anchor.device_revoked(b"12345678")


def test_the_lies_of_a_dropped_master_end_with_it(fleet: Fleet, anchor: Anchor) -> None:
    by_b = fleet.certify_site(master=fleet.b)
    anchor.take_site_certificate(by_b, fleet.now)
    anchor.take_revocations(fleet.revoke(fleet.a, fleet.site.kid, version=2**60))
    assert anchor.site_certificate("lisbon") is None
    fleet.next_root(masters=(fleet.b.as_master(),))
    anchor.take_root_lists(fleet.chain)
    assert anchor.issuer(fleet.site.kid, "job", "lisbon", fleet.now).public


def test_a_root_list_revokes_any_key(fleet: Fleet, anchor: Anchor) -> None:
    device = fleet.device()
    fleet.next_root(revoked=(fleet.site.kid, device.kid))
    anchor.take_root_lists(fleet.chain)
    assert anchor.device_revoked(device.kid, "lisbon")
    assert reason(anchor.issuer, fleet.site.kid, "job", "lisbon", fleet.now) == "issuer_revoked"


def test_what_an_expired_site_revoked_is_still_revoked(fleet: Fleet) -> None:
    anchor = Anchor(fleet.fingerprint)
    anchor.take_root_lists(fleet.chain)
    anchor.take_site_certificate(fleet.certify_site(expires=fleet.now + 1), fleet.now)
    assert anchor.take_revocations(fleet.revoke(fleet.site, b"12345678", site="lisbon"))
    assert reason(anchor.issuer, fleet.site.kid, "revoke", "lisbon", fleet.now + DAY) == "issuer_expired"
    assert anchor.device_revoked(b"12345678", "lisbon")


def test_no_bit_of_a_list_may_change(fleet: Fleet, anchor: Anchor) -> None:
    for listed in (fleet.revoke(fleet.a, b"12345678"), fleet.revoke(fleet.site, b"12345678", site="lisbon")):
        reasons = reasons_of_flips(listed, anchor.take_revocations)
        assert reasons >= {"bad_signature", "unknown_issuer", "malformed", "wrong_kind"}
