"""A Salt master's answers made by hand, so that each part of them can be bent: no Salt in it, and no socket."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from upstream.salt import wire, x931
from upstream.salt.box import Box
from upstream.salt.rsa_keys import plain

HASHES: dict[str, Callable[[], hashes.HashAlgorithm]] = {"SHA1": hashes.SHA1, "SHA224": hashes.SHA224}

Bend = Callable[[dict[str, Any]], None]


@cache
def rsa_key(name: str) -> rsa.RSAPrivateKey:
    """A key by name, the same in a whole run: they are slow to make."""
    assert name
    return rsa.generate_private_key(65537, 2048)


def public_pem(key: rsa.RSAPrivateKey) -> str:
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return plain(public.decode())


def new_box() -> Box:
    return Box(base64.b64encode(os.urandom(56)).decode())


class SaltDouble:
    """What a master with these keys says."""

    def __init__(self, name: str = "master") -> None:
        self.key = rsa_key(name)
        self.pem = public_pem(self.key)
        self.aes, self.session = new_box(), new_box()
        self.publish_port = 4505
        self.signing: rsa.RSAPrivateKey | None = None
        """The key with which it vouches for its own."""
        self.serial = 0

    def sign(self, body: bytes, algorithm: str = "PKCS1v15-SHA224") -> bytes:
        return self.key.sign(body, padding.PKCS1v15(), HASHES[algorithm.rpartition("-")[2]]())

    def signed(self, body: Mapping[str, Any], algorithm: str = "PKCS1v15-SHA224") -> bytes:
        """The outer reply around a body."""
        load = wire.pack(dict(body))
        return wire.pack({"enc": "clear", "load": load, "sig": self.sign(load, algorithm)})

    def says(self, request: bytes, ret: object) -> bytes:
        """Pending, rejected or full."""
        return self.signed({"ret": ret, "nonce": self._asked(request)["nonce"]}, self._asked(request)["sig_algo"])

    def accepts(self, request: bytes, bend: Bend = lambda body: None) -> bytes:
        """Lets the gateway in; ``bend`` changes the body before it is signed."""
        load = self._asked(request)
        digest = HASHES[load["enc_algo"].rpartition("-")[2]]
        oaep = padding.OAEP(mgf=padding.MGF1(digest()), algorithm=digest(), label=None)
        theirs = serialization.load_pem_public_key(load["pub"].encode())
        assert isinstance(theirs, rsa.RSAPublicKey)
        self.theirs = theirs
        body = {
            "enc": "pub",
            "pub_key": self.pem,
            "publish_port": self.publish_port,
            "aes": theirs.encrypt(self.aes.key.encode(), oaep),
            "session": theirs.encrypt(self.session.key.encode(), oaep),
            "sig": x931.make(self.key.private_numbers(), hashlib.sha256(self.aes.key.encode()).hexdigest().encode()),
            "nonce": load["nonce"],
        }
        if self.signing is not None:
            signature = self.signing.sign(self.pem.encode(), padding.PKCS1v15(), hashes.SHA1())
            body["pub_sig"] = base64.b64encode(signature) + b"\n"
        bend(body)
        return self.signed(body, load["sig_algo"])

    def pillar(
        self, asked: Mapping[str, Any], pillar: object, bend: Bend = lambda body: None, signer: SaltDouble | None = None
    ) -> bytes:
        """The answer to whoever was let in last; ``bend`` changes what is signed, ``signer`` signs it."""
        digest, box = hashes.SHA224(), new_box()
        oaep = padding.OAEP(mgf=padding.MGF1(digest), algorithm=digest, label=None)
        key = self.theirs.encrypt(box.key.encode(), oaep)
        body = {"key": key, "pillar": pillar, "nonce": asked["nonce"]}
        bend(body)
        data = wire.pack(body)
        inner = {"data": data, "sig": (signer or self).sign(data)}
        return wire.pack({"key": key, "pillar": box.seal(wire.pack(inner))})

    def publish(self, load: Mapping[str, Any], *, serial: int | None = None, box: Box | None = None) -> bytes:
        """A publish, signed."""
        self.serial = self.serial + 1 if serial is None else serial
        sealed = (box or self.aes).seal(wire.pack({"serial": self.serial, **load}))
        algorithm = "PKCS1v15-SHA1"
        return wire.pack({"enc": "aes", "load": sealed, "sig": self.sign(sealed, algorithm), "sig_algo": algorithm})

    @staticmethod
    def _asked(request: bytes) -> dict[str, Any]:
        load: dict[str, Any] = wire.texts(wire.unpack(request))["load"]
        return load
