"""Lists of keys that count no more. Versions count for each signer, and each list replaces its signer's one before.

Who may name whom (a site devices only, a master devices and sites) is judged where all keys are known: ``chain``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from device_agent.errors import Refused
from device_agent.trust import claims as c
from device_agent.trust import cose
from device_agent.trust.addressees import take_site
from device_agent.trust.carried_keys import take_kids
from device_agent.trust.keys import SigningKey

TYP: Final = "os-rev"
KIDS_MAX: Final = 20_000


@dataclass(frozen=True, slots=True)
class Revocations:
    """A list as it was read; nothing of it is known to be true before ``verify``. ``site`` is that of a site's list."""

    version: int
    issued: int
    kids: frozenset[bytes]
    site: str | None
    kid: bytes
    body: bytes = field(repr=False)
    _proof: cose.Unverified = field(repr=False)

    def verify(self, public: bytes) -> None:
        """Check the signature with the key that ``kid`` stands for. Raises ``Refused``."""
        self._proof.verified(public)


def sign_revocations(
    key: SigningKey, *, version: int, kids: Iterable[bytes], issued: int, site: str | None = None
) -> bytes:
    """A list of every key that this signer has revoked; ``site`` for a site's own list."""
    claims: dict[int, Any] = {c.VER: version, c.IAT: issued}
    if site is not None:
        claims[c.AUD] = site
    return cose.sign(key, TYP, {**claims, c.KIDS: sorted(set(kids))})


def read_revocations(body: bytes) -> Revocations:
    """Read a list without believing it. Raises ``Refused``."""
    proof = cose.read(body, TYP)
    c.only(proof.claims, c.VER, c.IAT, c.AUD, c.KIDS)
    listed = take_kids(proof.claims, c.KIDS, most=KIDS_MAX)
    kids = frozenset(listed)
    if list(listed) != sorted(kids):
        raise Refused("claim_invalid", "revoked kids are sorted and named once")
    version = c.take(proof.claims, c.VER, int, most=2**63 - 1)
    if not version:
        raise Refused("claim_invalid", "versions begin with 1")
    return Revocations(
        version=version,
        issued=c.take_time(proof.claims, c.IAT),
        kids=kids,
        site=take_site(proof.claims) if c.AUD in proof.claims else None,
        kid=proof.kid,
        body=body,
        _proof=proof,
    )
