"""What a device says to join: its request, signed by itself, and the word that it took the answer.

With a join token the request carries a tag that only who knows the token's secret can make, and the answer another:
each side proves itself to the other over a broker that nobody trusts. A request without a token waits for a person
who compares the fingerprint.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Any, Final

from device_agent.errors import Refused
from device_agent.trust import claims as c
from device_agent.trust import codec, cose, hpke
from device_agent.trust.addressees import take_device, take_site
from device_agent.trust.carried_keys import confirmed_key, take_confirmed_key
from device_agent.trust.keys import PUBLIC_BYTES, SigningKey, did, did_text, kem_public, kid

REQUEST_TYP: Final = "os-enr"
CONFIRM_TYP: Final = "os-cfm"
NONCE_BYTES: Final = 16
TAG_BYTES: Final = 16
TOKEN_ID_BYTES: Final = 8
DIGEST_BYTES: Final = 16
NAME_CHARACTERS: Final = 64
REQUEST_BYTES: Final = 2048
"""Largest request: anybody may send one."""

_FIRST_USE = 1
"""The flag of a device that believes whoever answers first."""


@dataclass(frozen=True, slots=True)
class Request:
    """A device's own request: ``payload`` is what it publishes; the rest is what the answer is held against."""

    body: bytes
    tag: bytes
    payload: bytes
    did: str
    sig: bytes
    kem: bytes
    nonce: bytes
    secret: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A request as a station read it: made by the holder of ``sig``, and no more is known. ``did`` is text.

    ``first_use``: the device says that it believes whoever answers first.
    """

    body: bytes = field(repr=False)
    tag: bytes = field(repr=False)
    did: str
    sig: bytes
    kem: bytes
    nonce: bytes
    serial: str
    model: str
    token_id: bytes | None
    first_use: bool = False


@dataclass(frozen=True, slots=True)
class UnverifiedConfirm:
    """A device's word as it was read. ``digest`` is that of the request whose answer it took."""

    did: str
    site: str
    digest: bytes
    _proof: cose.Unverified = field(repr=False)

    def verified(self, public: bytes) -> None:
        """Check that this device's key signed it. Raises ``Refused``."""
        if did_text(did(public)) != self.did:
            raise Refused("unknown_issuer", self.did)
        self._proof.verified(public)


def request(
    key: SigningKey,
    kem: bytes,
    *,
    nonce: bytes,
    serial: str,
    model: str,
    token: tuple[bytes, bytes] | None = None,
    first_use: bool = False,
) -> Request:
    """A request to join, with a token's id and secret if there is one. ``nonce`` is fresh, 16 bytes.

    ``serial`` and ``model`` are what the machine says of itself: cut to what the reader takes.
    """
    device = did_text(key.did)
    claims: dict[int, Any] = {
        c.SUB: device,
        c.CNF: confirmed_key(key.public),
        c.KEM: kem,
        c.NONCE: nonce,
        c.SERIAL: _shown(serial),
        c.HARDWARE: {"model": _shown(model)},
    }
    if token is not None:
        claims[c.TOKEN] = token[0]
    if first_use:
        claims[c.FLAGS] = _FIRST_USE
    body = cose.sign(key, REQUEST_TYP, claims)
    secret = token[1] if token is not None else None
    tag = request_tag(secret, body) if secret is not None else b""
    return Request(body, tag, codec.encode([body, tag]), device, key.public, kem, nonce, secret)


def read_request(payload: bytes) -> JoinRequest:
    """A request whose sender holds the key that it names. Raises ``Refused``."""
    parts = codec.decode(payload, limit=REQUEST_BYTES)
    if type(parts) is not list or len(parts) != 2 or any(type(part) is not bytes for part in parts):
        raise Refused("malformed", "a request and its tag were expected")
    body, tag = parts
    proof = cose.read(body, REQUEST_TYP)
    claims = proof.claims
    c.only(claims, c.SUB, c.CNF, c.KEM, c.NONCE, c.SERIAL, c.HARDWARE, c.TOKEN, c.FLAGS)
    sig = take_confirmed_key(claims)
    device = take_device(claims, did_text(did(sig)))
    if proof.kid != kid(sig):
        raise Refused("unknown_issuer", "a request is signed by the key that it names")
    proof.verified(sig)
    token_id = c.take_if(claims, c.TOKEN, bytes, size=TOKEN_ID_BYTES)
    if len(tag) != (0 if token_id is None else TAG_BYTES):
        raise Refused("malformed", "a tag goes with a token")
    kem = c.take(claims, c.KEM, bytes, size=PUBLIC_BYTES)
    kem_public(kem)
    hardware = c.take(claims, c.HARDWARE, dict)
    if set(hardware) != {"model"}:
        raise Refused("claim_invalid", "hardware says the model")
    return JoinRequest(
        body=body,
        tag=tag,
        did=device,
        sig=sig,
        kem=kem,
        nonce=c.take(claims, c.NONCE, bytes, size=NONCE_BYTES),
        serial=_printable(c.take(claims, c.SERIAL, str)),
        model=_printable(hardware["model"]),
        token_id=token_id,
        first_use=c.take_if(claims, c.FLAGS, int, most=_FIRST_USE) == _FIRST_USE,
    )


def tag_fits(join_request: JoinRequest, secret: bytes) -> bool:
    """Whether the sender knows the token's secret."""
    return hmac.compare_digest(join_request.tag, request_tag(secret, join_request.body))


def is_confirm(payload: bytes) -> bool:
    """Whether a payload on the topic of requests is a confirmation instead."""
    return payload[:1] == cose.SIGN1_TAG


def confirm(key: SigningKey, *, site: str, request_body: bytes) -> bytes:
    """A device's word that it took the answer to this request."""
    claims = {c.SUB: did_text(key.did), c.AUD: site, c.NONCE: request_digest(request_body)}
    return cose.sign(key, CONFIRM_TYP, claims)


def read_confirm(payload: bytes, *, site: str) -> UnverifiedConfirm:
    """Read a device's word without believing it. Raises ``Refused``."""
    proof = cose.read(payload, CONFIRM_TYP)
    c.only(proof.claims, c.SUB, c.AUD, c.NONCE)
    return UnverifiedConfirm(
        did=take_device(proof.claims),
        site=take_site(proof.claims, site),
        digest=c.take(proof.claims, c.NONCE, bytes, size=DIGEST_BYTES),
        _proof=proof,
    )


def request_digest(body: bytes) -> bytes:
    """How a short word names the request that it answers."""
    return hashlib.sha256(body).digest()[:DIGEST_BYTES]


def request_tag(secret: bytes, body: bytes) -> bytes:
    """What proves that a request was made by who knows the token."""
    return hmac.digest(_token_key(secret), b"req" + body, "sha256")[:TAG_BYTES]


def response_tag(secret: bytes, body: bytes, sealed: bytes) -> bytes:
    """What proves that an answer to this request was made by who knows the token."""
    transcript = b"rsp" + hashlib.sha256(body).digest() + sealed
    return hmac.digest(_token_key(secret), transcript, "sha256")[:TAG_BYTES]


def _token_key(secret: bytes) -> bytes:
    return hpke.derive(secret, b"", b"os1 tok", 32)


def _shown(text: str) -> str:
    return "".join(character for character in text if character.isprintable())[:NAME_CHARACTERS]


def _printable(text: Any) -> str:
    """Text that is shown to an operator: nothing in it may steer a terminal."""
    if type(text) is not str or len(text) > NAME_CHARACTERS or not text.isprintable():
        raise Refused("claim_invalid", f"serial and model are at most {NAME_CHARACTERS} printable characters")
    return text
