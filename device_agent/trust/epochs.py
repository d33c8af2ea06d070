"""The group key of a site and its epochs: sealed for each device, and the rules by which a device takes and drops them.

An ``os-ep`` counts from the device's own site or from a master, which the caller judges. The counter of epochs belongs
to one site key: a successor starts again, so that a thief's last epoch does not lock it out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from device_agent.errors import Refused
from device_agent.trust import claims as c
from device_agent.trust import cose, hpke
from device_agent.trust.addressees import take_device, take_site
from device_agent.trust.chain import Issuer
from device_agent.trust.keys import KemKey, SigningKey
from device_agent.trust.sealed_claims import header_bytes, take_sealed

TYP: Final = "os-ep"
GROUP_KEY_BYTES: Final = 32
EPOCH_MAX: Final = 2**32 - 1
PREVIOUS_SECONDS: Final = 600
"""How long the epoch before the newest still counts, so that jobs on their way are not lost at a rotation."""

_REVOCATION = 1


@dataclass(frozen=True, slots=True)
class EpochKey:
    """A group key that was sealed to us. ``site_kid`` is its signer when that was a site, and None for a master."""

    epoch: int
    key: bytes = field(repr=False)
    revocation: bool
    issued: int
    site_kid: bytes | None


def seal_epoch(
    key: SigningKey,
    *,
    device: str,
    site: str,
    issued: int,
    epoch: int,
    revocation: bool,
    group_key: bytes,
    kem_public: bytes,
) -> bytes:
    """The group key of an epoch for one device. ``revocation``: the epoch before ends at once."""
    header: dict[int, Any] = {
        c.SUB: device,
        c.AUD: site,
        c.IAT: issued,
        c.EPOCH: epoch,
        c.FLAGS: _REVOCATION if revocation else 0,
    }
    sealed = hpke.seal(kem_public, b"os1 ep" + header_bytes(header), group_key)
    return cose.sign(key, TYP, {**header, c.CT: sealed})


def open_epoch(body: bytes, find_issuer: Callable[[bytes], Issuer], *kems: KemKey, device: str, site: str) -> EpochKey:
    """The group key that was sealed to this device of this site, which has these keys.

    ``find_issuer`` judges a kid: our own site or a master, with the role ``epoch``; anybody else it refuses.
    Raises ``Refused``.
    """
    unverified = cose.read(body, TYP)
    issuer = find_issuer(unverified.kid)
    claims = unverified.verified(issuer.public).claims
    c.only(claims, c.SUB, c.AUD, c.IAT, c.EPOCH, c.FLAGS, c.CT)
    take_device(claims, device)
    take_site(claims, site)
    issued = c.take_time(claims, c.IAT)
    epoch = c.take(claims, c.EPOCH, int, most=EPOCH_MAX)
    flags = c.take(claims, c.FLAGS, int, most=_REVOCATION)
    if not epoch:
        raise Refused("claim_invalid", "epochs begin with 1")
    ad, sealed = take_sealed(claims, unverified.payload)
    key = hpke.open_with_any(kems, b"os1 ep" + ad, sealed)
    if len(key) != GROUP_KEY_BYTES:
        raise Refused("malformed", "a group key of another length")
    return EpochKey(epoch, key, flags == _REVOCATION, issued, unverified.kid if issuer.kind == "site" else None)


class GroupKeys:
    """The group keys a device holds: the newest, and the one before for ten minutes. Times are monotonic seconds."""

    __slots__ = ("_previous", "epoch", "newest", "site_kid")

    def __init__(self) -> None:
        self.site_kid = b""
        self.epoch = 0
        self.newest = b""
        self._previous: tuple[int, bytes, float] | None = None

    def start(self, site_kid: bytes) -> bool:
        """Follow the key of our site's newest certificate. Another one than before drops all keys, and is True."""
        if site_kid == self.site_kid:
            return False
        self.site_kid, self.epoch, self.newest, self._previous = site_kid, 0, b"", None
        return True

    def hold(self, site_kid: bytes, epoch: int, key: bytes) -> None:
        """Hold what a fresh acceptance, or our own flash, says is the newest."""
        self.site_kid, self.epoch, self.newest, self._previous = site_kid, epoch, key, None

    def take(self, opened: EpochKey, now: float) -> None:
        """A newer epoch. Raises ``Refused`` (``wrong_site_key``, ``replayed_epoch``)."""
        if not self.site_kid or opened.site_kid not in {None, self.site_kid}:
            raise Refused("wrong_site_key", "epochs are counted for the key of our site's newest certificate")
        if opened.epoch <= self.epoch:
            raise Refused("replayed_epoch", f"{opened.epoch}, known is {self.epoch}")
        keeps = self.epoch and not opened.revocation
        self._previous = (self.epoch, self.newest, now + PREVIOUS_SECONDS) if keeps else None
        self.epoch, self.newest = opened.epoch, opened.key

    def key(self, epoch: int, now: float) -> bytes:
        """The key of an epoch that counts now. Raises ``Refused`` (``unknown_epoch``, ``stale_epoch``)."""
        if epoch > self.epoch or not self.epoch:
            raise Refused("unknown_epoch", f"{epoch}, known is {self.epoch}")
        if epoch == self.epoch:
            return self.newest
        if self._previous is not None and self._previous[0] == epoch and now < self._previous[2]:
            return self._previous[1]
        raise Refused("stale_epoch", f"{epoch}, newest is {self.epoch}")
