"""upstream/salt/box.py."""

from __future__ import annotations

import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from tests.peers.refusals import reason
from upstream.salt.box import Box, new_nonce

KEY = base64.b64encode(bytes(range(56))).decode()
BOX = Box(KEY)


@given(st.binary(max_size=100))
def test_what_is_sealed_is_opened(body: bytes) -> None:
    assert BOX.open(BOX.seal(body)) == body
    nonce = new_nonce()
    assert BOX.open(BOX.seal(body, nonce), nonce) == body


def test_a_box_that_openssl_made() -> None:
    # openssl enc -aes-192-cbc over ``pickle::`` and the MessagePack of 7, the IV all zeros; openssl dgst -mac HMAC.
    made = bytes.fromhex(
        "000000000000000000000000000000009d2c6eace8da485a4d85b1dd62b3d0b9"
        "6df30bcff58501b7101584cd230f125ffa21edf6708fe994199445a5751a98f7"
    )
    assert BOX.open(made) == b"\x07"


def test_each_changed_bit_is_found_before_anything_is_opened() -> None:
    sealed = BOX.seal(b"body")
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        assert reason(BOX.open, bytes(changed)) == "bad_mac"


def test_another_key_and_another_nonce() -> None:
    other = Box(base64.b64encode(bytes(56)).decode())
    assert reason(other.open, BOX.seal(b"body")) == "bad_mac"
    assert reason(BOX.open, BOX.seal(b"body", new_nonce()), new_nonce()) == "wrong_nonce"
    assert reason(BOX.open, BOX.seal(b"body"), new_nonce()) == "wrong_nonce"


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(blob: bytes) -> None:
    with contextlib.suppress(Refused):
        raise AssertionError(BOX.open(blob))


@pytest.mark.parametrize("key", ["", "AAAA", KEY[:-4], KEY + "AAAA", "ü" * 76, "="])
def test_a_text_that_is_no_key(key: str) -> None:
    assert reason(Box, key) == "malformed"
