"""The root list: which masters a fleet has and what each may sign, said by the holders of the fleet's root keys.

The rule is that of TUF's root role: a new list is signed by a threshold of the keys of the list before and by a
threshold of its own keys, and its version is exactly one more. So one lost or stolen root key neither blocks nor takes
the fleet, and nobody can go back to a list in which a dropped master still stands.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from device_agent.errors import Refused
from device_agent.trust import cose_sign
from device_agent.trust.carried_keys import refuse_doubled, take_kids, take_publics
from device_agent.trust.claims import (
    IAT,
    KIDS,
    MASTERS,
    MINIMUM,
    RELEASES,
    ROOTS,
    THRESHOLD,
    VER,
    only,
    take,
    take_time,
)
from device_agent.trust.keys import PUBLIC_BYTES, SigningKey, kid

ROOT_TYP: Final = "os-root"
FINGERPRINT_BYTES: Final = 16
KEYS_MAX: Final = 16
REVOKED_MAX: Final = 4096
VERSION_MAX: Final = 2**32 - 1
ADDRESSES_MAX: Final = 8
TEXT_MAX: Final = 255

ROLES: Final = ("job", "enrol", "site-ca", "revoke", "epoch", "root-shell")
"""What a signer may be allowed to sign: jobs, certificates of devices, certificates of sites, revocations, group keys,
and jobs that run any command."""

MASTER_ROLES: Final = ("job", "enrol", "site-ca", "revoke", "epoch")
"""What a master may do unless its fleet says otherwise."""

_SIG, _KEM, _ROLES, _NAME, _CURVE, _ADDRESSES = 1, 2, 3, 4, 5, 6


@dataclass(frozen=True, slots=True)
class MasterKey:
    """A master in a root list. ``curve`` is the key of its uplink, empty for an authority that is never online."""

    name: str
    sig: bytes
    kem: bytes
    curve: bytes
    addresses: tuple[str, ...] = ()
    roles: tuple[str, ...] = MASTER_ROLES

    @property
    def kid(self) -> bytes:
        """How its proofs name it."""
        return kid(self.sig)


@dataclass(frozen=True, slots=True)
class RootList:
    """What the root holders have said. ``revoked`` are kids of any keys, ``minimum`` the oldest releases allowed."""

    version: int
    issued: int
    threshold: int
    roots: tuple[bytes, ...]
    masters: tuple[MasterKey, ...]
    releases: tuple[bytes, ...] = ()
    revoked: tuple[bytes, ...] = ()
    minimum: Mapping[str, str] = field(default_factory=dict)

    @property
    def fingerprint(self) -> bytes:
        """What a device pins: it changes with the root keys and with nothing else."""
        return root_fingerprint(self.roots)


def root_fingerprint(roots: Sequence[bytes]) -> bytes:
    """The name of a set of root keys: 16 bytes."""
    return hashlib.sha256(b"os1 root\0" + b"".join(sorted(roots))).digest()[:FINGERPRINT_BYTES]


def sign_root_list(draft: RootList, keys: Sequence[SigningKey]) -> bytes:
    """A root list with the first signatures. Raises ``Refused`` for one that nobody would read."""
    claims = _to_claims(draft)
    _from_claims(claims)
    return cose_sign.sign(list(keys), ROOT_TYP, claims)


def add_signature(body: bytes, key: SigningKey) -> bytes:
    """The same list with one more signature, made by another holder elsewhere. Raises ``Refused``."""
    read_root_list(body)
    return cose_sign.add_signature(body, ROOT_TYP, key)


def signers(body: bytes) -> frozenset[bytes]:
    """The kids of those who have signed, unverified. Raises ``Refused``."""
    return frozenset(each.kid for each in cose_sign.read(body, ROOT_TYP).signatures)


def read_root_list(body: bytes) -> RootList:
    """A root list that nobody has verified. Raises ``Refused``."""
    return _from_claims(cose_sign.read(body, ROOT_TYP).claims)


def first_root_list(body: bytes, pinned: bytes | None) -> RootList:
    """The list a party begins with: enough of its own keys signed it, and they are the pinned ones. Raises ``Refused``.

    Without a pin the keys are believed as they come: trust on first use, which the caller must have been told to give.
    """
    proof = cose_sign.read(body, ROOT_TYP)
    root = _from_claims(proof.claims)
    if pinned is not None and root.fingerprint != pinned:
        raise Refused("wrong_root", f"{root.fingerprint.hex()}, pinned is {pinned.hex()}")
    _require(proof, root)
    return root


def next_root_list(body: bytes, current: RootList) -> RootList:
    """The list after this one. Raises ``Refused`` (``rollback``, ``version_gap``, ``too_few_signatures``, …)."""
    proof = cose_sign.read(body, ROOT_TYP)
    root = _from_claims(proof.claims)
    if root.version <= current.version:
        raise Refused("rollback", f"version {root.version}, known is {current.version}")
    if root.version != current.version + 1:
        raise Refused("version_gap", f"version {root.version}, expected {current.version + 1}")
    known = {kid(public) for public in (*current.roots, *root.roots)}
    for each in proof.signatures:
        if each.kid not in known:
            raise Refused("unknown_issuer", each.kid.hex())
    _require(proof, current)
    _require(proof, root)
    return root


def follow(chain: Sequence[bytes], pinned: bytes | None) -> RootList:
    """The newest list of a chain, oldest first, each verified by the one before. Raises ``Refused``."""
    start = chain_start(chain, pinned)
    root = first_root_list(chain[start], pinned)
    for body in chain[start + 1 :]:
        root = next_root_list(body, root)
    return root


def chain_start(chain: Sequence[bytes], pinned: bytes | None) -> int:
    """Where in a chain the pinned keys first stand: what came before is for parties with an older pin."""
    for place, body in enumerate(chain):
        if pinned is None or read_root_list(body).fingerprint == pinned:
            return place
    raise Refused("wrong_root", "no root list has the pinned fingerprint" if chain else "no root list at all")


def _require(proof: cose_sign.SignedBySeveral, root: RootList) -> None:
    count = proof.count({kid(public): public for public in root.roots})
    if count < root.threshold:
        raise Refused("too_few_signatures", f"{count} by the keys of version {root.version}, needed {root.threshold}")


def _to_claims(root: RootList) -> dict[int, Any]:
    masters = [
        {
            _SIG: master.sig,
            _KEM: master.kem,
            _ROLES: list(master.roles),
            _NAME: master.name,
            _CURVE: master.curve,
            _ADDRESSES: list(master.addresses),
        }
        for master in root.masters
    ]
    return {
        VER: root.version,
        IAT: root.issued,
        THRESHOLD: root.threshold,
        ROOTS: list(root.roots),
        MASTERS: masters,
        RELEASES: list(root.releases),
        KIDS: list(root.revoked),
        MINIMUM: dict(root.minimum),
    }


def _from_claims(claims: dict[int, Any]) -> RootList:
    only(claims, VER, IAT, THRESHOLD, ROOTS, MASTERS, RELEASES, KIDS, MINIMUM)
    root = RootList(
        version=take(claims, VER, int, most=VERSION_MAX),
        issued=take_time(claims, IAT),
        threshold=take(claims, THRESHOLD, int, most=KEYS_MAX),
        roots=take_publics(claims, ROOTS, most=KEYS_MAX),
        masters=tuple(_master(each) for each in take(claims, MASTERS, list, most=KEYS_MAX)),
        releases=take_publics(claims, RELEASES, most=KEYS_MAX),
        revoked=take_kids(claims, KIDS, most=REVOKED_MAX),
        minimum=_minimum(take(claims, MINIMUM, dict, most=KEYS_MAX)),
    )
    if root.version < 1 or not 1 <= root.threshold <= len(root.roots):
        raise Refused("claim_invalid", f"version {root.version}, {root.threshold} of {len(root.roots)} root keys")
    refuse_doubled([*root.roots, *(master.sig for master in root.masters), *root.releases])
    if len({master.name for master in root.masters}) != len(root.masters):
        raise Refused("claim_invalid", "two masters have one name")
    return root


def _master(value: Any) -> MasterKey:
    if type(value) is not dict or list(value) != [_SIG, _KEM, _ROLES, _NAME, _CURVE, _ADDRESSES]:
        raise Refused("claim_invalid", "a master is key, sealing key, roles, name, curve key and addresses")
    sig, kem, curve = value[_SIG], value[_KEM], value[_CURVE]
    if not all(type(key) is bytes and len(key) == PUBLIC_BYTES for key in (sig, kem)):
        raise Refused("claim_invalid", f"the keys of a master have {PUBLIC_BYTES} bytes")
    if type(curve) is not bytes or len(curve) not in {0, PUBLIC_BYTES}:
        raise Refused("claim_invalid", f"the curve key of a master has {PUBLIC_BYTES} bytes, or none")
    return MasterKey(
        name=_text(value[_NAME], "the name of a master"),
        sig=sig,
        kem=kem,
        curve=curve,
        addresses=tuple(_text(each, "an address") for each in _list(value[_ADDRESSES], ADDRESSES_MAX)),
        roles=check_roles(value[_ROLES], ROLES),
    )


def check_roles(value: Any, allowed: Sequence[str]) -> tuple[str, ...]:
    """A list of roles, each at most once. Raises ``Refused`` (``unknown_role``)."""
    roles = _list(value, len(ROLES))
    for role in roles:
        if type(role) is not str or role not in allowed:
            raise Refused("unknown_role", str(role)[:40])
    if len(set(roles)) != len(roles):
        raise Refused("claim_invalid", "a role stands twice")
    return tuple(roles)


def _minimum(value: dict[Any, Any]) -> dict[str, str]:
    return {_text(key, "a program"): _text(release, "a release") for key, release in value.items()}


def _list(value: Any, most: int) -> list[Any]:
    if type(value) is not list or len(value) > most:
        raise Refused("claim_invalid", f"not a list of at most {most}")
    return value


def _text(value: Any, what: str) -> str:
    if type(value) is not str or not 1 <= len(value) <= TEXT_MAX or not value.isprintable():
        raise Refused("claim_invalid", f"{what} is not a text of 1 to {TEXT_MAX} printable characters")
    return value
