"""device_agent/trust/join.py: a request proves who made it, and with a token, what it knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.trust import claims as c
from device_agent.trust import codec, cose, join
from device_agent.trust.join import JoinRequest, Request, is_confirm, read_confirm, read_request, tag_fits
from device_agent.trust.keys import did_text
from tests.peers.fleet import SITE, kem_key, signing_key
from tests.peers.flips import any_claims, flipped, reasons_of_flips, refused_or_read

CAMERA = signing_key("cam-1")
STRANGER = signing_key("stranger")
KEM = kem_key("cam-1")
DID = did_text(CAMERA.did)
NONCE = b"\x05" * 16
TOKEN = (b"\x06" * 8, b"\x07" * 16)


def request(token: tuple[bytes, bytes] | None = TOKEN, **changes: Any) -> Request:
    fields = {"nonce": NONCE, "serial": "SN-1", "model": "P3245", "token": token, **changes}
    return join.request(CAMERA, KEM.public, **fields)


def refused(call: Callable[..., object], *arguments: object, **named: object) -> str:
    with pytest.raises(Refused) as caught:
        call(*arguments, **named)
    return caught.value.reason


def test_a_request_says_who_asks_with_which_keys_and_what_it_is() -> None:
    made = request()
    read = read_request(made.payload)
    assert read == JoinRequest(
        made.body, made.tag, DID, CAMERA.public, KEM.public, NONCE, serial="SN-1", model="P3245", token_id=TOKEN[0]
    )
    assert tag_fits(read, TOKEN[1])


def test_a_request_without_a_token_has_no_tag() -> None:
    read = read_request(request(None).payload)
    assert (read.token_id, read.tag) == (None, b"")
    assert not tag_fits(read, TOKEN[1])


def test_a_tag_made_without_the_secret_does_not_fit() -> None:
    read = read_request(request((TOKEN[0], b"\x08" * 16)).payload)
    assert read.token_id == TOKEN[0]
    assert not tag_fits(read, TOKEN[1])


def test_a_tag_does_not_fit_another_request_with_the_same_token() -> None:
    made, other = request(), request(nonce=b"\x09" * 16)
    assert not tag_fits(read_request(codec.encode([other.body, made.tag])), TOKEN[1])


def test_a_tag_and_a_token_come_together_or_not_at_all() -> None:
    assert refused(read_request, codec.encode([request().body, b""])) == "malformed"
    assert refused(read_request, codec.encode([request(None).body, bytes(16)])) == "malformed"


def test_nobody_asks_in_the_name_of_a_key_that_is_not_theirs() -> None:
    claims = cose.read(request().body, "os-enr").claims
    by_stranger = cose.sign(STRANGER, "os-enr", claims)
    assert refused(read_request, codec.encode([by_stranger, bytes(16)])) == "unknown_issuer"
    renamed = cose.sign(CAMERA, "os-enr", {**claims, c.SUB: did_text(STRANGER.did)})
    assert refused(read_request, codec.encode([renamed, bytes(16)])) == "not_for_us"


def test_what_a_machine_says_of_itself_is_cut_to_what_a_screen_can_show() -> None:
    read = read_request(request(serial="SN\x00-\x1b[2J" + "9" * 100, model="P\n3245").payload)
    assert (read.serial[:10], len(read.serial), read.model) == ("SN-[2J9999", 64, "P3245")


@pytest.mark.parametrize(
    "changes",
    [
        {c.SERIAL: "x" * 65},
        {c.SERIAL: "\x1b[2J"},
        {c.HARDWARE: {}},
        {c.HARDWARE: {"model": "x", "more": "y"}},
        {c.HARDWARE: {"model": "x" * 65}},
        {c.HARDWARE: {"model": b"x"}},
        {c.HARDWARE: {"model": "\x07"}},
        {c.NONCE: bytes(15)},
        {c.KEM: bytes(31)},
        {c.TOKEN: bytes(7)},
        {c.CNF: {}},
        {c.NAME: "cam-1"},
    ],
)
def test_a_request_out_of_bounds_is_refused_although_it_is_signed(changes: dict[int, Any]) -> None:
    claims = cose.read(request().body, "os-enr").claims
    body = cose.sign(CAMERA, "os-enr", {**claims, **changes})
    assert refused(read_request, codec.encode([body, bytes(16)])) in {"claim_invalid", "claim_unknown"}


def test_a_request_is_small() -> None:
    assert len(request().payload) < 330
    assert refused(read_request, codec.encode([bytes(2048), b""])) == "oversized"


def test_whatever_bit_of_a_request_is_turned_over_it_is_refused_or_its_tag_does_not_fit() -> None:
    for payload in flipped(request().payload):
        try:
            read = read_request(payload)
        except Refused:
            continue
        assert not tag_fits(read, TOKEN[1])


def test_whatever_bit_of_a_request_without_a_token_is_turned_over_it_is_refused() -> None:
    assert "bad_signature" in reasons_of_flips(request(None).payload, read_request)


@given(st.binary(max_size=400))
def test_any_bytes_are_refused(payload: bytes) -> None:
    assert refused(read_request, payload)
    assert refused(read_confirm, payload, site=SITE)


@given(any_claims([c.SUB, c.CNF, c.KEM, c.NONCE, c.SERIAL, c.HARDWARE, c.TOKEN, c.AUD]), st.binary(max_size=16))
def test_any_claims_under_a_good_signature_are_read_or_refused(claims: dict[int, Any], tag: bytes) -> None:
    own = {c.SUB: DID, c.CNF: cose.read(request().body, "os-enr").claims[c.CNF]}
    for each in (claims, {**claims, **own}):
        refused_or_read(read_request, codec.encode([cose.sign(CAMERA, join.REQUEST_TYP, each), tag]))
    refused_or_read(lambda body: read_confirm(body, site=SITE), cose.sign(CAMERA, join.CONFIRM_TYP, claims))


# --- the word that the answer was taken ----------------------------------------------------------------------------


def confirmed(payload: bytes) -> object:
    read = read_confirm(payload, site=SITE)
    read.verified(CAMERA.public)
    return read


def test_a_device_confirms_the_answer_to_one_request() -> None:
    made = request()
    read = read_confirm(join.confirm(CAMERA, site=SITE, request_body=made.body), site=SITE)
    read.verified(CAMERA.public)
    assert (read.did, read.digest) == (DID, join.request_digest(made.body))
    assert read.digest != join.request_digest(request(nonce=bytes(16)).body)


def test_nobody_confirms_for_another_device_or_at_another_site() -> None:
    body = join.confirm(CAMERA, site=SITE, request_body=b"")
    assert refused(read_confirm, body, site="porto") == "wrong_site"
    assert refused(read_confirm(body, site=SITE).verified, STRANGER.public) == "unknown_issuer"
    forged = cose.sign(STRANGER, "os-cfm", cose.read(body, "os-cfm").claims)
    assert refused(confirmed, forged) == "bad_signature"


def test_a_confirmation_and_a_request_are_told_apart_on_their_topic() -> None:
    assert is_confirm(join.confirm(CAMERA, site=SITE, request_body=b""))
    assert not is_confirm(request().payload)
    assert not is_confirm(b"")


def test_whatever_bit_of_a_confirmation_is_turned_over_it_is_refused() -> None:
    assert "bad_signature" in reasons_of_flips(join.confirm(CAMERA, site=SITE, request_body=b""), confirmed)
