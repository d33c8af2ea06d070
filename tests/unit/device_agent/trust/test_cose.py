"""device_agent/trust/cose.py and cose_sign.py: one algorithm, one kind, nothing that is not signed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.trust import claims, codec, cose, cose_sign
from tests.peers.fleet import signing_key
from tests.peers.flips import reasons_of_flips, refused_or_read

KEY, OTHER = signing_key("one"), signing_key("other")
CLAIMS = {claims.SUB: "x", claims.IAT: 7}
PROOF = cose.sign(KEY, "os-x", CLAIMS)
SEVERAL = cose_sign.sign([KEY, OTHER], "os-x", CLAIMS)
HEADER: dict[Any, Any] = {1: -8, 4: KEY.kid, 16: "os-x"}


def find_key(kid: bytes) -> bytes:
    if kid != KEY.kid:
        raise Refused("unknown_issuer", kid.hex())
    return KEY.public


def signed(header: Any = HEADER, unprotected: Any = None, payload: bytes = b"\xa1\x06\x07") -> bytes:
    """A proof whose signature holds, with any header."""
    protected = header if isinstance(header, bytes) else codec.encode(header)
    signature = KEY.sign(codec.encode(["Signature1", protected, b"", payload]))
    return cose.SIGN1_TAG + codec.encode([protected, {} if unprotected is None else unprotected, payload, signature])


def signed_by_several(header: Any, own: Any, unprotected: Any = None) -> bytes:
    protected, of_signature = codec.encode(header), codec.encode(own)
    signature = KEY.sign(codec.encode(["Signature", protected, of_signature, b"", b"\xa0"]))
    return cose_sign.SIGN_TAG + codec.encode([protected, {}, b"\xa0", [[of_signature, unprotected or {}, signature]]])


def test_a_proof_is_read_as_it_was_signed() -> None:
    proof = cose.open_signed(PROOF, "os-x", find_key)
    assert (proof.kid, proof.claims) == (KEY.kid, CLAIMS)
    assert codec.decode(proof.payload) == CLAIMS
    assert cose.kind(PROOF) == "os-x"
    assert cose.open_signed(signed(), "os-x", find_key).claims == {6: 7}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (signed({1: -7, 4: KEY.kid, 16: "os-x"}), "wrong_algorithm"),
        (signed({1: -8.0, 4: KEY.kid, 16: "os-x"}), "wrong_algorithm"),
        (signed({1: "EdDSA", 4: KEY.kid, 16: "os-x"}), "wrong_algorithm"),
        (signed({1: -8, 4: KEY.kid, 16: "os-y"}), "wrong_kind"),
        (signed({1: -8, 4: KEY.kid, 16: 1}), "wrong_kind"),
        (signed({1: -8, 4: KEY.kid}), "malformed"),
        (signed({1: -8, 4: KEY.kid, 16: "os-x", 3: 0}), "malformed"),
        (signed({4: KEY.kid, 1: -8, 16: "os-x"}), "malformed"),
        (signed({1: -8, 4: KEY.kid[:7], 16: "os-x"}), "malformed"),
        (signed({1: -8, 4: "a kid", 16: "os-x"}), "malformed"),
        (signed(b""), "malformed"),
        (signed(b"\x80"), "malformed"),
        (signed(unprotected={4: b"x"}), "malformed"),
        (signed(unprotected=[]), "malformed"),
        (signed(payload=b"\x80"), "malformed"),
        (signed(payload=b"\xa1\x61a\x00"), "malformed"),
        (signed(payload=b""), "malformed"),
        (signed(payload=b"\xa2\x01\x00\x01\x00"), "not_canonical"),
        (signed(payload=codec.encode({1: b"\x00" * limits.MESSAGE_BYTES})), "oversized"),
        (b"", "malformed"),
        (PROOF[1:], "malformed"),
        (b"\xd1" + PROOF[1:], "malformed"),
        (PROOF + b"\x00", "not_canonical"),
        (cose.SIGN1_TAG + codec.encode([b"", {}, b""]), "malformed"),
        (cose.SIGN1_TAG + codec.encode([b"", {}, None, b"\x00" * 64]), "malformed"),
        (SEVERAL, "malformed"),
    ],
)
def test_another_envelope_is_refused_although_its_signature_holds(body: bytes, reason: str) -> None:
    with pytest.raises(Refused) as refused:
        cose.open_signed(body, "os-x", find_key)
    assert refused.value.reason == reason


def test_no_bit_of_a_proof_may_change() -> None:
    reasons = reasons_of_flips(PROOF, lambda body: cose.open_signed(body, "os-x", find_key))
    assert reasons >= {"bad_signature", "unknown_issuer", "wrong_algorithm", "wrong_kind", "malformed"}


def test_the_key_must_be_the_one_that_the_kid_names() -> None:
    body = cose.SIGN1_TAG + codec.encode(
        [protected := codec.encode({**HEADER, 4: OTHER.kid}), {}, b"\xa0", b"\x00" * 64]
    )
    signature = KEY.sign(codec.encode(["Signature1", protected, b"", b"\xa0"]))
    with pytest.raises(Refused) as refused:
        cose.open_signed(body[:-64] + signature, "os-x", lambda _: KEY.public)
    assert refused.value.reason == "bad_signature"


@given(st.binary(max_size=200))
def test_any_bytes_are_a_proof_or_refused(body: bytes) -> None:
    readers: list[Callable[[bytes], object]] = [
        lambda proof: cose.read(proof, "os-x"),
        lambda proof: cose_sign.read(proof, "os-x"),
        cose.kind,
    ]
    for read in readers:
        for head in (b"", cose.SIGN1_TAG, cose_sign.SIGN_TAG, cose.SIGN1_TAG + b"\x84", cose_sign.SIGN_TAG + b"\x84"):
            refused_or_read(read, head + body)


# ------------------------------------------------------------------------------------------------ several signatures


def test_signatures_may_be_added_one_by_one() -> None:
    first = cose_sign.sign([KEY], "os-x", CLAIMS)
    assert cose_sign.add_signature(first, "os-x", OTHER) == SEVERAL
    assert cose_sign.add_signature(SEVERAL, "os-x", OTHER) == SEVERAL
    assert cose_sign.read(SEVERAL, "os-x").count({KEY.kid: KEY.public, OTHER.kid: OTHER.public}) == 2
    assert cose_sign.read(SEVERAL, "os-x").count({KEY.kid: KEY.public}) == 1


def test_a_key_that_signed_twice_counts_once() -> None:
    twice = cose_sign.read(cose_sign.sign([KEY, KEY], "os-x", CLAIMS), "os-x")
    assert len(twice.signatures) == 2
    assert twice.count({KEY.kid: KEY.public, OTHER.kid: OTHER.public}) == 1


def test_a_false_signature_of_a_known_key_is_refused_and_not_passed_over() -> None:
    with pytest.raises(Refused) as refused:
        cose_sign.read(SEVERAL[:-1] + b"\x00", "os-x").count({KEY.kid: KEY.public, OTHER.kid: OTHER.public})
    assert refused.value.reason == "bad_signature"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (signed_by_several({16: "os-y"}, {1: -8, 4: KEY.kid}), "wrong_kind"),
        (signed_by_several({16: "os-x", 3: 0}, {1: -8, 4: KEY.kid}), "malformed"),
        (signed_by_several({16: "os-x"}, {1: -7, 4: KEY.kid}), "wrong_algorithm"),
        (signed_by_several({16: "os-x"}, {1: -8.0, 4: KEY.kid}), "wrong_algorithm"),
        (signed_by_several({16: "os-x"}, {1: -8, 4: KEY.kid, 3: 0}), "malformed"),
        (signed_by_several({16: "os-x"}, {1: -8, 4: KEY.kid[:7]}), "malformed"),
        (signed_by_several({16: "os-x"}, {1: -8, 4: KEY.kid}, {4: b"x"}), "malformed"),
        (cose_sign.sign([], "os-x", CLAIMS), "malformed"),
        (cose_sign.sign([KEY] * 33, "os-x", CLAIMS), "malformed"),
        (PROOF, "malformed"),
    ],
)
def test_another_envelope_of_several_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(Refused) as refused:
        cose_sign.read(body, "os-x")
    assert refused.value.reason == reason
