"""device_agent/trust/site_certificate.py and site_request.py: which key speaks for a site, and who asks for it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.trust import claims as c
from device_agent.trust import cose
from device_agent.trust.carried_keys import confirmed_key
from device_agent.trust.policy import SitePolicy
from device_agent.trust.site_certificate import (
    SITE_ROLES,
    SITE_TYP,
    SiteCertificate,
    open_site_certificate,
    read_site_certificate,
)
from device_agent.trust.site_request import REQUEST_TYP, SiteRequest, open_site_request, sign_site_request
from tests.peers.fleet import Fleet, party, signing_key
from tests.peers.flips import any_claims, reasons_of_flips, refused_or_read

FLEET = Fleet()
SITE = FLEET.site
CLAIMS = cose.read(FLEET.site_certificate, SITE_TYP).claims
REQUEST = sign_site_request(
    SITE.key, site="lisbon", kem=SITE.kem.public, curve=SITE.curve, nonce=b"n" * 16, issued=FLEET.now
)
REQUEST_CLAIMS = cose.read(REQUEST, REQUEST_TYP).claims


def find_key(kid: bytes) -> bytes:
    if kid != FLEET.a.kid:
        raise Refused("unknown_issuer", kid.hex())
    return FLEET.a.key.public


def test_a_certificate_is_read_as_it_was_signed() -> None:
    policy = SitePolicy(fun=("state.apply",), arg={"state.apply": ("site/*",)}, org={"salt": ("cmd.run",)})
    body = FLEET.certify_site(policy=policy)
    assert open_site_certificate(body, find_key) == SiteCertificate(
        site="lisbon",
        sig=SITE.key.public,
        kem=SITE.kem.public,
        curve=SITE.curve,
        issued=FLEET.now,
        expires=FLEET.now + 30 * 86_400,
        roles=SITE_ROLES,
        policy=policy,
        issuer=FLEET.a.kid,
        body=body,
    )
    assert read_site_certificate(body).kid == SITE.kid


WRONG: list[tuple[dict[int, Any], str]] = [
    ({c.NAME: "x"}, "claim_unknown"),
    ({-1: 0}, "claim_unknown"),
    ({c.SUB: "porto"}, "claim_invalid"),
    ({c.AUD: "porto"}, "claim_invalid"),
    ({c.SUB: "a/b", c.AUD: "a/b"}, "claim_invalid"),
    ({c.SUB: "", c.AUD: ""}, "claim_invalid"),
    ({c.SUB: 1, c.AUD: 1}, "claim_invalid"),
    ({c.EXP: CLAIMS[c.IAT]}, "claim_invalid"),
    ({c.EXP: CLAIMS[c.IAT] - 1}, "claim_invalid"),
    ({c.EXP: -1}, "claim_invalid"),
    ({c.EXP: 2**40}, "claim_invalid"),
    ({c.EXP: float(CLAIMS[c.EXP])}, "claim_invalid"),
    ({c.KEM: b"\x00" * 31}, "claim_invalid"),
    ({c.KEM: "\x00" * 32}, "claim_invalid"),
    ({c.CURVE: b""}, "claim_invalid"),
    ({c.ROLE: ["site-ca"]}, "unknown_role"),
    ({c.ROLE: ["job", 1]}, "unknown_role"),
    ({c.ROLE: "job"}, "claim_invalid"),
    ({c.POL: []}, "claim_invalid"),
    ({c.POL: {}}, "policy_invalid"),
    ({c.POL: {**CLAIMS[c.POL], "fun": ["*"]}}, "grant_too_wide"),
    ({c.CNF: {}}, "claim_invalid"),
    ({c.CNF: {1: {1: 1, -1: 4, -2: SITE.kem.public}}}, "claim_invalid"),
    ({c.CNF: {1: {1: 1, -1: 6, -2: SITE.key.public, -4: b"private"}}}, "claim_invalid"),
    ({c.CNF: {1: {1: 1.0, -1: 6, -2: SITE.key.public[:31]}}}, "claim_invalid"),
    ({c.CNF: {**confirmed_key(SITE.key.public), 3: b"kid"}}, "claim_invalid"),
    ({c.CNF: {1: [1, 6, SITE.key.public]}}, "claim_invalid"),
]


@pytest.mark.parametrize(("changes", "reason"), WRONG)
def test_claims_that_are_wrong_are_refused_although_the_signature_holds(changes: dict[int, Any], reason: str) -> None:
    body = cose.sign(FLEET.a.key, SITE_TYP, {**CLAIMS, **changes})
    for read in (read_site_certificate, lambda proof: open_site_certificate(proof, find_key)):
        with pytest.raises(Refused) as refused:
            read(body)
        assert refused.value.reason == reason


@pytest.mark.parametrize("label", CLAIMS)
def test_no_claim_may_be_missing(label: int) -> None:
    body = cose.sign(FLEET.a.key, SITE_TYP, {key: value for key, value in CLAIMS.items() if key != label})
    with pytest.raises(Refused) as refused:
        read_site_certificate(body)
    assert refused.value.reason == "claim_missing"


def test_nobody_signs_what_nobody_would_read() -> None:
    changes: list[dict[str, Any]] = [{"expires": FLEET.now}, {"sig": b"short"}, {"kem": b""}, {"roles": ("site-ca",)}]
    for each in changes:
        with pytest.raises(Refused):
            FLEET.certify_site(**each)
    with pytest.raises(Refused):
        FLEET.certify_site(party("a/b"))


def test_another_kind_of_proof_is_no_certificate() -> None:
    for typ in ("os-dev", "os-job", "os-site "):
        with pytest.raises(Refused) as refused:
            read_site_certificate(cose.sign(FLEET.a.key, typ, CLAIMS))
        assert refused.value.reason == "wrong_kind"


def test_no_bit_of_a_certificate_may_change() -> None:
    reasons = reasons_of_flips(FLEET.site_certificate, lambda body: open_site_certificate(body, find_key))
    assert reasons >= {"bad_signature", "unknown_issuer", "wrong_kind", "wrong_algorithm", "malformed"}


@settings(max_examples=50)
@given(any_claims(list(CLAIMS)), st.binary(max_size=100))
def test_any_claims_are_a_certificate_or_refused(claims: dict[int, Any], body: bytes) -> None:
    refused_or_read(read_site_certificate, body)
    for changed in (claims, {**CLAIMS, **claims}):
        refused_or_read(lambda proof: open_site_certificate(proof, find_key), cose.sign(FLEET.a.key, SITE_TYP, changed))


# ----------------------------------------------------------------------------------------------------------- requests


def test_a_request_is_read_as_it_was_signed() -> None:
    assert open_site_request(REQUEST) == SiteRequest(
        "lisbon", SITE.key.public, SITE.kem.public, SITE.curve, b"n" * 16, FLEET.now, REQUEST
    )
    assert open_site_request(REQUEST).kid == SITE.kid


def test_a_request_is_signed_by_the_key_it_is_about() -> None:
    for key in (FLEET.a.key, signing_key("stranger")):
        with pytest.raises(Refused) as refused:
            open_site_request(cose.sign(key, REQUEST_TYP, REQUEST_CLAIMS))
        assert refused.value.reason == "unknown_issuer"


@pytest.mark.parametrize(
    "changes",
    [
        {c.SUB: "a b"},
        {c.SUB: "x" * 65},
        {c.NONCE: b"n" * 15},
        {c.IAT: "now"},
        {c.KEM: b""},
        {c.CURVE: b""},
        {c.AUD: "x"},
    ],
)
def test_a_request_with_wrong_claims_is_refused(changes: dict[int, Any]) -> None:
    with pytest.raises(Refused) as refused:
        open_site_request(cose.sign(SITE.key, REQUEST_TYP, {**REQUEST_CLAIMS, **changes}))
    assert refused.value.reason in {"claim_invalid", "claim_unknown"}


def test_no_bit_of_a_request_may_change() -> None:
    reasons = reasons_of_flips(REQUEST, open_site_request)
    assert reasons >= {"bad_signature", "unknown_issuer", "wrong_kind", "malformed"}


@settings(max_examples=50)
@given(any_claims(list(REQUEST_CLAIMS)), st.binary(max_size=100))
def test_any_claims_are_a_request_or_refused(claims: dict[int, Any], body: bytes) -> None:
    refused_or_read(open_site_request, body)
    for changed in (claims, {**REQUEST_CLAIMS, **claims}):
        refused_or_read(open_site_request, cose.sign(SITE.key, REQUEST_TYP, changed))
