"""upstream/salt/x931.py."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateNumbers, RSAPublicNumbers
from hypothesis import given
from hypothesis import strategies as st

from tests.peers.refusals import reason
from upstream.salt.x931 import make, opened

# A key of two Mersenne primes, small enough to be worked by hand: 21 bytes. Of it only n, e and d are looked at.
P, Q, E = (1 << 107) - 1, (1 << 61) - 1, 65537
D = pow(E, -1, (P - 1) * (Q - 1))
SMALL = RSAPrivateNumbers(P, Q, D, 0, 0, 0, RSAPublicNumbers(E, P * Q))

# What a stock Salt 3008.3 master signed at a sign-in: the hex SHA-256 of a key that it has long thrown away.
OF_A_MASTER = RSAPublicNumbers(
    65537,
    int(
        "d1ed5f39823c50ab3bbb3e139c93986c869a1e8b6d5b8baee1b85f8a745cb35d2599ee07e0f8f6a0ced1ae2c25c17ba2"
        "9f481b265f6ed5c577d360a7a80cdca2152a5a6bda3d4e338331056afbf125c7fbd05661b6ace06e286db2e503f761e8"
        "91ca904dd733e26f3488797a4f88d86e0f89fcbd329067b981269e44b9d2e101fa5771d3bc7bfe353afb4ca0b9bb4df4"
        "2c93cd8d5df8a4d4c7a4f3ee592f392c4be7f9597b7b06e90034926242188b438256bf43b13de644bb71e53b880d09fb"
        "f1ee5a6679588fd5ff50fcc2129636f6fe6b34b1047b74bcba63e7735cdc844a6f1afee40cccc6c0571cf4e9c0ac662a"
        "a919a1b246e8296511d714dee9c6234b",
        16,
    ),
)
ITS_SIGNATURE = bytes.fromhex(
    "10ddf58df2da3b373a3c7ba23a1bbdcf0bf0e552fd03cea28f8990c1a3df45a2f33750381cb2af98719e7e37e5933e48"
    "d4070d0995b54c3302d8c02a468e2d549ee9a03d6c0732e381adb7dd6dd82ce72957fb6504e132ed6fa86e458a9cf0bf"
    "2d8c19fb9f2e6617ef6fdc55f986df84ca37089e492716f93c616475bfce273e2c5ac9aea718c8b0e9b58191b3412c88"
    "eaa291bba4058db6538b113971a746b1a0a4738b3d99d8667126128cffdc40fb0c679df72a04b1fa022b2b8c1d42b5a7"
    "2c5a3634b3cb87f1ecfb338fa848aa814eb73aea55454dfaaf30e2bb781f4267a5e1d3ea910adfa10aa56bb18e9cbdb2"
    "5e8f7a9bcc20d732d92d58208163c256"
)
WHAT_IT_SIGNED = b"42422f9e017952ef97334f0f8be4cf7e4f9f16bbb0040bc29c4588df15f0b144"


def signed_by_hand(block: str) -> bytes:
    assert len(block) == 42
    number = pow(int(block, 16), D, P * Q)
    return min(number, P * Q - number).to_bytes(21, "big")


def test_what_a_real_master_signed() -> None:
    assert opened(OF_A_MASTER, ITS_SIGNATURE) == WHAT_IT_SIGNED


def test_a_signature_worked_out_with_plain_numbers() -> None:
    made = make(SMALL, b"salt")
    assert made.hex() == "57a8f44e3642747a3d9ad562ac285a9b1b81a35f89"
    assert made == signed_by_hand("6b" + "bb" * 14 + "ba" + b"salt".hex() + "cc")


@pytest.mark.parametrize(
    ("data", "block"),
    [
        (b"x" * 17, "6bbbba" + "78" * 17 + "cc"),
        (b"x" * 18, "6bba" + "78" * 18 + "cc"),
        (b"x" * 19, "6a" + "78" * 19 + "cc"),
    ],
)
def test_the_filler_gives_way(data: bytes, block: str) -> None:
    assert make(SMALL, data) == signed_by_hand(block)
    assert opened(SMALL.public_numbers, make(SMALL, data)) == data


def test_what_does_not_fit_is_not_signed() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        make(SMALL, b"x" * 20)


@given(st.binary(max_size=19))
def test_what_was_signed_is_opened(data: bytes) -> None:
    signature = make(SMALL, data)
    assert opened(SMALL.public_numbers, signature) == data
    larger = (P * Q - int.from_bytes(signature, "big")).to_bytes(21, "big")
    assert opened(SMALL.public_numbers, larger) == data


@pytest.mark.parametrize(
    "block",
    [
        "6b" + "bb" * 14 + "bb" + "73616c74" + "cc",
        "6b" + "bb" * 14 + "aa" + "73616c74" + "cc",
        "6c" + "bb" * 14 + "ba" + "73616c74" + "cc",
        "6b" + "bb" * 14 + "ba" + "73616c74" + "dc",
        "6b" + "bb" * 19 + "cc",
        "00" * 20 + "cc",
    ],
)
def test_another_form_is_refused(block: str) -> None:
    assert reason(opened, SMALL.public_numbers, signed_by_hand(block)) == "bad_signature"


@given(st.binary(max_size=30))
def test_any_bytes_are_refused(signature: bytes) -> None:
    assert reason(opened, SMALL.public_numbers, signature) == "bad_signature"
