"""HPKE as RFC 9180 has it: base mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20-Poly1305, its appendix A.2.1.

The vectors of the standard have associated data, which we do not use. Their key schedule stands beside them, so what
their sender would have made without associated data is made here from its key and nonce.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKey

from device_agent.trust import hpke
from device_agent.trust.keys import KemKey

PRIVATE = bytes.fromhex("8057991eef8f1f1af18f4a9491d16a1ce333f695d4db8e38da75975c4478e0fb")
PUBLIC = bytes.fromhex("4310ee97d88cc1f088a5576c77ab0cf5c3ac797f3d95139c6c84b5429c59662a")
INFO = bytes.fromhex("4f6465206f6e2061204772656369616e2055726e")
ENCAPSULATED = bytes.fromhex("1afa08d3dec047a643885163f1180476fa7ddb54c6a8029ea33f95796bf2ac4a")
KEY = bytes.fromhex("ad2744de8e17f4ebba575b3f5f5a8fa1f69c2a07f6e7500bc60ca6e3e3ec1c91")
NONCE = bytes.fromhex("5c4d98150661b848853b547f")
PLAINTEXT = bytes.fromhex("4265617574792069732074727574682c20747275746820626561757479")
ASSOCIATED = bytes.fromhex("436f756e742d30")
CIPHERTEXT = bytes.fromhex("1c5250d8034ec2b784ba2cfd69dbdb8af406cfe3ff938e131f0def8c8b60b4db21993c62ce81883d2dd1b51a28")


def test_we_open_what_the_sender_of_the_standard_seals() -> None:
    assert ChaCha20Poly1305(KEY).encrypt(NONCE, PLAINTEXT, ASSOCIATED) == CIPHERTEXT
    sealed = ENCAPSULATED + ChaCha20Poly1305(KEY).encrypt(NONCE, PLAINTEXT, b"")
    key = KemKey(PRIVATE)
    assert key.public == PUBLIC
    assert hpke.open_sealed(key, INFO, sealed) == PLAINTEXT


def test_another_implementation_opens_what_we_seal_and_we_what_it_seals() -> None:
    suite = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.CHACHA20_POLY1305)
    key = KemKey(PRIVATE)
    sealed = hpke.seal(PUBLIC, INFO, PLAINTEXT)
    recipient = suite.create_recipient_context(
        sealed[:32], KEMKey.from_pyca_cryptography_key(key.private_key), info=INFO
    )
    assert recipient.open(sealed[32:]) == PLAINTEXT
    encapsulated, sender = suite.create_sender_context(
        KEMKey.from_pyca_cryptography_key(key.private_key.public_key()), info=INFO
    )
    assert hpke.open_sealed(key, INFO, encapsulated + sender.seal(PLAINTEXT)) == PLAINTEXT


def test_keys_are_derived_as_rfc_5869_has_it() -> None:
    """Its appendix A.1."""
    secret, salt, info = b"\x0b" * 22, bytes(range(13)), bytes.fromhex("f0f1f2f3f4f5f6f7f8f9")
    expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    assert hpke.derive(secret, salt, info, 42).hex() == expected
