"""device_agent/trust/device_certificate.py: which name a key has in which site."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.trust import claims as c
from device_agent.trust import cose
from device_agent.trust.carried_keys import confirmed_key
from device_agent.trust.device_certificate import (
    DEVICE_TYP,
    DeviceCertificate,
    open_device_certificate,
    read_device_certificate,
)
from device_agent.trust.keys import did_text
from tests.peers.fleet import YEAR, Fleet, signing_key
from tests.peers.flips import any_claims, reasons_of_flips, refused_or_read

FLEET = Fleet()
DEVICE = FLEET.device("cam-1")
CLAIMS = cose.read(DEVICE.certificate, DEVICE_TYP).claims


def find_key(kid: bytes) -> bytes:
    if kid != FLEET.site.kid:
        raise Refused("unknown_issuer", kid.hex())
    return FLEET.site.key.public


def test_a_certificate_is_read_as_it_was_signed() -> None:
    assert open_device_certificate(DEVICE.certificate, find_key) == DeviceCertificate(
        did=DEVICE.key.did,
        site="lisbon",
        sig=DEVICE.key.public,
        kem=DEVICE.kem.public,
        name="cam-1",
        issued=FLEET.now,
        expires=FLEET.now + YEAR,
        unproven=False,
        issuer=FLEET.site.kid,
        body=DEVICE.certificate,
    )
    certificate = read_device_certificate(FLEET.device("cam-2", unproven=True).certificate)
    assert certificate.unproven
    assert certificate.kid == signing_key("cam-2").kid
    assert certificate.did_text == did_text(signing_key("cam-2").did)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({c.ROLE: []}, "claim_unknown"),
        ({c.SUB: did_text(signing_key("cam-2").did)}, "claim_invalid"),
        ({c.CNF: confirmed_key(signing_key("cam-2").public)}, "claim_invalid"),
        ({c.SUB: "x"}, "bad_identity"),
        ({c.SUB: DEVICE.key.did}, "claim_invalid"),
        ({c.AUD: "a/b"}, "claim_invalid"),
        ({c.EXP: CLAIMS[c.IAT]}, "claim_invalid"),
        ({c.KEM: b""}, "claim_invalid"),
        ({c.NAME: ""}, "claim_invalid"),
        ({c.NAME: "a/b"}, "claim_invalid"),
        ({c.NAME: "cam-1\n"}, "claim_invalid"),
        ({c.NAME: "x" * 129}, "claim_invalid"),
        ({c.FLAGS: 2}, "claim_invalid"),
        ({c.FLAGS: -1}, "claim_invalid"),
        ({c.FLAGS: False}, "claim_invalid"),
    ],
)
def test_claims_that_are_wrong_are_refused_although_the_signature_holds(changes: dict[int, Any], reason: str) -> None:
    body = cose.sign(FLEET.site.key, DEVICE_TYP, {**CLAIMS, **changes})
    for read in (read_device_certificate, lambda proof: open_device_certificate(proof, find_key)):
        with pytest.raises(Refused) as refused:
            read(body)
        assert refused.value.reason == reason


@pytest.mark.parametrize("label", CLAIMS)
def test_no_claim_may_be_missing(label: int) -> None:
    body = cose.sign(FLEET.site.key, DEVICE_TYP, {key: value for key, value in CLAIMS.items() if key != label})
    with pytest.raises(Refused) as refused:
        read_device_certificate(body)
    assert refused.value.reason == "claim_missing"


def test_nobody_signs_what_nobody_would_read() -> None:
    changes: list[dict[str, Any]] = [{"expires": FLEET.now}, {"site": "a/b"}, {"kem": b""}, {"sig": b"short"}]
    for each in changes:
        with pytest.raises(Refused):
            FLEET.device("cam-1", **each)
    with pytest.raises(Refused):
        FLEET.device("a b")


def test_no_bit_of_a_certificate_may_change() -> None:
    reasons = reasons_of_flips(DEVICE.certificate, lambda body: open_device_certificate(body, find_key))
    assert reasons >= {"bad_signature", "unknown_issuer", "wrong_kind", "wrong_algorithm", "malformed"}


@settings(max_examples=50)
@given(any_claims(list(CLAIMS)), st.binary(max_size=100))
def test_any_claims_are_a_certificate_or_refused(claims: dict[int, Any], body: bytes) -> None:
    refused_or_read(read_device_certificate, body)
    for changed in (claims, {**CLAIMS, **claims}):
        refused_or_read(read_device_certificate, cose.sign(FLEET.site.key, DEVICE_TYP, changed))
