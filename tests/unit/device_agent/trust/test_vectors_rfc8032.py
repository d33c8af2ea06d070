"""Ed25519 as RFC 8032 has it: the vectors of its section 7.1."""

from __future__ import annotations

import pytest

from device_agent.errors import Refused
from device_agent.trust.keys import SigningKey, verify

VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        (
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
            "d25bf5f0595bbe24655141438e7a100b"
        ),
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        (
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c"
            "387b2eaeb4302aeeb00d291612bb0c00"
        ),
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        (
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc659"
            "4a7c15e9716ed28dc027beceea1ec40a"
        ),
    ),
]
ORDER = 2**252 + 27742317777372353535851937790883648493


@pytest.mark.parametrize(("private", "public", "message", "signature"), VECTORS)
def test_keys_and_signatures_are_those_of_the_standard(private: str, public: str, message: str, signature: str) -> None:
    key = SigningKey(bytes.fromhex(private))
    content = bytes.fromhex(message)
    assert key.public.hex() == public
    assert key.sign(content).hex() == signature
    verify(key.public, bytes.fromhex(signature), content)
    with pytest.raises(Refused):
        verify(key.public, bytes.fromhex(signature), content + b"\x00")


def test_a_signature_has_no_second_form() -> None:
    """Section 5.1.7: the second half is below the order of the group, or one signature would have several forms."""
    _, public, message, signature = VECTORS[1]
    first, second = bytes.fromhex(signature)[:32], int.from_bytes(bytes.fromhex(signature)[32:], "little")
    with pytest.raises(Refused):
        verify(bytes.fromhex(public), first + (second + ORDER).to_bytes(32, "little"), bytes.fromhex(message))
