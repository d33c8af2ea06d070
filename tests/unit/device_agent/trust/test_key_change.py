"""device_agent/trust/key_change.py: a device says which key others are to seal to."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.trust import claims as c
from device_agent.trust import cose
from device_agent.trust.key_change import TYP, read_key_change, sign_key_change
from device_agent.trust.sessions import sign_bye
from tests.peers.fleet import kem_key, signing_key
from tests.peers.flips import any_claims, reasons_of_flips, refused_or_read

DEVICE = signing_key("cam-1")
SID = b"\x01" * 8
KEM = kem_key("another").public
BODY = sign_key_change(DEVICE, site="lisbon", sid=SID, kem=KEM)
CLAIMS = cose.read(BODY, TYP).claims


def read(body: bytes) -> bytes:
    return read_key_change(body, site="lisbon").verified(DEVICE.public, SID)


def reason(call: Callable[[], object]) -> str:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value.reason


def test_a_key_is_read_as_its_device_told_it() -> None:
    assert read(BODY) == KEM


def test_a_key_that_was_told_in_another_session_is_refused() -> None:
    assert reason(lambda: read(sign_key_change(DEVICE, site="lisbon", sid=b"\x02" * 8, kem=KEM))) == "unknown_session"


def test_another_device_and_another_site_are_refused() -> None:
    other = signing_key("cam-2")
    assert reason(lambda: read(sign_key_change(other, site="lisbon", sid=SID, kem=KEM))) == "unknown_issuer"
    assert reason(lambda: read(sign_key_change(DEVICE, site="porto", sid=SID, kem=KEM))) == "wrong_site"
    forged = cose.sign(other, TYP, CLAIMS)
    assert reason(lambda: read(forged)) == "bad_signature"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({c.KEM: bytes(31)}, "claim_invalid"),
        ({c.KEM: "x" * 32}, "claim_invalid"),
        ({c.SID: bytes(16)}, "claim_invalid"),
        ({c.SUB: "cam-1"}, "bad_identity"),
        ({c.AUD: "no site"}, "claim_invalid"),
        ({c.IAT: 1}, "claim_unknown"),
    ],
)
def test_claims_that_are_wrong_or_unknown_are_refused(changed: dict[int, object], expected: str) -> None:
    assert reason(lambda: read(cose.sign(DEVICE, TYP, {**CLAIMS, **changed}))) == expected


@pytest.mark.parametrize("missing", sorted(CLAIMS))
def test_a_claim_that_is_missing_is_refused(missing: int) -> None:
    left = {label: value for label, value in CLAIMS.items() if label != missing}
    assert reason(lambda: read(cose.sign(DEVICE, TYP, left))) == "claim_missing"


def test_a_key_change_is_taken_for_no_other_kind_and_no_other_kind_for_it() -> None:
    assert reason(lambda: read(sign_bye(DEVICE, site="lisbon", nonce=bytes(16)))) == "wrong_kind"
    assert reason(lambda: cose.read(BODY, "os-bye")) == "wrong_kind"


def test_a_key_change_with_any_bit_changed_is_refused() -> None:
    assert "bad_signature" in reasons_of_flips(BODY, read)


@given(any_claims([c.SUB, c.AUD, c.SID, c.KEM, c.IAT]))
def test_any_claims_under_a_good_signature_are_read_or_refused(claims: dict[int, object]) -> None:
    refused_or_read(read, cose.sign(DEVICE, TYP, claims))


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    refused_or_read(read, body)
