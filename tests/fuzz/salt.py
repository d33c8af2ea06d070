"""Target: what comes from Salt masters: values, boxes, X9.31 signatures, keys, sign-in answers, and orders."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateNumbers, RSAPublicNumbers

from tests.fuzz.choosing import Reader, accepted_again, chosen, for_reader
from tests.peers.salt_double import SaltDouble, rsa_key
from upstream.salt import publishes, wire, x931
from upstream.salt.box import Box
from upstream.salt.order import SaltOrder, read_order
from upstream.salt.rsa_keys import GatewayKey, MasterKey, fingerprint
from upstream.salt.serials import serial_of
from upstream.salt.sign_in import SignIn
from upstream.salt.terms import SaltRules

BOX: Final = Box(base64.b64encode(bytes(range(56))).decode())
P, Q, E = (1 << 107) - 1, (1 << 61) - 1, 65537
KEY: Final = RSAPrivateNumbers(P, Q, pow(E, -1, (P - 1) * (Q - 1)), 0, 0, 0, RSAPublicNumbers(E, P * Q))
NONCE: Final = "0123456789abcdef" * 2
ORDER: Final[Mapping[str, Any]] = {
    "fun": "cmd.run",
    "arg": ["uptime", {"__kwarg__": True, "timeout": 3}],
    "tgt": ["cam-1", "cam-2"],
    "tgt_type": "list",
    "jid": "20261123220000000001",
    "ret": "",
    "to": 5,
    "user": "root",
    "auth_list": [{"cam-*": ["test.*"]}],
    "serial": 3,
}


def _value(body: bytes) -> object:
    value = wire.unpack(body)
    accepted_again(wire.unpack, wire.pack(value), most=None)
    return wire.texts(value)


def _box(body: bytes) -> object:
    return BOX.open(body, NONCE)


def _x931(body: bytes) -> object:
    return x931.opened(KEY.public_numbers, body)


def _key(body: bytes) -> object:
    key = MasterKey(body.decode("ascii", "replace"))
    assert fingerprint(key.pem) == key.fingerprint
    return key


@cache
def _signing_in() -> SignIn:
    return SignIn(SaltRules(id="gw-1"), GatewayKey(rsa_key("gateway")), None, NONCE)


def _signed_in(body: bytes) -> object:
    return _signing_in().outcome(body)


def _order(body: bytes) -> object:
    load = publishes.opened(BOX.seal(body), BOX)
    serial_of(load)
    order = read_order(load)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(order), type=SaltOrder).jid == order.jid
    return order


READERS: dict[str, Reader] = {
    "value": _value,
    "box": _box,
    "x931": _x931,
    "key": _key,
    "signed_in": _signed_in,
    "order": _order,
}


def made() -> dict[str, bytes]:
    """One of each kind."""
    pending = {"ret": True, "nonce": NONCE}
    seeds = {
        "value": wire.pack({"a": [1, -200, 2.5, None, True, "text", b"\xff"], 7: {"b": 1 << 40}}),
        "box": BOX.seal(wire.pack({"a": 1}), NONCE),
        "x931": x931.make(KEY, b"salt"),
        "key": SaltDouble().pem.encode(),
        "signed_in": SaltDouble().signed(pending),
        "order": wire.pack(dict(ORDER)),
    }
    return {name: for_reader(READERS, name, body) for name, body in seeds.items()}


def read(body: bytes) -> object:
    """Any bytes."""
    return chosen(READERS, body)
