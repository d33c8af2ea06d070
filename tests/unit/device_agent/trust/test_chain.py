"""device_agent/trust/chain.py: who may sign what, judged anew whenever something that others rest on has changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from device_agent.trust.chain import SKEW_SECONDS, Anchor
from device_agent.trust.policy import SitePolicy
from device_agent.trust.root_list import sign_root_list
from tests.peers.fleet import Fleet, Party, party, signing_key
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


# --------------------------------------------------------------------------------------------------------- root lists


def test_an_anchor_without_a_root_list_believes_nobody(fleet: Fleet) -> None:
    anchor = Anchor(fleet.fingerprint)
    assert reason(anchor.issuer, fleet.a.kid, "job", "lisbon", fleet.now) == "unknown_issuer"
    assert reason(anchor.take_site_certificate, fleet.site_certificate, fleet.now) == "unknown_issuer"
    assert reason(anchor.open_device_certificate, fleet.device().certificate, fleet.now) == "unknown_issuer"
    assert reason(anchor.take_revocations, fleet.revoke(fleet.a)) == "unknown_issuer"
    assert (anchor.root, anchor.root_lists, anchor.revocation_lists(), anchor.masters) == (None, [], [], ())


def test_an_anchor_takes_the_pinned_root_and_goes_on_from_there(fleet: Fleet) -> None:
    anchor = Anchor(fleet.fingerprint)
    assert anchor.take_root_lists(fleet.chain)
    assert not anchor.take_root_lists(fleet.chain)
    fleet.next_root()
    assert anchor.take_root_lists(fleet.chain)
    assert anchor.root == fleet.root
    assert anchor.root_lists == fleet.chain
    assert reason(Anchor(b"\x00" * 16).take_root_lists, fleet.chain) == "wrong_root"


def test_an_older_chain_changes_nothing(fleet: Fleet, anchor: Anchor) -> None:
    old = list(fleet.chain)
    fleet.next_root(masters=(fleet.b.as_master(),))
    anchor.take_root_lists(fleet.chain)
    generation = anchor.generation
    assert not anchor.take_root_lists(old)
    assert not anchor.take_root_lists([])
    assert anchor.root == fleet.root
    assert anchor.generation == generation


def test_a_chain_is_taken_whole_or_not_at_all(fleet: Fleet, anchor: Anchor) -> None:
    fleet.next_root()
    fleet.next_root(keys=[fleet.roots[0]])
    assert reason(anchor.take_root_lists, fleet.chain) == "too_few_signatures"
    assert reason(anchor.take_root_lists, fleet.chain[2:]) == "version_gap"
    assert anchor.root is not None
    assert anchor.root.version == 1
    assert anchor.root_lists == fleet.chain[:1]


def test_trust_on_first_use_pins_what_it_saw(fleet: Fleet) -> None:
    anchor = Anchor(None)
    anchor.take_root_lists(fleet.chain)
    assert anchor.pinned == fleet.fingerprint
    stranger = Fleet()
    stranger.roots = [signing_key(f"stranger {number}") for number in range(3)]
    stranger.root = replace(stranger.root, version=0, roots=tuple(root.public for root in stranger.roots))
    stranger.chain = []
    stranger.next_root()
    stranger.next_root()
    assert reason(anchor.take_root_lists, stranger.chain) == "too_few_signatures"


def test_lists_before_the_pinned_one_are_kept_for_those_with_an_older_pin(fleet: Fleet) -> None:
    old_pin = fleet.fingerprint
    new = [signing_key(f"new root {number}") for number in range(3)]
    fleet.next_root(keys=[*fleet.roots[:2], *new[:2]], roots=tuple(root.public for root in new))
    anchor = Anchor(fleet.fingerprint)
    anchor.take_root_lists(fleet.chain)
    assert anchor.root_lists == fleet.chain
    older = Anchor(old_pin)
    older.take_root_lists(anchor.root_lists)
    assert older.root == fleet.root

    stranger = Fleet()
    stranger.next_root(threshold=1)
    forged = replace(stranger.root, version=1, threshold=2, masters=(party("thief").as_master(),))
    for before in (stranger.chain[1], sign_root_list(forged, [signing_key("thief")])):
        mixed = Anchor(fleet.fingerprint)
        mixed.take_root_lists([before, *fleet.chain[1:]])
        assert mixed.root_lists == fleet.chain[1:], "what does not lead to the pinned list is not passed on"


# ------------------------------------------------------------------------------------------------------------ masters


def test_a_master_signs_what_its_roles_say_in_every_site(fleet: Fleet, anchor: Anchor) -> None:
    for master in (fleet.a, fleet.b):
        for site in ("lisbon", "porto"):
            issuer = anchor.issuer(master.kid, "job", site, fleet.now + 9 * 365 * DAY)
            assert (issuer.public, issuer.kind, issuer.policy, issuer.kid) == (
                master.key.public,
                "master",
                None,
                master.kid,
            )
    assert reason(anchor.issuer, fleet.a.kid, "root-shell", "lisbon", fleet.now) == "no_role"
    assert reason(anchor.issuer, fleet.roots[0].kid, "job", "lisbon", fleet.now) == "unknown_issuer"


def test_only_a_root_list_drops_a_master(fleet: Fleet, anchor: Anchor) -> None:
    assert reason(anchor.take_revocations, fleet.revoke(fleet.b, fleet.a.kid)) == "not_its_to_revoke"
    assert anchor.issuer(fleet.a.kid, "job", "lisbon", fleet.now).public
    fleet.next_root(masters=(fleet.b.as_master(),))
    anchor.take_root_lists(fleet.chain)
    assert reason(anchor.issuer, fleet.a.kid, "job", "lisbon", fleet.now) == "issuer_revoked"
    assert [master.name for master in anchor.masters] == ["master-b"]


def test_a_master_whose_kid_is_revoked_in_the_root_list_counts_no_more(fleet: Fleet, anchor: Anchor) -> None:
    fleet.next_root(revoked=(fleet.a.kid,))
    anchor.take_root_lists(fleet.chain)
    assert reason(anchor.issuer, fleet.a.kid, "job", "lisbon", fleet.now) == "issuer_revoked"


# -------------------------------------------------------------------------------------------------------------- sites


def test_a_site_signs_what_its_certificate_says_for_itself(fleet: Fleet, anchor: Anchor) -> None:
    issuer = anchor.issuer(fleet.site.kid, "job", "lisbon", fleet.now)
    assert (issuer.public, issuer.kind, issuer.kid) == (fleet.site.key.public, "site", fleet.site.kid)
    assert issuer.policy == SitePolicy(devttl=DEVTTL)
    assert anchor.site_by_kid(fleet.site.kid, fleet.now).site == "lisbon"
    assert reason(anchor.issuer, fleet.site.kid, "job", "porto", fleet.now) == "wrong_site"
    assert reason(anchor.issuer, fleet.site.kid, "site-ca", "lisbon", fleet.now) == "no_role"
    anchor.take_site_certificate(fleet.certify_site(roles=("job",), issued=fleet.now + 1), fleet.now)
    assert reason(anchor.issuer, fleet.site.kid, "enrol", "lisbon", fleet.now) == "no_role"


def test_a_site_signs_until_its_certificate_expires(fleet: Fleet, anchor: Anchor) -> None:
    end = fleet.now + 30 * DAY + SKEW_SECONDS
    assert anchor.issuer(fleet.site.kid, "job", "lisbon", end).public
    for late in (end + 0.5, end + 900 * DAY):
        assert reason(anchor.issuer, fleet.site.kid, "job", "lisbon", late) == "issuer_expired"
        assert reason(anchor.site_by_kid, fleet.site.kid, late) == "issuer_expired"
        assert reason(anchor.take_site_certificate, fleet.site_certificate, late) == "expired"
    anchor.take_site_certificate(fleet.certify_site(issued=fleet.now + DAY, expires=fleet.now + 60 * DAY), fleet.now)
    assert anchor.issuer(fleet.site.kid, "job", "lisbon", end + 0.5).public


def test_what_is_refused_is_not_kept(fleet: Fleet, anchor: Anchor) -> None:
    before = anchor.export()
    late = fleet.now + 31 * DAY
    assert reason(anchor.take_site_certificate, fleet.certify_site(issued=fleet.now + 1), late) == "expired"
    assert reason(anchor.take_site_certificate, fleet.site_certificate[:-1] + b"\x00", fleet.now) == "bad_signature"
    assert (anchor.export(), anchor.generation) == (before, fleet.anchor().generation)


def test_only_a_master_that_may_certifies_a_site(fleet: Fleet, anchor: Anchor) -> None:
    for holder in (party("stranger"), Party("root", fleet.roots[0], fleet.a.kem, b"")):
        certificate = fleet.certify_site(party("porto"), master=holder)
        assert reason(anchor.take_site_certificate, certificate, fleet.now) == "unknown_issuer"
    certificate = fleet.certify_site(party("porto"), master=fleet.site)
    assert reason(anchor.take_site_certificate, certificate, fleet.now) == "no_role"
    fleet.next_root(masters=(fleet.a.as_master(("job", "enrol")), fleet.b.as_master()))
    anchor.take_root_lists(fleet.chain)
    certificate = fleet.certify_site(party("porto"))
    assert reason(anchor.take_site_certificate, certificate, fleet.now) == "no_role"
    assert anchor.site_certificate("lisbon") is None, "what a master may no longer sign counts no more"


def test_of_two_certificates_for_a_site_the_newest_goes_first(fleet: Fleet, anchor: Anchor) -> None:
    second = replace(party("second key of lisbon"), name="lisbon")
    newer = fleet.certify_site(second, master=fleet.b, issued=fleet.now + 10)
    older = fleet.certify_site(replace(party("third key of lisbon"), name="lisbon"), issued=fleet.now - 10)
    for body in (newer, older):
        anchor.take_site_certificate(body, fleet.now)
    newest = anchor.site_certificate("lisbon")
    assert newest is not None
    assert newest.body == newer
    for kid in (second.kid, fleet.site.kid):
        assert anchor.issuer(kid, "job", "lisbon", fleet.now).public, "both keys count until one is revoked"


def test_an_older_certificate_of_the_same_key_does_not_take_over(fleet: Fleet, anchor: Anchor) -> None:
    wide = fleet.certify_site(issued=fleet.now - DAY, policy=SitePolicy(fun=("cmd.*",)))
    assert anchor.take_site_certificate(wide, fleet.now).policy.fun == ("cmd.*",)
    policy = anchor.issuer(fleet.site.kid, "job", "lisbon", fleet.now).policy
    assert policy is not None
    assert policy.fun == SitePolicy().fun


def test_a_site_counts_only_while_its_master_does(fleet: Fleet, anchor: Anchor) -> None:
    by_b = fleet.certify_site(master=fleet.b, issued=fleet.now - 5)
    anchor.take_site_certificate(by_b, fleet.now)
    assert anchor.site_by_kid(fleet.site.kid, fleet.now).issuer == fleet.a.kid
    fleet.next_root(masters=(fleet.b.as_master(),))
    anchor.take_root_lists(fleet.chain)
    assert anchor.site_by_kid(fleet.site.kid, fleet.now).body == by_b, "the one of the master that is left"
    fleet.next_root(masters=(party("master-c").as_master(),))
    anchor.take_root_lists(fleet.chain)
    assert reason(anchor.issuer, fleet.site.kid, "job", "lisbon", fleet.now) == "issuer_revoked"
    assert reason(anchor.open_device_certificate, fleet.device().certificate, fleet.now) == "issuer_revoked"
    assert anchor.site_certificate("lisbon") is None
    assert anchor.site_certificates() == []


def test_two_keys_with_one_name_are_refused_when_loaded(
    fleet: Fleet, anchor: Anchor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for holder in (fleet.b, Party("porto", fleet.roots[0], fleet.a.kem, fleet.a.curve)):
        twin = fleet.certify_site(replace(holder, name="porto"))
        assert reason(anchor.take_site_certificate, twin, fleet.now) == "doubled_kid"

    # A second key with a kid that is taken is 2^64 hashes away, so here the hash is played.
    certificate = fleet.certify_site(party("porto"))
    monkeypatch.setattr("device_agent.trust.site_certificate.kid", lambda _: fleet.site.kid)
    assert reason(anchor.take_site_certificate, certificate, fleet.now) == "doubled_kid"


def test_a_key_may_speak_for_two_sites_and_for_each_in_its_own_policy(fleet: Fleet, anchor: Anchor) -> None:
    policy = SitePolicy(fun=("state.*",))
    anchor.take_site_certificate(fleet.certify_site(replace(fleet.site, name="porto"), policy=policy), fleet.now)
    assert anchor.issuer(fleet.site.kid, "job", "porto", fleet.now).policy == policy
    assert anchor.issuer(fleet.site.kid, "job", "lisbon", fleet.now).policy == SitePolicy(devttl=DEVTTL)


def test_certificates_of_one_site_do_not_pile_up(fleet: Fleet, anchor: Anchor) -> None:
    for number in range(40):
        holder = replace(party(f"key {number}"), name="lisbon")
        anchor.take_site_certificate(fleet.certify_site(holder, issued=fleet.now + number), fleet.now)
    assert len(anchor._certified) <= 16
    assert anchor.issuer(party("key 39").kid, "job", "lisbon", fleet.now).public


# ------------------------------------------------------------------------------------------------------------ devices


def test_a_device_counts_until_its_own_expiry_also_beyond_that_of_the_site(fleet: Fleet, anchor: Anchor) -> None:
    device = fleet.device(expires=fleet.now + 60 * DAY).certificate
    for day in (0, 29, 31, 60):
        assert anchor.open_device_certificate(device, fleet.now + day * DAY).name == "cam-1"
    assert reason(anchor.open_device_certificate, device, fleet.now + 61 * DAY) == "expired"


def test_a_device_outlives_its_site_no_longer_than_the_policy_says(fleet: Fleet, anchor: Anchor) -> None:
    device = fleet.device(expires=fleet.now + 900 * DAY).certificate
    end = fleet.now + 30 * DAY + DEVTTL + SKEW_SECONDS
    assert anchor.open_device_certificate(device, end).body
    assert reason(anchor.open_device_certificate, device, end + 1) == "issuer_expired"


def test_a_device_of_a_master_counts_in_the_site_it_names(fleet: Fleet, anchor: Anchor) -> None:
    device = fleet.device(issuer=fleet.b).certificate
    assert anchor.open_device_certificate(device, fleet.now).site == "lisbon"


def test_a_site_accepts_no_device_for_another_site(fleet: Fleet, anchor: Anchor) -> None:
    device = fleet.device(site="porto").certificate
    assert reason(anchor.open_device_certificate, device, fleet.now) == "wrong_site"


def test_a_device_s_certificate_is_signed_by_whom_it_names(fleet: Fleet, anchor: Anchor) -> None:
    genuine = fleet.device().certificate
    assert anchor.open_device_certificate(genuine, fleet.now).body
    assert reason(anchor.open_device_certificate, genuine[:-1] + b"\x00", fleet.now) == "bad_signature"
    stranger = fleet.device(issuer=party("stranger")).certificate
    assert reason(anchor.open_device_certificate, stranger, fleet.now) == "unknown_issuer"


def test_what_was_verified_once_is_judged_each_time(fleet: Fleet, anchor: Anchor) -> None:
    device = fleet.device()
    assert anchor.open_device_certificate(device.certificate, fleet.now).body
    anchor.take_revocations(fleet.revoke(fleet.site, device.kid, site="lisbon"))
    assert reason(anchor.open_device_certificate, device.certificate, fleet.now) == "revoked"


# -------------------------------------------------------------------------------------------------------------- flips


def test_no_bit_of_any_proof_may_change(fleet: Fleet, anchor: Anchor) -> None:
    device = fleet.device().certificate
    reasons = reasons_of_flips(fleet.site_certificate, lambda body: anchor.take_site_certificate(body, fleet.now))
    reasons |= reasons_of_flips(device, lambda body: anchor.open_device_certificate(body, fleet.now))
    assert reasons >= {"bad_signature", "unknown_issuer", "malformed", "wrong_kind", "wrong_algorithm"}
