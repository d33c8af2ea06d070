"""device_agent/trust/revocations.py: a list of keys that count no more is read as it was signed, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.trust import claims as c
from device_agent.trust import cose, revocations
from device_agent.trust.keys import SigningKey
from device_agent.trust.revocations import KIDS_MAX, Revocations, read_revocations, sign_revocations
from tests.peers.flips import any_claims, reasons_of_flips, refused_or_read

KEY = SigningKey(b"\x01" * 32)
KIDS = [b"\x03" * 8, b"\x02" * 8]
NOW = 1_800_000_000


def signed(**changes: Any) -> bytes:
    return sign_revocations(KEY, **{"version": 4, "kids": KIDS, "issued": NOW, **changes})


def verified(body: bytes) -> Revocations:
    read = read_revocations(body)
    read.verify(KEY.public)
    return read


def refused(call: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(Refused) as caught:
        call(*arguments)
    return caught.value.reason


def test_a_list_says_whose_it_is_and_whom_it_names() -> None:
    read = verified(signed(site="lisbon"))
    assert (read.version, read.issued, read.kids, read.site, read.kid) == (4, NOW, frozenset(KIDS), "lisbon", KEY.kid)


def test_a_list_of_a_master_is_for_no_single_site() -> None:
    assert verified(signed()).site is None


def test_a_key_named_twice_by_the_signer_stands_once() -> None:
    assert verified(signed(kids=[*KIDS, *KIDS])).kids == frozenset(KIDS)


def test_a_list_signed_by_another_key_is_refused() -> None:
    assert refused(read_revocations(signed()).verify, SigningKey(b"\x02" * 32).public) == "bad_signature"


@pytest.mark.parametrize(
    "changes",
    [
        {c.KIDS: [KIDS[0], KIDS[1]]},
        {c.KIDS: [KIDS[0], KIDS[0]]},
        {c.KIDS: [bytes(7)]},
        {c.KIDS: ["00000000"]},
        {c.VER: 0},
        {c.VER: 2**63},
        {c.AUD: "a site"},
        {c.SUB: "x"},
    ],
)
def test_a_list_out_of_bounds_is_refused(changes: dict[int, Any]) -> None:
    claims = {c.VER: 4, c.IAT: NOW, c.KIDS: sorted(KIDS), **changes}
    assert refused(read_revocations, cose.sign(KEY, "os-rev", claims)) in {"claim_invalid", "claim_unknown"}


def test_the_longest_list_fits_into_a_message() -> None:
    kids = [number.to_bytes(8, "big") for number in range(KIDS_MAX)]
    assert len(verified(signed(kids=kids)).kids) == KIDS_MAX


def test_whatever_bit_is_turned_over_it_is_refused() -> None:
    assert "bad_signature" in reasons_of_flips(signed(site="lisbon"), verified)


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(body: bytes) -> None:
    assert refused(verified, body)


@given(any_claims([c.VER, c.IAT, c.AUD, c.KIDS]))
def test_any_claims_under_a_good_signature_are_read_or_refused(claims: dict[int, Any]) -> None:
    refused_or_read(verified, cose.sign(KEY, revocations.TYP, claims))
