"""device_agent/trust/batches.py and hash_tree.py: what a site says upward, signed once for many items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.protocol.proven import PROOF_BYTES
from device_agent.trust import claims as c
from device_agent.trust import codec, cose, hash_tree
from device_agent.trust.batches import (
    BATCH_ITEMS,
    BATCH_TYP,
    Batch,
    check_item,
    open_batch,
    read_batch,
    read_proof,
    sign_batch,
)
from device_agent.trust.keys import SigningKey
from tests.peers.flips import any_claims, reasons_of_flips, refused_or_read

SITE = SigningKey(b"\x01" * 32)
OTHER = SigningKey(b"\x02" * 32)
NOW = 1_800_000_000
SALT = b"\x0b" * 16
STORE = "0123456789abcdef"


def find(kid: bytes) -> bytes:
    if kid != SITE.kid:
        raise Refused("unknown_issuer", kid.hex())
    return SITE.public


def items(count: int) -> list[tuple[int, bytes]]:
    return [(7 + 2 * place, b"item %d" % place) for place in range(count)]


def signed(count: int = 3, key: SigningKey = SITE, **changes: Any) -> list[bytes]:
    given: dict[str, Any] = {"site": "lisbon", "store": STORE, "stream": "returns", "issued": NOW, "salt": SALT}
    return sign_batch(key, items=items(count), **{**given, **changes})


def opened(proof: bytes, item: bytes) -> Batch:
    """What a station above does with one item and its proof."""
    read = read_proof(proof)
    batch = open_batch(read.batch, find)
    check_item(batch, read, item)
    return batch


def refused(call: Callable[..., object], *arguments: object, **named: object) -> str:
    with pytest.raises(Refused) as caught:
        call(*arguments, **named)
    return caught.value.reason


@pytest.mark.parametrize("count", [1, 2, 3, 5, 31, BATCH_ITEMS])
def test_each_item_of_a_batch_is_proven_by_itself(count: int) -> None:
    proofs = signed(count)
    for proof, (sequence, body) in zip(proofs, items(count), strict=True):
        batch = opened(proof, body)
        assert (batch.site, batch.store, batch.stream, batch.issued) == ("lisbon", STORE, "returns", NOW)
        assert (batch.kid, batch.count) == (SITE.kid, count)
        assert read_proof(proof).sequence == sequence
        assert read_batch(read_proof(proof).batch) == batch
        assert len(proof) <= PROOF_BYTES


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_a_proof_holds_for_no_other_item_sequence_or_place(count: int) -> None:
    proofs = signed(count)
    for place, proof in enumerate(proofs):
        batch, sequence, index, path = codec.decode(proof)
        body = items(count)[place][1]
        bent = [
            (codec.encode([batch, sequence + 1, index, path]), body),
            (codec.encode([batch, sequence, index + 1, path]), body),
            (codec.encode([batch, sequence, index, path + bytes(16)]), body),
            (codec.encode([batch, sequence, index, path[:-1]]), body),
            (proof, body + b"x"),
            (proof, items(count + 1)[place + 1][1]),
        ]
        for other, item in bent:
            if (other, item) != (proof, body):
                assert refused(opened, other, item) in {"not_in_batch", "malformed"}


def test_two_trees_of_the_same_items_have_nothing_in_common() -> None:
    first, second = (codec.decode(signed(2, salt=salt)[0]) for salt in (SALT, bytes(16)))
    assert first[3] != second[3]


def test_an_inner_node_is_not_taken_for_an_item() -> None:
    # The leaf of a shorter tree made of the two hashes below a node of this one.
    left, right = (hash_tree.leaf(SALT, each) for each in (b"a", b"b"))
    root, _ = hash_tree.root_and_paths(SALT, [left, right])
    assert hash_tree.leaf(SALT, left + right) != root


CLAIMS: dict[int, Any] = {
    c.AUD: "lisbon",
    c.IAT: NOW,
    c.NONCE: SALT,
    c.STORE: bytes.fromhex(STORE),
    c.STREAM: "returns",
    c.COUNT: 1,
    c.ROOT: bytes(16),
}
BENT: dict[int, list[Any]] = {
    c.AUD: ["", "a site", 5, "x" * 65],
    c.IAT: [-1, c.TIME_MAX + 1, "now", 1.5],
    c.NONCE: [b"", bytes(15), bytes(17), "x" * 16],
    c.STORE: [b"", bytes(7), bytes(9), STORE],
    c.STREAM: ["", "Returns", "x" * 17, "returns\n", b"returns"],
    c.COUNT: [0, -1, BATCH_ITEMS + 1, True, "1"],
    c.ROOT: [b"", bytes(15), bytes(32)],
}


def test_each_claim_is_needed_and_none_beside_them() -> None:
    assert open_batch(cose.sign(SITE, BATCH_TYP, CLAIMS), find).count == 1
    for label in CLAIMS:
        without = {key: value for key, value in CLAIMS.items() if key != label}
        assert refused(open_batch, cose.sign(SITE, BATCH_TYP, without), find) in {"claim_missing", "claim_invalid"}
    more = cose.sign(SITE, BATCH_TYP, {**CLAIMS, c.CTI: b"x"})
    assert refused(open_batch, more, find) == "claim_unknown"


@pytest.mark.parametrize(("label", "value"), [(label, value) for label, bent in BENT.items() for value in bent])
def test_each_bent_claim_is_refused(label: int, value: Any) -> None:
    body = cose.sign(SITE, BATCH_TYP, {**CLAIMS, label: value})
    assert refused(open_batch, body, find).startswith(("claim_", "not_canonical", "wrong_site"))


def test_another_signer_and_another_kind_are_refused() -> None:
    body = items(1)[0][1]
    assert refused(opened, signed(1, OTHER)[0], body) == "unknown_issuer"
    assert refused(open_batch, cose.sign(SITE, "os-ack", CLAIMS), find) == "wrong_kind"
    named = cose.read(cose.sign(OTHER, BATCH_TYP, CLAIMS), BATCH_TYP)
    assert refused(named.verified, SITE.public) == "bad_signature"


def test_no_flipped_bit_of_a_batch_is_taken() -> None:
    body = read_proof(signed(1)[0]).batch
    assert "bad_signature" in reasons_of_flips(body, lambda each: open_batch(each, find))


def test_what_is_too_large_or_of_another_shape_is_refused() -> None:
    for body in (
        b"",
        b"\x80",
        codec.encode([b"", 1, 1]),
        codec.encode([b"", -1, 0, b""]),
        codec.encode(["", 1, 0, b""]),
    ):
        assert refused(read_proof, body) == "malformed"
    assert refused(read_proof, codec.encode([b"", 1, BATCH_ITEMS, b""])) == "malformed"
    assert refused(read_proof, codec.encode([bytes(PROOF_BYTES), 1, 0, b""])) == "oversized"
    assert refused(sign_batch, SITE, site="lisbon", store=STORE, stream="x", issued=1, salt=SALT, items=[]) == (
        "claim_invalid"
    )
    assert refused(signed, BATCH_ITEMS + 1) == "claim_invalid"


@given(any_claims(list(CLAIMS)))
def test_claims_of_any_kind_are_read_or_refused(claims: dict[int, Any]) -> None:
    refused_or_read(lambda body: open_batch(body, find), cose.sign(SITE, BATCH_TYP, claims))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_proof_or_refused(body: bytes) -> None:
    refused_or_read(read_proof, body)
