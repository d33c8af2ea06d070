"""COSE as RFC 9052 has it: what a signature covers, by the examples of its appendix C and of its working group."""

from __future__ import annotations

import cbor2
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePublicNumbers
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from device_agent.trust import cose, cose_sign
from device_agent.trust.keys import SigningKey, verify

CONTENT = b"This is the content."
P256 = EllipticCurvePublicNumbers(
    int("bac5b11cad8f99f9c72b05cf4b9e26d244dc189f745228255a219a86d6a09eff", 16),
    int("20138bf82dc1b6d562be0fa54ab7804a3a64b6d72ccfed6b6fb6ed28bbfc117e", 16),
    SECP256R1(),
).public_key()
"""The key "11" of the appendix. We sign with Ed25519 alone, but what is signed is the same for every algorithm."""

ONE_SIGNER = bytes.fromhex(
    "d28443a10126a10442313154546869732069732074686520636f6e74656e742e58408eb33e4ca31d1c465ab05aac34cc6b23d58fef5c083106"
    "c4d25a91aef0b0117e2af9a291aa32e14ab834dc56ed2a223444547e01f11d3b0916e5a4c345cacb36"
)
SEVERAL_SIGNERS = bytes.fromhex(
    "d8628440a054546869732069732074686520636f6e74656e742e818343a10126a1044231315840e2aeafd40d69d19dfe6e52077c5d7ff4e408"
    "282cbefb5d06cbf414af2e19d982ac45ac98b8544c908b4507de1e90b717c3d34816fe926a2b98f53afd2fa0f30a"
)
EDDSA_KEY = SigningKey(bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"))
EDDSA = bytes.fromhex(
    "d28445a201270300a10442313154546869732069732074686520636f6e74656e742e58407142fd2ff96d56db85bee905a76ba1d0b7321a95c8"
    "c4d3607c5781932b7afb8711497dfa751bf40b58b3bcc32300b1487f3db34085eef013bf08f4a44d6fef0d"
)


def verify_p256(signature: bytes, content: bytes) -> None:
    halves = int.from_bytes(signature[:32]), int.from_bytes(signature[32:])
    P256.verify(encode_dss_signature(*halves), content, ECDSA(SHA256()))


def test_what_one_signer_signs_is_what_appendix_c_2_1_signs() -> None:
    assert ONE_SIGNER[:1] == cose.SIGN1_TAG
    protected, _, payload, signature = cbor2.loads(ONE_SIGNER).value
    assert payload == CONTENT
    verify_p256(signature, cose._to_be_signed(protected, payload))


def test_what_one_of_several_signs_is_what_appendix_c_1_1_signs() -> None:
    assert SEVERAL_SIGNERS[:2] == cose_sign.SIGN_TAG
    protected, _, payload, ((own, _, signature),) = cbor2.loads(SEVERAL_SIGNERS).value
    assert payload == CONTENT
    verify_p256(signature, cose_sign._to_be_signed(protected, own, payload))


def test_what_several_sign_has_the_bytes_of_the_working_group() -> None:
    """ecdsa-01 of its examples, where both headers have something in them."""
    expected = "85695369676e617475726543a1030043a101264054546869732069732074686520636f6e74656e742e"
    assert cose_sign._to_be_signed(b"\xa1\x03\x00", b"\xa1\x01\x26", CONTENT).hex() == expected


def test_we_sign_what_the_working_group_signs_with_ed25519() -> None:
    """eddsa-sig-01 of its examples."""
    protected, _, payload, signature = cbor2.loads(EDDSA).value
    content = cose._to_be_signed(protected, payload)
    verify(EDDSA_KEY.public, signature, content)
    assert EDDSA_KEY.sign(content) == signature
