"""A job as it travels: a header that stations route by, and an order sealed to one device or to a site's group key.

First sealed, then signed over header and seal: a station or a device drops rubbish before it decrypts. The seal binds
the header's bytes and the signer's kid, so nobody else can sign the same seal and call it his. A fresh salt for each
job gives a fresh key: no counter of nonces has to survive a failover or a reboot. The group key gives privacy only; who
ordered a job is what the signature says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Final, get_args

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.protocol.folders import FOLDERS_MOST, are_folders
from device_agent.protocol.messages import FUNCTION_PATTERN, ORIGIN_PATTERN, Late, TargetType, check_plain
from device_agent.trust import claims as c
from device_agent.trust import codec, cose, hpke
from device_agent.trust.addressees import JID_BYTES, jid_from_bytes, jid_to_bytes, take_device, take_site
from device_agent.trust.keys import KemKey, SigningKey
from device_agent.trust.sealed_claims import header_bytes, take_sealed

TYP: Final = "os-job"
ALL: Final = "all"
"""The addressee of a job for a site's group."""

JOB_SKEW: Final = 120
"""Seconds by which a job may be past its expiry: clocks differ."""

FUTURE_SECONDS: Final = 86_400 + JOB_SKEW
"""Seconds by which a job may be ahead of this clock before one of the two is taken for wrong: a day, and what clocks
differ by."""

JOB_BYTES: Final = limits.MESSAGE_BYTES - 4096
"""Largest job: the hints beside it (a bitmap of every device) have to fit into the same message."""

LIFE_MAX_SECONDS: Final = int(limits.JOB_EXPIRY_MAX_SECONDS) + 2
"""Longest life of a job: issue and expiry are rounded apart to whole seconds."""

SALT_BYTES: Final = 16
USER_CHARACTERS: Final = 128

_function = re.compile(FUNCTION_PATTERN)
_origin = re.compile(ORIGIN_PATTERN)
_target_types = get_args(TargetType)
_lates = get_args(Late)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHeader:
    """What is readable of a job. ``sub`` is a did as text, or ``all``; times are seconds since 1970.

    ``epoch`` and ``salt`` belong to a job for the group; sealing puts the salt in.
    """

    sub: str
    site: str
    issued: int
    expires: int
    jid: str
    seq: int
    tgt: str
    tgt_type: TargetType = "glob"
    late: Late = "drop"
    run_limit: float = limits.RUN_LIMIT_SECONDS
    epoch: int | None = None
    salt: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is sealed of a job."""

    fun: str
    arg: list[Any] = field(default_factory=list)
    kwarg: dict[str, Any] = field(default_factory=dict)
    user: str
    why: str = ""
    origin: str = ""
    """Where it comes from, when that is not its signer: a Salt master above a gateway has grants of its own."""
    folders: tuple[str, ...] = ()
    """Absolute folders that paths among the arguments must not leave by a link: a policy rule limits them to these."""


@dataclass(frozen=True, slots=True)
class SealedJob:
    """A job whose signature holds. ``ad`` is what its seal binds besides the kid: the header's bytes as received."""

    header: JobHeader
    kid: bytes
    ad: bytes
    ct: bytes


@dataclass(frozen=True, slots=True)
class UnverifiedJob:
    """A job that can be read; nothing of it is known to be true."""

    header: JobHeader
    kid: bytes
    _proof: cose.Unverified = field(repr=False)
    _ad: bytes = field(repr=False)
    _ct: bytes = field(repr=False)

    def verified(self, public: bytes) -> SealedJob:
        """Check the signature with the key that ``kid`` stands for. Raises ``Refused``."""
        signed = self._proof.verified(public)
        return SealedJob(self.header, signed.kid, self._ad, self._ct)


def seal_for_group(key: SigningKey, header: JobHeader, order: Order, group_key: bytes, salt: bytes) -> bytes:
    """A job for every device of a site; ``salt`` is fresh, ``header.epoch`` is the group key's."""
    header = replace(header, sub=ALL, salt=salt)
    claims = _to_claims(header)
    cipher, nonce = _group_cipher(group_key, salt)
    return _signed(key, claims, cipher.encrypt(nonce, _order_to_bytes(order), key.kid + header_bytes(claims)))


def seal_for_device(key: SigningKey, header: JobHeader, order: Order, kem_public: bytes) -> bytes:
    """A job that one device alone can read."""
    claims = _to_claims(header)
    if header.sub == ALL:
        raise Refused("claim_invalid", "a job for one device names it")
    ct = hpke.seal(kem_public, b"os1 job" + key.kid + header_bytes(claims), _order_to_bytes(order))
    return _signed(key, claims, ct)


def read_job(body: bytes) -> UnverifiedJob:
    """Read a job's header without believing it. Raises ``Refused``."""
    proof = cose.read(body, TYP)
    header = _from_claims(proof.claims)
    ad, ct = take_sealed(proof.claims, proof.payload)
    return UnverifiedJob(header, proof.kid, proof, ad, ct)


def open_group(sealed: SealedJob, group_key: bytes) -> Order:
    """The order in a job for the group. Raises ``Refused``."""
    if sealed.header.salt is None:
        raise Refused("wrong_seal", "this job is for one device")
    cipher, nonce = _group_cipher(group_key, sealed.header.salt)
    try:
        plaintext = cipher.decrypt(nonce, sealed.ct, sealed.kid + sealed.ad)
    except InvalidTag:
        raise Refused("not_sealed_to_us", f"group key of epoch {sealed.header.epoch}") from None
    return _order_from_bytes(plaintext)


def open_single(sealed: SealedJob, *kems: KemKey) -> Order:
    """The order in a job for one device, which has these keys. Raises ``Refused``."""
    if sealed.header.salt is not None:
        raise Refused("wrong_seal", "this job is for the group")
    return _order_from_bytes(hpke.open_with_any(kems, b"os1 job" + sealed.kid + sealed.ad, sealed.ct))


def check_times(header: JobHeader, now: float, *, exact: bool = True) -> None:
    """Refuse what has expired (``expired``) or comes from another time (``issued_in_future``).

    Not ``exact``: ``now`` is only a floor, and whatever was issued after it may still be of today.
    """
    if now > header.expires + JOB_SKEW:
        raise Refused("expired", f"at {header.expires}, now {now:.0f}")
    if exact and header.issued > now + FUTURE_SECONDS:
        raise Refused("issued_in_future", f"at {header.issued}, now {now:.0f}")


def _signed(key: SigningKey, claims: dict[int, Any], ct: bytes) -> bytes:
    body = cose.sign(key, TYP, {**claims, c.CT: ct})
    if len(body) > JOB_BYTES:
        raise Refused("oversized", f"{len(body)} bytes, at most {JOB_BYTES}")
    return body


def _group_cipher(group_key: bytes, salt: bytes) -> tuple[ChaCha20Poly1305, bytes]:
    key44 = hpke.derive(group_key, salt, b"os1 grp", 44)
    return ChaCha20Poly1305(key44[:32]), key44[32:]


def _to_claims(header: JobHeader) -> dict[int, Any]:
    """All claims but the sealed one, checked as the reader will check them."""
    claims: dict[int, Any] = {
        c.SUB: header.sub,
        c.AUD: header.site,
        c.IAT: header.issued,
        c.EXP: header.expires,
        c.CTI: jid_to_bytes(header.jid),
        c.SEQ: header.seq,
        c.TGT: header.tgt,
        c.TGT_TYPE: header.tgt_type,
        c.LATE: header.late,
        c.RUN_LIMIT: max(1, round(header.run_limit * 1000)),
    }
    if header.epoch is not None:
        claims[c.EPOCH] = header.epoch
    if header.salt is not None:
        claims[c.SALT] = header.salt
    _from_claims({**claims, c.CT: b""})
    return claims


def _from_claims(claims: dict[int, Any]) -> JobHeader:
    known = (c.SUB, c.AUD, c.IAT, c.EXP, c.CTI, c.SEQ, c.TGT, c.TGT_TYPE, c.LATE, c.RUN_LIMIT)
    c.only(claims, *known, c.EPOCH, c.SALT, c.CT)
    header = JobHeader(
        sub=ALL if claims.get(c.SUB) == ALL else take_device(claims),
        site=take_site(claims),
        issued=c.take_time(claims, c.IAT),
        expires=c.take_time(claims, c.EXP),
        jid=jid_from_bytes(c.take(claims, c.CTI, bytes, size=JID_BYTES)),
        seq=c.take(claims, c.SEQ, int),
        tgt=c.take(claims, c.TGT, str, most=limits.TARGET_CHARACTERS),
        tgt_type=_one_of(claims, c.TGT_TYPE, _target_types),
        late=_one_of(claims, c.LATE, _lates),
        run_limit=c.take(claims, c.RUN_LIMIT, int, most=int(limits.RUN_LIMIT_MAX_SECONDS * 1000)) / 1000,
        epoch=c.take_if(claims, c.EPOCH, int, most=2**32 - 1),
        salt=c.take_if(claims, c.SALT, bytes, size=SALT_BYTES),
    )
    if not header.tgt or not header.run_limit:
        raise Refused("claim_invalid", "an empty target, or no time to run")
    if not 0 <= header.expires - header.issued <= LIFE_MAX_SECONDS:
        raise Refused("claim_invalid", f"expires {header.expires - header.issued} s after it was issued")
    group = header.sub == ALL
    if (header.epoch is not None) is not group or (header.salt is not None) is not group:
        raise Refused("claim_invalid", "epoch and salt belong to a job for the group, and to no other")
    return header


def _one_of(claims: dict[int, Any], label: int, allowed: tuple[Any, ...]) -> Any:
    word = c.take(claims, label, str, most=64)
    if word not in allowed:
        raise Refused("claim_invalid", f"{c.NAMES[label]} is {word!r}")
    return word


def _order_to_bytes(order: Order) -> bytes:
    about: dict[str, Any] = {"user": order.user, "why": order.why}
    if order.origin:
        about["origin"] = order.origin
    if order.folders:
        # A device of a release before this key refuses the order, and so cannot be led out of the folder.
        about["folders"] = list(order.folders)
    body = codec.encode([order.fun, order.arg, order.kwarg, about])
    _order_from_bytes(body)
    return body


def _order_from_bytes(body: bytes) -> Order:
    parts = codec.decode(body, depth=codec.VALUE_DEPTH)
    if type(parts) is not list or len(parts) != 4:
        raise Refused("malformed", "an order has four parts")
    fun, arg, kwarg, about = parts
    if type(fun) is not str or not _function.match(fun):
        raise Refused("wrong_type", "an order names module.function")
    if type(arg) is not list or type(kwarg) is not dict or max(len(arg), len(kwarg)) > limits.ARGUMENTS:
        raise Refused("wrong_type", f"arguments are a list and a map of at most {limits.ARGUMENTS}")
    check_plain(arg)
    check_plain(kwarg)
    _check_whole_numbers(arg)
    _check_whole_numbers(kwarg)
    if type(about) is not dict or set(about) - {"origin", "folders"} != {"user", "why"}:
        raise Refused("malformed", "an order says who and why")
    user, why, origin = about["user"], about["why"], about.get("origin", "")
    if type(origin) is not str or ("origin" in about and not _origin.match(origin)):
        raise Refused("wrong_type", "an origin is a short name")
    if type(user) is not str or len(user) > USER_CHARACTERS or type(why) is not str or len(why) > limits.WHY_CHARACTERS:
        raise Refused("wrong_type", "who and why are short texts")
    folders = about.get("folders", [])
    if not are_folders(folders):
        raise Refused("wrong_type", f"folders are at most {FOLDERS_MOST} absolute paths")
    return Order(fun=fun, arg=arg, kwarg=kwarg, user=user, why=why, origin=origin, folders=tuple(folders))


def _check_whole_numbers(value: object) -> None:
    """CBOR carries whole numbers of any size; what a function may return for them does not."""
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise Refused("wrong_type", "a whole number that does not fit 64 bits")
    elif isinstance(value, list):
        for inner in value:
            _check_whole_numbers(inner)
    elif isinstance(value, dict):
        for inner in value.values():
            _check_whole_numbers(inner)
