"""Target: what every proof is read with. CBOR, the two envelopes, and claims of any kind taken by name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from device_agent.errors import Refused
from device_agent.trust import addressees, carried_keys, claims, codec, cose, cose_sign, keys, sealed_claims
from device_agent.trust.policy import SitePolicy, check_function, check_reach
from device_agent.trust.root_list import ROLES, ROOT_TYP, check_roles
from device_agent.trust.signed_job import TYP as JOB_TYP
from tests.fuzz.choosing import Reader, chosen

KINDS: tuple[type[Any], ...] = (int, bytes, str, list, dict)


def _value(body: bytes, depth: int = codec.DEPTH) -> object:
    value = codec.decode(body, depth=depth)
    assert codec.encode(value) == body
    return value


def _claims(body: bytes) -> object:
    """Every way in which a claim is taken; what one of them refuses the next may take."""
    found = codec.decode(body)
    if type(found) is not dict or not all(type(label) is int for label in found):
        raise Refused("malformed", "claims are a map of whole numbers")
    for label in found.keys() & claims.NAMES.keys():
        for kind in KINDS:
            _tried(claims.take, found, label, kind, most=64)
        _tried(claims.take_time, found, label)
        _tried(claims.take_matching, found, label, keys.DID_PATTERN)
    _tried(claims.only, found, *claims.NAMES)
    for take in (addressees.take_device, addressees.take_site, carried_keys.take_confirmed_key):
        _tried(take, found)
    _tried(carried_keys.take_publics, found, claims.ROOTS, most=4)
    _tried(carried_keys.take_kids, found, claims.KIDS, most=4)
    _tried(sealed_claims.take_sealed, found, body)
    return found


def _policy(body: bytes) -> object:
    found = codec.decode(body)
    if type(found) is not dict:
        raise Refused("malformed", "a policy is a map")
    policy = SitePolicy.from_claims(found)
    _tried(check_function, policy, "state.apply", ["a" * 64, 1.5, None, ["b", True]], {"test": "c" * 64})
    _tried(check_function, policy, "test.ping", [], {}, origin="salt")
    _tried(check_reach, policy, group="all", seconds=60.0)
    return SitePolicy.from_claims(policy.to_claims())


def _tried(take: Callable[..., object], *arguments: object, **bounds: object) -> None:
    with suppress(Refused):
        take(*arguments, **bounds)


READERS: dict[str, Reader] = {
    "codec": _value,
    "arguments": lambda body: _value(body, codec.VALUE_DEPTH),
    "cose": lambda body: cose.read(body, JOB_TYP),
    "kind": cose.kind,
    "cose_sign": lambda body: cose_sign.read(body, ROOT_TYP),
    "claims": _claims,
    "policy": _policy,
    "roles": lambda body: check_roles(codec.decode(body), ROLES),
}


def read(body: bytes) -> object:
    """Any bytes."""
    return chosen(READERS, body)
