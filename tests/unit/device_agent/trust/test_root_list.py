"""device_agent/trust/root_list.py: enough of the old keys and of the new ones, one version on, and never back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.trust import claims as c
from device_agent.trust import cose_sign
from device_agent.trust.keys import SigningKey
from device_agent.trust.root_list import (
    ROOT_TYP,
    RootList,
    add_signature,
    first_root_list,
    follow,
    next_root_list,
    read_root_list,
    root_fingerprint,
    sign_root_list,
    signers,
)
from tests.peers.fleet import Fleet, party, signing_key
from tests.peers.flips import any_claims, reasons_of_flips, refused_or_read

FLEET = Fleet()
NEW_ROOTS = [signing_key(f"new root {number}") for number in range(3)]
LABELS = (c.VER, c.IAT, c.THRESHOLD, c.ROOTS, c.MASTERS, c.RELEASES, c.KIDS, c.MINIMUM)


def claims_of(root: RootList) -> dict[int, Any]:
    return cose_sign.read(sign_root_list(root, FLEET.roots[:2]), ROOT_TYP).claims


def successor(*keys: SigningKey, **changes: Any) -> bytes:
    return sign_root_list(replace(FLEET.root, **{"version": 2, **changes}), keys or FLEET.roots[:2])


def reason_of(body: bytes, current: RootList = FLEET.root) -> str:
    with pytest.raises(Refused) as refused:
        next_root_list(body, current)
    return refused.value.reason


def test_a_list_is_read_as_it_was_signed() -> None:
    draft = replace(FLEET.root, revoked=(b"12345678",), releases=(signing_key("release").public,))
    body = sign_root_list(draft, FLEET.roots[:2])
    assert read_root_list(body) == draft
    assert first_root_list(body, FLEET.fingerprint) == draft
    assert signers(body) == {root.kid for root in FLEET.roots[:2]}


def test_the_fingerprint_is_that_of_the_keys_in_any_order() -> None:
    publics = [root.public for root in FLEET.roots]
    assert root_fingerprint(publics) == root_fingerprint(publics[::-1]) == FLEET.fingerprint
    assert root_fingerprint(publics[:2]) != FLEET.fingerprint
    assert len(FLEET.fingerprint) == 16


def test_holders_sign_one_after_the_other() -> None:
    body = sign_root_list(FLEET.root, FLEET.roots[:1])
    with pytest.raises(Refused) as refused:
        first_root_list(body, FLEET.fingerprint)
    assert refused.value.reason == "too_few_signatures"
    body = add_signature(body, FLEET.roots[2])
    assert first_root_list(body, FLEET.fingerprint) == FLEET.root
    assert add_signature(body, FLEET.roots[2]) == body


def test_the_first_list_has_the_pinned_keys() -> None:
    for pinned in (b"\x00" * 16, b""):
        with pytest.raises(Refused) as refused:
            first_root_list(FLEET.chain[0], pinned)
        assert refused.value.reason == "wrong_root"
    assert first_root_list(FLEET.chain[0], None) == FLEET.root


def test_trust_on_first_use_still_asks_for_signatures() -> None:
    with pytest.raises(Refused) as refused:
        first_root_list(sign_root_list(FLEET.root, [FLEET.roots[0], FLEET.a.key]), None)
    assert refused.value.reason == "too_few_signatures"


def test_one_key_that_signs_twice_is_one_signature() -> None:
    with pytest.raises(Refused) as refused:
        first_root_list(sign_root_list(FLEET.root, [FLEET.roots[0]] * 2), FLEET.fingerprint)
    assert refused.value.reason == "too_few_signatures"
    assert reason_of(successor(FLEET.roots[0], FLEET.roots[0])) == "too_few_signatures"


def test_the_next_list_is_one_version_on() -> None:
    assert next_root_list(successor(), FLEET.root).version == 2
    assert reason_of(successor(version=1)) == "rollback"
    assert reason_of(successor(version=3)) == "version_gap"
    assert reason_of(FLEET.chain[0], replace(FLEET.root, version=9)) == "rollback"


def test_the_next_list_needs_enough_old_keys() -> None:
    assert reason_of(successor(FLEET.roots[0])) == "too_few_signatures"
    own = tuple(root.public for root in NEW_ROOTS)
    assert reason_of(successor(*NEW_ROOTS, roots=own)) == "too_few_signatures"
    assert reason_of(successor(*NEW_ROOTS, FLEET.roots[0], roots=own)) == "too_few_signatures"
    lower = successor(FLEET.roots[0], threshold=1)
    assert reason_of(lower) == "too_few_signatures", "a list cannot lower the threshold for itself"


def test_the_next_list_needs_enough_new_keys() -> None:
    own = tuple(root.public for root in NEW_ROOTS)
    assert reason_of(successor(*FLEET.roots, roots=own)) == "too_few_signatures"
    assert reason_of(successor(*FLEET.roots, NEW_ROOTS[0], roots=own)) == "too_few_signatures"
    assert reason_of(successor(*FLEET.roots[:2], threshold=3)) == "too_few_signatures"
    rotated = successor(*FLEET.roots[:2], *NEW_ROOTS[:2], roots=own)
    assert next_root_list(rotated, FLEET.root).fingerprint == root_fingerprint(own)


def test_a_stranger_s_signature_on_the_next_list_is_refused() -> None:
    assert reason_of(successor(*FLEET.roots[:2], signing_key("stranger"))) == "unknown_issuer"


@pytest.fixture(scope="module")
def rotated() -> Fleet:
    """A fleet whose second list brings new root keys, and whose third is signed by those alone."""
    fleet = Fleet()
    fleet.next_root(keys=[*fleet.roots[:2], *NEW_ROOTS[:2]], roots=tuple(root.public for root in NEW_ROOTS))
    fleet.next_root(keys=NEW_ROOTS[1:], masters=(fleet.b.as_master(),))
    return fleet


def test_a_chain_is_followed_from_any_pin_in_it(rotated: Fleet) -> None:
    old, new = read_root_list(rotated.chain[0]).fingerprint, rotated.fingerprint
    assert follow(rotated.chain, old) == follow(rotated.chain, new) == follow(rotated.chain, None) == rotated.root
    assert follow(rotated.chain[1:], new) == rotated.root
    for chain, pinned in ((rotated.chain[1:], old), (rotated.chain, b"\x00" * 16), ([], old), ([], None)):
        with pytest.raises(Refused) as refused:
            follow(chain, pinned)
        assert refused.value.reason == "wrong_root"


def test_a_chain_has_no_holes_and_no_way_back(rotated: Fleet) -> None:
    first, second, third = rotated.chain
    for chain, reason in (
        ([first, third], "version_gap"),
        ([first, second, second], "rollback"),
        ([first, second, third, first], "rollback"),
        ([first, second, FLEET.chain[0]], "rollback"),
    ):
        with pytest.raises(Refused) as refused:
            follow(chain, FLEET.fingerprint)
        assert refused.value.reason == reason


def test_two_keys_with_one_name_are_refused_when_loaded() -> None:
    a, roots = FLEET.a.as_master(), FLEET.root.roots
    doubled: list[dict[str, Any]] = [
        {"roots": (roots[0], roots[0], roots[1])},
        {"masters": (a, replace(a, name="twin"))},
        {"masters": (replace(a, sig=roots[0]),)},
        {"releases": (a.sig,)},
    ]
    for changes in doubled:
        with pytest.raises(Refused) as refused:
            sign_root_list(replace(FLEET.root, **changes), FLEET.roots)
        assert refused.value.reason == "doubled_kid"
        claims = {**claims_of(FLEET.root), **_claims(changes)}
        with pytest.raises(Refused) as refused:
            read_root_list(cose_sign.sign(FLEET.roots, ROOT_TYP, claims))
        assert refused.value.reason == "doubled_kid"


def _claims(changes: dict[str, Any]) -> dict[int, Any]:
    written = {}
    for name, value in changes.items():
        label = {"roots": c.ROOTS, "masters": c.MASTERS, "releases": c.RELEASES}[name]
        written[label] = (
            [
                {1: each.sig, 2: each.kem, 3: list(each.roles), 4: each.name, 5: each.curve, 6: list(each.addresses)}
                for each in value
            ]
            if name == "masters"
            else list(value)
        )
    return written


MASTER = {1: b"\x01" * 32, 2: b"\x02" * 32, 3: ["job"], 4: "m", 5: b"", 6: []}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({-1: 0}, "claim_unknown"),
        ({c.SUB: "x"}, "claim_unknown"),
        ({c.VER: 0}, "claim_invalid"),
        ({c.VER: 2**32}, "claim_invalid"),
        ({c.VER: True}, "claim_invalid"),
        ({c.IAT: 1.5}, "claim_invalid"),
        ({c.IAT: 10**12}, "claim_invalid"),
        ({c.THRESHOLD: 0}, "claim_invalid"),
        ({c.THRESHOLD: 4}, "claim_invalid"),
        ({c.ROOTS: []}, "claim_invalid"),
        ({c.ROOTS: [b"\x00" * 31]}, "claim_invalid"),
        ({c.ROOTS: ["x"]}, "claim_invalid"),
        ({c.KIDS: [b"\x00" * 7]}, "claim_invalid"),
        ({c.RELEASES: {}}, "claim_invalid"),
        ({c.MINIMUM: {1: "1"}}, "claim_invalid"),
        ({c.MINIMUM: {"agent": 1}}, "claim_invalid"),
        ({c.MASTERS: [[]]}, "claim_invalid"),
        ({c.MASTERS: [{**MASTER, 7: 0}]}, "claim_invalid"),
        ({c.MASTERS: [{**MASTER, 1: b""}]}, "claim_invalid"),
        ({c.MASTERS: [{**MASTER, 2: b"\x00" * 33}]}, "claim_invalid"),
        ({c.MASTERS: [{**MASTER, 3: ["king"]}]}, "unknown_role"),
        ({c.MASTERS: [{**MASTER, 3: ["job", "job"]}]}, "claim_invalid"),
        ({c.MASTERS: [{**MASTER, 3: "job"}]}, "claim_invalid"),
        ({c.MASTERS: [{**MASTER, 4: ""}]}, "claim_invalid"),
        ({c.MASTERS: [{**MASTER, 4: "two\nlines"}]}, "claim_invalid"),
        ({c.MASTERS: [{**MASTER, 5: b"\x00"}]}, "claim_invalid"),
        ({c.MASTERS: [{**MASTER, 6: [""]}]}, "claim_invalid"),
        ({c.MASTERS: [MASTER, {**MASTER, 1: b"\x05" * 32}]}, "claim_invalid"),
    ],
)
def test_claims_that_are_wrong_are_refused_although_the_signatures_hold(changes: dict[int, Any], reason: str) -> None:
    body = cose_sign.sign(FLEET.roots, ROOT_TYP, {**claims_of(FLEET.root), **changes})
    with pytest.raises(Refused) as refused:
        first_root_list(body, None)
    assert refused.value.reason == reason


@pytest.mark.parametrize("label", LABELS)
def test_no_claim_may_be_missing(label: int) -> None:
    claims = {key: value for key, value in claims_of(FLEET.root).items() if key != label}
    with pytest.raises(Refused) as refused:
        read_root_list(cose_sign.sign(FLEET.roots, ROOT_TYP, claims))
    assert refused.value.reason == "claim_missing"


def test_a_master_may_be_an_authority_that_is_never_online() -> None:
    authority = replace(party("authority").as_master(("site-ca", "enrol")), curve=b"", addresses=())
    root = replace(FLEET.root, masters=(authority,))
    assert read_root_list(sign_root_list(root, FLEET.roots)).masters == (authority,)


def test_no_bit_of_the_first_list_may_change() -> None:
    reasons = reasons_of_flips(FLEET.chain[0], lambda body: first_root_list(body, FLEET.fingerprint))
    assert reasons >= {"bad_signature", "too_few_signatures", "wrong_root", "malformed", "wrong_kind"}


def test_no_bit_of_a_list_that_rotates_the_keys_may_change(rotated: Fleet) -> None:
    reasons = reasons_of_flips(rotated.chain[1], lambda body: next_root_list(body, FLEET.root))
    assert reasons >= {"bad_signature", "unknown_issuer", "malformed", "wrong_kind"}


@settings(max_examples=50)
@given(any_claims(LABELS), any_claims((1, 2, 3, 4, 5, 6)), st.binary(max_size=100))
def test_any_claims_are_a_list_or_refused(claims: dict[int, Any], master: dict[int, Any], body: bytes) -> None:
    refused_or_read(read_root_list, body)
    for changed in (claims, {**claims_of(FLEET.root), **claims}, {**claims_of(FLEET.root), c.MASTERS: [master]}):
        refused_or_read(read_root_list, cose_sign.sign(FLEET.roots[:1], ROOT_TYP, changed))
