"""device_agent/trust/time_beacon.py: what a master signs once an hour for every device."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.trust import claims as c
from device_agent.trust import cose
from device_agent.trust.notices import sign_cancel
from device_agent.trust.time_beacon import BODY_BYTES, TYP, TimeBeacon, open_time_beacon, sign_time_beacon
from tests.peers.fleet import Fleet, party
from tests.peers.flips import any_claims, reasons_of_flips, refused_or_read

FLEET = Fleet()
NOW = FLEET.now
BODY = sign_time_beacon(FLEET.a.key, NOW)
ANCHOR = FLEET.anchor()


def read(body: bytes) -> TimeBeacon:
    return open_time_beacon(body, ANCHOR.master_key)


def reason(call: Callable[[], object]) -> str:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value.reason


def test_a_time_beacon_of_each_master_is_read() -> None:
    assert read(BODY) == TimeBeacon(NOW, FLEET.a.kid, BODY)
    assert read(sign_time_beacon(FLEET.b.key, NOW + 1)).kid == FLEET.b.kid
    assert len(BODY) <= BODY_BYTES


def test_a_master_without_the_role_for_jobs_signs_time_beacons_too() -> None:
    fleet = Fleet()
    fleet.next_root(masters=(fleet.a.as_master(("site-ca",)), fleet.b.as_master()))
    assert open_time_beacon(BODY, fleet.anchor().master_key).issued == NOW


def test_a_site_a_stranger_a_dropped_master_and_a_revoked_master_sign_none() -> None:
    fleet = Fleet()
    assert reason(lambda: read(sign_time_beacon(fleet.site.key, NOW))) == "no_role"
    assert reason(lambda: read(sign_time_beacon(party("stranger").key, NOW))) == "unknown_issuer"
    fleet.next_root(masters=(fleet.b.as_master(),))
    assert reason(lambda: open_time_beacon(BODY, fleet.anchor().master_key)) == "unknown_issuer"
    other = Fleet()
    other.next_root(revoked=frozenset({other.a.kid}))
    assert reason(lambda: open_time_beacon(BODY, other.anchor().master_key)) == "issuer_revoked"


def test_a_time_beacon_is_taken_for_no_other_kind_and_no_other_kind_for_it() -> None:
    cancel = sign_cancel(FLEET.a.key, site="lisbon", jid="20261121192200000000", issued=NOW)
    assert reason(lambda: read(cancel)) == "wrong_kind"
    assert reason(lambda: cose.read(BODY, "os-job")) == "wrong_kind"


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({}, "claim_missing"),
        ({c.IAT: -1}, "claim_invalid"),
        ({c.IAT: float(NOW)}, "claim_invalid"),
        ({c.IAT: 2**40}, "claim_invalid"),
        ({c.IAT: NOW, c.AUD: "lisbon"}, "claim_unknown"),
        ({c.IAT: NOW, c.CT: bytes(BODY_BYTES)}, "oversized"),
    ],
)
def test_claims_that_are_missing_wrong_or_unknown_are_refused(claims: dict[int, object], expected: str) -> None:
    assert reason(lambda: read(cose.sign(FLEET.a.key, TYP, claims))) == expected


def test_a_time_beacon_with_any_bit_changed_is_refused() -> None:
    assert "bad_signature" in reasons_of_flips(BODY, read)


@given(any_claims([c.AUD, c.IAT, c.EXP]))
def test_any_claims_under_a_good_signature_are_read_or_refused(claims: dict[int, object]) -> None:
    refused_or_read(read, cose.sign(FLEET.a.key, TYP, claims))


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    refused_or_read(read, body)
