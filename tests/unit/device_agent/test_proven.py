"""device_agent/protocol/proven.py: an item with its proof inside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from device_agent.errors import Refused
from device_agent.protocol.messages import Event, Item, Manifest, OutcomeRecord, decode_item, encode
from device_agent.protocol.outcomes import Outcome
from device_agent.protocol.proven import PROOF_BYTES, signed_form, split_proof, with_proof

JID = "20261121031500000000"
EVENT = Event(tag="a", data={"x": 1}, stamp=1.0, site="lisbon")
PAGE = Manifest(jid=JID, site="lisbon", ids=["a"], count=1, digest=b"x", revision=1, final=True)
RECORD = OutcomeRecord(
    jid=JID, site="lisbon", id="a", fun="x.y", outcome=Outcome.OK, ended=1.0, retcodes={"x.y": 0}, value=b"\xa5proof"
)


@pytest.mark.parametrize("item", [EVENT, PAGE, RECORD])
@pytest.mark.parametrize("size", [1, 255, 256, PROOF_BYTES])
def test_an_item_with_its_proof_is_read_as_the_item_and_taken_apart_again(item: Item, size: int) -> None:
    body, proof = encode(item), bytes(size)
    both = with_proof(body, proof)
    # A station of release 0.1 decodes it so, and sees no proof.
    assert decode_item(both) == item
    assert split_proof(both) == (body, proof)


def test_an_item_of_as_many_fields_as_a_short_map_has_takes_one_more() -> None:
    body = bytes((0x8F,)) + b"".join(b"\xa1%c\x01" % (97 + place) for place in range(15))
    both = with_proof(body, b"proof")
    assert both[0] == 0xDE
    assert split_proof(both) == (body, b"proof")


def test_an_item_without_a_proof_has_none_whatever_is_in_its_values() -> None:
    for item in (EVENT, PAGE, RECORD, replace(EVENT, data={"proof": b"x"})):
        assert split_proof(encode(item)) == (encode(item), b"")


def test_a_page_is_signed_without_its_mark_of_the_final_page() -> None:
    assert signed_form(encode(PAGE)) == encode(replace(PAGE, final=False))
    assert signed_form(encode(replace(PAGE, final=False))) == encode(replace(PAGE, final=False))
    assert signed_form(encode(EVENT)) == encode(EVENT)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x90",
        b"\x81\xa5proof",
        b"\x81\xa5proof\x01",
        b"\x81\xa5proof\xc4",
        b"\x81\xa5proof\xc4\x05abc",
        b"\x81\xa5proof\xc5\x04\x01" + bytes(1025),
        b"\x80\xa5proof\xc4\x01a",
    ],
)
def test_a_proof_that_is_cut_short_or_of_another_kind_is_refused(body: bytes) -> None:
    with pytest.raises(Refused):
        split_proof(body)


@given(st.binary(max_size=64))
def test_any_bytes_are_taken_apart_or_refused(body: bytes) -> None:
    try:
        rest, proof = split_proof(b"\x82\xa5proof" + body)
        again = with_proof(rest, proof)
    except Refused:
        return
    assert split_proof(again) == (rest, proof)
