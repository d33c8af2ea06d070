"""device_agent/trust/chain.py: what an anchor keeps over a restart, and that its file cannot bring in anything new."""

from __future__ import annotations

import pytest

from device_agent.errors import Refused
from device_agent.trust.chain import Anchor
from device_agent.trust.policy import SitePolicy
from tests.peers.fleet import Fleet, party
from tests.peers.refusals import reason

DAY = 86_400
DEVTTL = 90 * DAY


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(policy=SitePolicy(devttl=DEVTTL))


@pytest.fixture
def anchor(fleet: Fleet) -> Anchor:
    return fleet.anchor()


def full(fleet: Fleet) -> Anchor:
    anchor = fleet.anchor()
    anchor.take_site_certificate(fleet.certify_site(party("porto"), master=fleet.b), fleet.now)
    anchor.take_revocations(fleet.revoke(fleet.site, b"12345678", site="lisbon"))
    anchor.take_revocations(fleet.revoke(fleet.b, party("porto").kid, version=7))
    return anchor


def test_an_anchor_survives_a_restart(fleet: Fleet) -> None:
    fleet.next_root()
    anchor = full(fleet)
    restored = Anchor.restored(anchor.export())
    assert restored.export() == anchor.export()
    assert restored.root == fleet.root
    assert restored.revocation_lists() == anchor.revocation_lists()
    assert restored.site_version(fleet.b.kid) == 7
    assert restored.device_revoked(b"12345678", "lisbon")
    assert reason(restored.take_revocations, fleet.revoke(fleet.b, version=6)) == "rollback"
    assert restored.site_certificate("porto") is None
    late = fleet.now + 400 * DAY
    assert reason(restored.issuer, fleet.site.kid, "job", "lisbon", late) == "issuer_expired", "kept, and expired"


def test_an_anchor_that_knows_nothing_survives_a_restart_too() -> None:
    for pinned in (None, b"\x01" * 16):
        restored = Anchor.restored(Anchor(pinned).export())
        assert (restored.pinned, restored.root) == (pinned, None)


def test_no_bit_of_the_state_brings_in_anything_new(fleet: Fleet) -> None:
    anchor = full(fleet)
    state = anchor.export()
    known = {certificate.body for certificate in anchor.site_certificates()} | {certificate_of(fleet, "porto")}

    reasons = set()
    for bit in range(0, len(state) * 8, 41):
        changed = bytearray(state)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            restored = Anchor.restored(bytes(changed))
        except Refused as refused:
            reasons.add(refused.reason)
            continue
        assert restored.root == fleet.root
        assert {each.body for each in restored.site_certificates()} <= known
        assert set(restored.revocation_lists()) <= set(anchor.revocation_lists())
    assert reasons >= {"malformed", "wrong_root", "bad_signature"}


def certificate_of(fleet: Fleet, site: str) -> bytes:
    return fleet.certify_site(party(site), master=fleet.b)


@pytest.mark.parametrize(
    "state",
    ["", "00", "8502f6808080", "8401f68080", "850100808080", "8501f681008080", "8501f6800080", "8501f6808081f6"],
)
def test_bytes_that_are_no_state_are_refused(state: str) -> None:
    assert reason(Anchor.restored, bytes.fromhex(state)) == "malformed"
