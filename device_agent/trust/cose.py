"""The envelope of every proof: COSE_Sign1 with CWT claims, one algorithm, one kind (RFC 9052, RFC 8392, RFC 9596).

    tag 18 [ protected {1: -8 (EdDSA), 4: kid, 16: typ}, {}, payload, signature ]

The kind must be the one the reader expects, so that no proof can be used as another; the unprotected map must be empty;
the payload is verified as it was received and never encoded again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.trust import codec
from device_agent.trust.keys import KID_BYTES, SIGNATURE_BYTES, SigningKey, kid, verify

SIGN1_TAG: Final = b"\xd2"
EDDSA: Final = -8
HEADER_ALGORITHM: Final = 1
HEADER_KID: Final = 4
HEADER_TYP: Final = 16

FindKey = Callable[[bytes], bytes]
"""From a kid to a public key; raises ``Refused`` when there is none that counts."""


@dataclass(frozen=True, slots=True)
class Signed:
    """A proof whose signature holds."""

    kid: bytes
    claims: dict[int, Any]
    payload: bytes


@dataclass(frozen=True, slots=True)
class Unverified:
    """A proof as it was read; nothing of it is known to be true."""

    kid: bytes
    typ: str
    claims: dict[int, Any]
    payload: bytes
    content: bytes
    signature: bytes

    def verified(self, public: bytes) -> Signed:
        """Check the signature. Raises ``Refused`` (``bad_signature``)."""
        if kid(public) != self.kid:
            raise Refused("bad_signature", "the kid is that of another key")
        verify(public, self.signature, self.content)
        return Signed(self.kid, self.claims, self.payload)


def sign(key: SigningKey, typ: str, claims: dict[int, Any]) -> bytes:
    """A signed proof."""
    payload = codec.encode(claims)
    protected = codec.encode({HEADER_ALGORITHM: EDDSA, HEADER_KID: key.kid, HEADER_TYP: typ})
    signature = key.sign(_to_be_signed(protected, payload))
    return SIGN1_TAG + codec.encode([protected, {}, payload, signature])


def read(body: bytes, typ: str) -> Unverified:
    """Take a proof of one kind apart without believing it. Raises ``Refused``."""
    if len(body) > limits.MESSAGE_BYTES:
        raise Refused("oversized", f"{len(body)} bytes, at most {limits.MESSAGE_BYTES}")
    if body[:1] != SIGN1_TAG:
        raise Refused("malformed", "not a COSE_Sign1")
    parts = codec.decode(body[1:])
    if type(parts) is not list or len(parts) != 4:
        raise Refused("malformed", "a COSE_Sign1 has four parts")
    protected, unprotected, payload, signature = parts
    if type(protected) is not bytes or type(payload) is not bytes or type(signature) is not bytes:
        raise Refused("malformed", "header, payload and signature are byte strings")
    if unprotected != {} or len(signature) != SIGNATURE_BYTES:
        raise Refused("malformed", "an unprotected header, or a signature of another length")
    header = codec.decode(protected)
    if type(header) is not dict or list(header) != [HEADER_ALGORITHM, HEADER_KID, HEADER_TYP]:
        raise Refused("malformed", "the header has algorithm, kid and typ")
    if type(header[HEADER_ALGORITHM]) is not int or header[HEADER_ALGORITHM] != EDDSA:
        raise Refused("wrong_algorithm", str(header[HEADER_ALGORITHM])[:40])
    signer = header[HEADER_KID]
    if type(signer) is not bytes or len(signer) != KID_BYTES:
        raise Refused("malformed", "a kid of another length")
    if header[HEADER_TYP] != typ:
        raise Refused("wrong_kind", f"{str(header[HEADER_TYP])[:40]}, expected {typ}")
    claims = codec.decode(payload)
    if type(claims) is not dict or not all(type(label) is int for label in claims):
        raise Refused("malformed", "claims are a map of whole numbers")
    return Unverified(signer, typ, claims, payload, _to_be_signed(protected, payload), signature)


def open_signed(body: bytes, typ: str, find_key: FindKey) -> Signed:
    """A proof of one kind by a signer that counts. Raises ``Refused``."""
    unverified = read(body, typ)
    return unverified.verified(find_key(unverified.kid))


def kind(body: bytes) -> str:
    """The kind that a proof says it is, to choose its reader by. Raises ``Refused``."""
    if body[:1] != SIGN1_TAG:
        raise Refused("malformed", "not a COSE_Sign1")
    parts = codec.decode(body[1:])
    header = codec.decode(parts[0]) if type(parts) is list and parts and type(parts[0]) is bytes else None
    typ = header.get(HEADER_TYP) if type(header) is dict else None
    if type(typ) is not str:
        raise Refused("malformed", "a proof without a kind")
    return typ


def _to_be_signed(protected: bytes, payload: bytes) -> bytes:
    """The Sig_structure of RFC 9052, section 4.4."""
    return codec.encode(["Signature1", protected, b"", payload])
