"""The envelope of what several people sign, each by hand at another time: COSE_Sign (RFC 9052, section 4.1).

    tag 98 [ protected {16: typ}, {}, payload, [ [ protected {1: -8, 4: kid}, {}, signature ], … ] ]

A signature covers the payload and both headers, and not the other signatures, so that they may be added one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from device_agent.errors import Refused
from device_agent.trust import codec
from device_agent.trust.cose import EDDSA, HEADER_ALGORITHM, HEADER_KID, HEADER_TYP
from device_agent.trust.keys import KID_BYTES, SIGNATURE_BYTES, SigningKey, verify

SIGN_TAG: Final = b"\xd8\x62"
SIGNATURES_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature as it was read: who says to have made it, over what, and itself."""

    kid: bytes
    content: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class SignedBySeveral:
    """A proof with its signatures, none of which is known to hold."""

    claims: dict[int, Any]
    payload: bytes
    signatures: tuple[Signature, ...]

    def count(self, known: Mapping[bytes, bytes]) -> int:
        """How many of these keys, by kid, have signed. One that signed twice counts once; a false one is refused."""
        signers = set()
        for each in self.signatures:
            public = known.get(each.kid)
            if public is not None:
                verify(public, each.signature, each.content)
                signers.add(public)
        return len(signers)


def sign(keys: list[SigningKey], typ: str, claims: dict[int, Any]) -> bytes:
    """A proof signed by each of these keys."""
    protected = codec.encode({HEADER_TYP: typ})
    payload = codec.encode(claims)
    return _written(protected, payload, [_signed(key, protected, payload) for key in keys])


def add_signature(body: bytes, typ: str, key: SigningKey) -> bytes:
    """The same proof with one more signature; as it is when this key has signed it. Raises ``Refused``."""
    proof = read(body, typ)
    if any(each.kid == key.kid for each in proof.signatures):
        return body
    protected, _, payload, signatures = codec.decode(body[len(SIGN_TAG) :])
    return _written(protected, payload, [*signatures, _signed(key, protected, payload)])


def read(body: bytes, typ: str) -> SignedBySeveral:
    """Take a proof of one kind apart without believing it. Raises ``Refused``."""
    if body[: len(SIGN_TAG)] != SIGN_TAG:
        raise Refused("malformed", "not a COSE_Sign")
    parts = codec.decode(body[len(SIGN_TAG) :])
    if type(parts) is not list or len(parts) != 4:
        raise Refused("malformed", "a COSE_Sign has four parts")
    protected, unprotected, payload, signatures = parts
    if type(protected) is not bytes or unprotected != {} or type(payload) is not bytes or type(signatures) is not list:
        raise Refused("malformed", "header and payload are byte strings, signatures a list, and nothing is unprotected")
    if not 1 <= len(signatures) <= SIGNATURES_MAX:
        raise Refused("malformed", f"{len(signatures)} signatures, allowed are 1 to {SIGNATURES_MAX}")
    header = codec.decode(protected)
    if type(header) is not dict or list(header) != [HEADER_TYP]:
        raise Refused("malformed", "the header has a typ and nothing else")
    if header[HEADER_TYP] != typ:
        raise Refused("wrong_kind", f"{str(header[HEADER_TYP])[:40]}, expected {typ}")
    claims = codec.decode(payload)
    if type(claims) is not dict or not all(type(label) is int for label in claims):
        raise Refused("malformed", "claims are a map of whole numbers")
    return SignedBySeveral(claims, payload, tuple(_read_signature(each, protected, payload) for each in signatures))


def _read_signature(parts: Any, protected: bytes, payload: bytes) -> Signature:
    if type(parts) is not list or len(parts) != 3:
        raise Refused("malformed", "a signature has three parts")
    own, unprotected, signature = parts
    if type(own) is not bytes or unprotected != {} or type(signature) is not bytes or len(signature) != SIGNATURE_BYTES:
        raise Refused("malformed", "a signature is a header, an empty map and 64 bytes")
    header = codec.decode(own)
    if type(header) is not dict or list(header) != [HEADER_ALGORITHM, HEADER_KID]:
        raise Refused("malformed", "the header of a signature has algorithm and kid")
    if type(header[HEADER_ALGORITHM]) is not int or header[HEADER_ALGORITHM] != EDDSA:
        raise Refused("wrong_algorithm", str(header[HEADER_ALGORITHM])[:40])
    signer = header[HEADER_KID]
    if type(signer) is not bytes or len(signer) != KID_BYTES:
        raise Refused("malformed", "a kid of another length")
    return Signature(signer, _to_be_signed(protected, own, payload), signature)


def _signed(key: SigningKey, protected: bytes, payload: bytes) -> list[Any]:
    own = codec.encode({HEADER_ALGORITHM: EDDSA, HEADER_KID: key.kid})
    return [own, {}, key.sign(_to_be_signed(protected, own, payload))]


def _written(protected: bytes, payload: bytes, signatures: list[Any]) -> bytes:
    return SIGN_TAG + codec.encode([protected, {}, payload, signatures])


def _to_be_signed(protected: bytes, own: bytes, payload: bytes) -> bytes:
    """The Sig_structure of RFC 9052, section 4.4, for one of several signatures."""
    return codec.encode(["Signature", protected, own, b"", payload])
