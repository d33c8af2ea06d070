"""What a station tells all of its devices at once: a cancelled job, returns that are on disk, what it trusts by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from device_agent.errors import Refused
from device_agent.protocol import bitmap, limits
from device_agent.trust import claims as c
from device_agent.trust import codec, cose
from device_agent.trust.addressees import JID_BYTES, jid_from_bytes, jid_to_bytes, take_site
from device_agent.trust.cose import FindKey
from device_agent.trust.keys import SigningKey

CANCEL_TYP: Final = "os-can"
ACK_TYP: Final = "os-ack"
BITS_BYTES: Final = limits.DEVICES_PER_STATION // 8 + 1
LISTED: Final = 64
"""Most root lists, site certificates or revocation lists in one bundle."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A job that is not to be started."""

    jid: str
    issued: int
    kid: bytes


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Jobs whose returns are on the station's disk, for the devices whose bit is set."""

    jids: tuple[str, ...]
    bitmap: bytes
    issued: int
    kid: bytes


@dataclass(frozen=True, slots=True)
class Bundle:
    """All that a device needs to judge its site by, as bytes that nobody has checked yet."""

    root_lists: list[bytes] = field(repr=False)
    site_certificates: list[bytes] = field(repr=False)
    prekey: bytes = field(repr=False)
    revocations: list[bytes] = field(repr=False)


def sign_cancel(key: SigningKey, *, site: str, jid: str, issued: int) -> bytes:
    """Do not start this job."""
    return cose.sign(key, CANCEL_TYP, {c.AUD: site, c.IAT: issued, c.CTI: jid_to_bytes(jid)})


def open_cancel(body: bytes, find_key: FindKey, *, site: str) -> Cancelled:
    """A job not to be started, by a signer that counts. Raises ``Refused``."""
    signed = cose.open_signed(body, CANCEL_TYP, find_key)
    c.only(signed.claims, c.AUD, c.IAT, c.CTI)
    take_site(signed.claims, site)
    jid = jid_from_bytes(c.take(signed.claims, c.CTI, bytes, size=JID_BYTES))
    return Cancelled(jid, c.take_time(signed.claims, c.IAT), signed.kid)


def sign_ack(key: SigningKey, *, site: str, jids: Sequence[str], bitmap: bytes, issued: int) -> bytes:
    """Returns for these jobs are on disk, for devices whose bit is set. Raises ``Refused`` for too many jobs."""
    claims = {c.AUD: site, c.IAT: issued, c.JIDS: [jid_to_bytes(jid) for jid in jids], c.BITS: bitmap}
    _acknowledged(claims, key.kid, site)
    return cose.sign(key, ACK_TYP, claims)


def open_ack(body: bytes, find_key: FindKey, *, site: str) -> Acknowledged:
    """Returns that are on disk, by a signer that counts. Raises ``Refused``."""
    signed = cose.open_signed(body, ACK_TYP, find_key)
    return _acknowledged(signed.claims, signed.kid, site)


def open_ack_for(place: int, body: bytes, find_key: FindKey, *, site: str) -> Acknowledged | None:
    """The same for the device that has this place. Raises ``Refused``.

    None where its bit is clear, before anything is verified: a clear bit only withholds, and every device of a site
    hears each of these.
    """
    unverified = cose.read(body, ACK_TYP)
    word = _acknowledged(unverified.claims, unverified.kid, site)
    if not bitmap.has(word.bitmap, place):
        return None
    unverified.verified(find_key(unverified.kid))
    return word


def bundle(
    root_lists: Sequence[bytes], site_certificates: Sequence[bytes], prekey: bytes, revocations: Sequence[bytes]
) -> bytes:
    """The retained message of a site; root lists come oldest first. Raises ``Refused`` when it is too large."""
    body = codec.encode([list(root_lists), list(site_certificates), prekey, list(revocations)])
    read_bundle(body)
    return body


def read_bundle(body: bytes) -> Bundle:
    """A site's retained message, in parts to check one by one. Raises ``Refused``."""
    parts = codec.decode(body)
    if type(parts) is not list or len(parts) != 4 or type(parts[2]) is not bytes:
        raise Refused("malformed", "root lists, site certificates, a prekey and revocation lists")
    root_lists, site_certificates, prekey, revocations = parts
    return Bundle(_listed(root_lists), _listed(site_certificates), prekey, _listed(revocations))


def _acknowledged(claims: dict[int, Any], kid: bytes, site: str) -> Acknowledged:
    c.only(claims, c.AUD, c.IAT, c.JIDS, c.BITS)
    take_site(claims, site)
    jids = tuple(map(jid_from_bytes, c.take(claims, c.JIDS, list, most=limits.OPEN_JOBS)))
    bits = c.take(claims, c.BITS, bytes, most=BITS_BYTES)
    return Acknowledged(jids, bits, c.take_time(claims, c.IAT), kid)


def _listed(part: Any) -> list[bytes]:
    if type(part) is not list or len(part) > LISTED or not all(type(body) is bytes for body in part):
        raise Refused("malformed", f"a list of at most {LISTED} byte strings was expected")
    return part
