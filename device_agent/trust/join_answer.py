"""What a station answers to a request to join, and how the device judges it.

The answer that accepts is sealed to the device and holds everything it needs to judge its site from then on. It is
judged in a fixed order: tag, seal, root, chain, the site's certificate against the floor, our own certificate, our
nonce. Only then does the caller take the time from it: a site that is not proven must not set a clock.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.trust import claims as c
from device_agent.trust import codec, cose, hpke
from device_agent.trust.addressees import take_device, take_site
from device_agent.trust.chain import Anchor
from device_agent.trust.device_certificate import DeviceCertificate
from device_agent.trust.epochs import EPOCH_MAX, GROUP_KEY_BYTES
from device_agent.trust.join import (
    DIGEST_BYTES,
    NONCE_BYTES,
    TAG_BYTES,
    JoinRequest,
    Request,
    request_digest,
    response_tag,
)
from device_agent.trust.keys import KemKey, SigningKey
from device_agent.trust.root_list import RootList
from device_agent.trust.site_certificate import SiteCertificate

ACCEPT_TYP: Final = "os-acc"
REFUSE_TYP: Final = "os-nay"
TEXT_CHARACTERS: Final = 300
PASSWORD_CHARACTERS: Final = 128
PORT_MAX: Final = 65_535
ROOT_LISTS: Final = 64

State = Literal[
    "pending",
    "rejected",
    "revoked",
    "full",
    "token_used",
    "token_expired",
    "token_unknown",
    "token_other_site",
    "token_other_serial",
    "window_closed",
]
STATES: Final[tuple[State, ...]] = get_args(State)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a site gives a device that it accepts. ``authority`` and ``tls_port`` only where the broker speaks TLS."""

    issued: int
    epoch: int
    group_key: bytes = field(repr=False)
    index: int
    password: str = field(repr=False)
    port: int
    authority: bytes | None = None
    tls_port: int | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """A device that belongs to a site: everything here was verified. ``anchor`` has taken the chain."""

    root_lists: list[bytes] = field(repr=False)
    root: RootList
    site: SiteCertificate
    certificate: DeviceCertificate
    terms: Terms
    anchor: Anchor = field(repr=False)


@dataclass(frozen=True, slots=True)
class NotYet:
    """A station's word that a device does not belong to it. Not ``verified``: anybody on the broker may say it."""

    state: State
    text: str
    verified: bool
    issued: int


def accept(
    signer: SigningKey,
    request: JoinRequest,
    *,
    root_lists: Sequence[bytes],
    site_certificate: bytes,
    device_certificate: bytes,
    site: str,
    terms: Terms,
    secret: bytes | None = None,
) -> bytes:
    """The payload that accepts a device; ``secret`` is that of the token it came with. Raises ``Refused``."""
    claims: dict[int, Any] = {
        c.SUB: request.did,
        c.AUD: site,
        c.NONCE: request.nonce,
        c.IAT: terms.issued,
        c.EPOCH: terms.epoch,
        c.CT: terms.group_key,
        c.INDEX: terms.index,
        c.PASSWORD: terms.password,
        c.PORT: terms.port,
    }
    if terms.authority is not None:
        claims[c.AUTHORITY] = terms.authority
    if terms.tls_port is not None:
        claims[c.TLS_PORT] = terms.tls_port
    _read_terms(claims)
    word = cose.sign(signer, ACCEPT_TYP, claims)
    content = codec.encode([list(root_lists), site_certificate, device_certificate, word])
    sealed = hpke.seal(request.kem, _info(request.body), content)
    tag = response_tag(secret, request.body, sealed) if secret is not None else b""
    return _bounded(codec.encode([sealed, tag]))


def refuse(
    signer: SigningKey,
    *,
    request_body: bytes,
    device: str,
    site: str,
    issued: int,
    state: State,
    text: str,
    root_lists: Sequence[bytes],
    site_certificate: bytes,
) -> bytes:
    """The payload that says why not, or not yet. A station without a certificate gives ``b""`` for it."""
    word = cose.sign(
        signer,
        REFUSE_TYP,
        {
            c.SUB: device,
            c.AUD: site,
            c.IAT: issued,
            c.NONCE: request_digest(request_body),
            c.STATE: state,
            c.NAME: text[:TEXT_CHARACTERS],
        },
    )
    return _bounded(codec.encode([b"", list(root_lists), site_certificate, word]))


def open_response(
    payload: bytes, request: Request, kem: KemKey, *, site: str | None, pinned: bytes | None, floor: float
) -> Accepted | NotYet:
    """Judge the answer to our request.

    ``site`` is that of the token or the settings, None if neither names one; ``pinned`` None trusts the first root
    list that comes, which only the caller can allow. Nothing outside is changed. Raises ``Refused``.
    """
    parts = codec.decode(payload)
    if type(parts) is list and len(parts) == 4 and parts[0] == b"":
        return _open_refusal(parts, request, site=site, pinned=pinned, floor=floor)
    if type(parts) is not list or len(parts) != 2 or any(type(part) is not bytes for part in parts):
        raise Refused("malformed", "neither an acceptance nor a refusal")
    sealed, tag = parts
    _check_tag(request, sealed, tag)
    content = codec.decode(hpke.open_sealed(kem, _info(request.body), sealed))
    if type(content) is not list or len(content) != 4 or any(type(part) is not bytes for part in content[1:]):
        raise Refused("malformed", "root lists, two certificates and a word were expected")
    root_lists, site_body, device_body, word = content
    anchor, root, certificate, now = _judge_site(root_lists, site_body, site=site, pinned=pinned, floor=floor)
    ours = _judge_own_certificate(anchor, device_body, request, certificate.site, now)
    proof = cose.open_signed(word, ACCEPT_TYP, lambda kid: _enroller(anchor, kid, certificate, now))
    take_device(proof.claims, request.did)
    take_site(proof.claims, certificate.site)
    if c.take(proof.claims, c.NONCE, bytes, size=NONCE_BYTES) != request.nonce:
        raise Refused("wrong_nonce", "this answers another request")
    return Accepted(anchor.root_lists, root, certificate, ours, _read_terms(proof.claims), anchor)


def _check_tag(request: Request, sealed: bytes, tag: bytes) -> None:
    """With a token the station must know it too; without one there is nothing to hold a tag against."""
    if request.secret is None:
        if tag:
            raise Refused("bad_tag", "a tag, and we have no token")
    elif len(tag) != TAG_BYTES or not hmac.compare_digest(tag, response_tag(request.secret, request.body, sealed)):
        raise Refused("bad_tag", "the station does not know our token")


def _judge_site(
    root_lists: Any, site_body: bytes, *, site: str | None, pinned: bytes | None, floor: float
) -> tuple[Anchor, RootList, SiteCertificate, float]:
    """The chain from the pinned root to the site, and the least time it can be now."""
    if type(root_lists) is not list or not 0 < len(root_lists) <= ROOT_LISTS:
        raise Refused("malformed", f"1 to {ROOT_LISTS} root lists were expected")
    if any(type(body) is not bytes for body in root_lists):
        raise Refused("malformed", "a root list is a byte string")
    anchor = Anchor(pinned)
    anchor.take_root_lists(root_lists)
    root = anchor.root
    if root is None:
        raise Refused("unknown_root", "no root list was taken")
    now = max(floor, float(root.issued))
    certificate = anchor.take_site_certificate(site_body, now)
    if site is not None and certificate.site != site:
        raise Refused("wrong_site", certificate.site)
    return anchor, root, certificate, now


def _judge_own_certificate(anchor: Anchor, body: bytes, request: Request, site: str, now: float) -> DeviceCertificate:
    certificate = anchor.open_device_certificate(body, now)
    if certificate.site != site:
        raise Refused("wrong_site", certificate.site)
    if certificate.sig != request.sig or certificate.kem != request.kem:
        raise Refused("not_for_us", "the certificate holds other keys than ours")
    return certificate


def _enroller(anchor: Anchor, kid: bytes, certificate: SiteCertificate, now: float) -> bytes:
    """The site's own key, if it may enrol: its word is its own."""
    if kid != certificate.kid:
        raise Refused("unknown_issuer", "the word is not signed by the site that was shown")
    return anchor.issuer(kid, "enrol", certificate.site, now).public


def _read_terms(claims: dict[int, Any]) -> Terms:
    c.only(
        claims,
        *(c.SUB, c.AUD, c.NONCE, c.IAT, c.EPOCH, c.CT, c.INDEX),
        *(c.PASSWORD, c.PORT, c.AUTHORITY, c.TLS_PORT),
    )
    terms = Terms(
        issued=c.take_time(claims, c.IAT),
        epoch=c.take(claims, c.EPOCH, int, most=EPOCH_MAX),
        group_key=c.take(claims, c.CT, bytes, size=GROUP_KEY_BYTES),
        index=c.take(claims, c.INDEX, int, most=limits.DEVICES_PER_STATION - 1),
        password=c.take(claims, c.PASSWORD, str, most=PASSWORD_CHARACTERS),
        port=c.take(claims, c.PORT, int, most=PORT_MAX),
        authority=c.take_if(claims, c.AUTHORITY, bytes, size=32),
        tls_port=c.take_if(claims, c.TLS_PORT, int, most=PORT_MAX),
    )
    if not terms.epoch or not terms.port or terms.tls_port == 0:
        raise Refused("claim_invalid", "epochs and ports begin with 1")
    if not terms.password or not (terms.password.isascii() and terms.password.isprintable()):
        raise Refused("claim_invalid", "a password is printable ASCII")
    if (terms.authority is None) is not (terms.tls_port is None):
        raise Refused("claim_invalid", "a TLS authority goes with a TLS port")
    return terms


def _open_refusal(
    parts: list[Any], request: Request, *, site: str | None, pinned: bytes | None, floor: float
) -> NotYet:
    """A refusal. With a certificate everything must hold; without one it is hearsay and says so."""
    _, root_lists, site_body, word = parts
    if type(root_lists) is not list or type(site_body) is not bytes or type(word) is not bytes:
        raise Refused("malformed", "root lists, a certificate and a word were expected")
    if site_body:
        anchor, _, certificate, now = _judge_site(root_lists, site_body, site=site, pinned=pinned, floor=floor)
        site = certificate.site
        claims = cose.open_signed(word, REFUSE_TYP, lambda kid: _enroller(anchor, kid, certificate, now)).claims
    else:
        claims = cose.read(word, REFUSE_TYP).claims
    c.only(claims, c.SUB, c.AUD, c.IAT, c.NONCE, c.STATE, c.NAME)
    take_device(claims, request.did)
    take_site(claims, site)
    if c.take(claims, c.NONCE, bytes, size=DIGEST_BYTES) != request_digest(request.body):
        raise Refused("wrong_nonce", "this answers another request")
    found = c.take(claims, c.STATE, str, most=64)
    text = c.take(claims, c.NAME, str, most=TEXT_CHARACTERS)
    for state in STATES:
        if state == found and text.isprintable():
            return NotYet(state, text, bool(site_body) and pinned is not None, c.take_time(claims, c.IAT))
    raise Refused("claim_invalid", "an unknown state, or a text that is none")


def _info(request_body: bytes) -> bytes:
    return b"os1 enr" + hashlib.sha256(request_body).digest()


def _bounded(payload: bytes) -> bytes:
    if len(payload) > limits.MESSAGE_BYTES:
        raise Refused("oversized", f"{len(payload)} bytes, at most {limits.MESSAGE_BYTES}")
    return payload
