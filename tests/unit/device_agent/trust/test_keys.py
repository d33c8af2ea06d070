"""device_agent/trust/keys.py: names of keys, and what a person compares."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.trust import hpke, keys
from device_agent.trust.keys import KemKey, SigningKey
from tests.peers.fleet import kem_key, signing_key
from tests.peers.flips import reasons_of_flips, refused_or_read

KEY = signing_key("cam-1")


def test_the_names_of_a_key_are_stable() -> None:
    """Devices in the field have these names: whoever changes them sends every device back to the start."""
    public = bytes(range(32))
    assert keys.did(public).hex() == "ece57f3fb987c0f0e7306270c2a7585e"
    assert keys.kid(public) == keys.did(public)[:8]
    assert keys.did_text(keys.did(public)) == "5tsx6p5zq7apbzzqmjymfj2yly"
    assert keys.fingerprint(public) == "5tsx-6p5z-q7ap-bzzq"


@given(st.binary(min_size=16, max_size=16))
def test_an_identity_is_read_as_it_is_written(identity: bytes) -> None:
    text = keys.did_text(identity)
    assert re.fullmatch("[a-z2-7]{26}", text)
    assert keys.did_from_text(text) == identity


@pytest.mark.parametrize(
    "change", [str.upper, lambda text: text + "a", lambda text: text[:-1], lambda text: text + "\n"]
)
def test_an_identity_has_one_text(change: object) -> None:
    assert callable(change)
    with pytest.raises(Refused) as refused:
        keys.did_from_text(change(keys.did_text(KEY.did)))
    assert refused.value.reason == "bad_identity"


def test_the_last_character_of_an_identity_hides_no_bits() -> None:
    text = keys.did_text(KEY.did)[:-1]
    accepted = set()
    for last in "abcdefghijklmnopqrstuvwxyz234567":
        with suppress(Refused):
            accepted.add(keys.did_from_text(text + last))
    assert len(accepted) == 2**3, "25 characters hold 125 bits, the last one 3 more"


@given(st.text(max_size=30))
def test_any_text_is_an_identity_or_refused(text: str) -> None:
    refused_or_read(lambda _: keys.did_from_text(text), b"")


def test_a_fingerprint_may_be_typed_as_one_likes() -> None:
    shown = keys.fingerprint(KEY.public)
    assert keys.same_fingerprint(shown, shown)
    assert keys.same_fingerprint(f" {shown.upper().replace('-', ' ')}\n", shown)
    assert not keys.same_fingerprint("", shown)
    assert not keys.same_fingerprint(shown[:-1], shown)
    assert not keys.same_fingerprint(keys.fingerprint(signing_key("cam-2").public), shown)


@pytest.mark.parametrize("public", [b"", b"\x00" * 31, b"\xff" * 32, b"\x00" * 33])
def test_bytes_that_are_no_key_are_refused_as_one(public: bytes) -> None:
    with pytest.raises(Refused) as refused:
        keys.verify(public, KEY.sign(b"a"), b"a")
    assert refused.value.reason == "bad_signature"


def test_a_signature_of_another_length_is_refused() -> None:
    for signature in (b"", KEY.sign(b"a")[:-1], KEY.sign(b"a") + b"\x00"):
        with pytest.raises(Refused):
            keys.verify(KEY.public, signature, b"a")


def test_private_keys_are_new_each_time() -> None:
    assert SigningKey(keys.new_private()).kid != SigningKey(keys.new_private()).kid


@pytest.mark.parametrize("public", [b"", b"\x00" * 31, b"\x00" * 32, b"\x01" + b"\x00" * 31])
def test_sealing_to_what_is_no_key_is_refused(public: bytes) -> None:
    with pytest.raises(Refused) as refused:
        hpke.seal(public, b"info", b"plaintext")
    assert refused.value.reason == "bad_key"


def test_what_is_sealed_opens_for_its_key_and_place_alone() -> None:
    key = kem_key("cam-1")
    sealed = hpke.seal(key.public, b"info", b"plaintext")
    assert len(sealed) == len(b"plaintext") + hpke.OVERHEAD_BYTES
    assert hpke.open_sealed(key, b"info", sealed) == b"plaintext"
    attempts: list[tuple[KemKey, bytes, bytes]] = [
        (kem_key("cam-2"), b"info", sealed),
        (key, b"other", sealed),
        (key, b"info", sealed[:-1]),
        (key, b"info", b"\x00" * len(sealed)),
        (key, b"info", b""),
    ]
    for other, info, body in attempts:
        with pytest.raises(Refused) as refused:
            hpke.open_sealed(other, info, body)
        assert refused.value.reason == "not_sealed_to_us"


def test_no_bit_of_what_is_sealed_may_change() -> None:
    key = kem_key("cam-1")
    sealed = hpke.seal(key.public, b"info", b"plaintext")
    assert reasons_of_flips(sealed, lambda body: hpke.open_sealed(key, b"info", body)) == {"not_sealed_to_us"}
