"""The sign-in at a Salt master: what is asked, and what an answer is worth. Pure; every check fails closed."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
from dataclasses import dataclass
from typing import Any, Final

from device_agent.errors import Refused
from upstream.salt import wire
from upstream.salt.box import Box
from upstream.salt.rsa_keys import SIGNING_ALGORITHMS, GatewayKey, MasterKey, as_salt_shows, has_fingerprint
from upstream.salt.terms import SaltRules

PROTOCOL: Final = 3
REPLY_BYTES: Final = 64 * 1024
BODY_VALUES: Final = 64
KEY_CHANGED: Final = "master_key_changed"
"""Why a master is refused that has another key than the one that was kept, or than the settings say."""

NOT_VOUCHED: Final = "master_key_not_vouched"
"""Why a master is refused whose key the signing key has not signed, where the settings want that."""


@dataclass(frozen=True)
class Pending:
    """The gateway's key waits for an operator of the master."""


@dataclass(frozen=True)
class Rejected:
    """The master does not want this key: it was rejected, or another one is accepted under our id."""


@dataclass(frozen=True)
class Full:
    """The master takes no more minions."""


@dataclass(frozen=True)
class Session:
    """We are in. ``aes`` opens what is published, ``box`` seals requests and opens their answers."""

    aes: Box
    box: Box
    publish_port: int
    master: MasterKey


Outcome = Pending | Rejected | Full | Session


class OtherKey(Refused):
    """The master showed another key than the one it must have; ``pem`` is that one, and nothing vouches for it."""

    def __init__(self, pem: str, expected: str, *, by_settings: bool = False) -> None:
        """``by_settings``: it is the fingerprint in the settings that it has not."""
        super().__init__(KEY_CHANGED, f"it shows {as_salt_shows(pem)}, expected {expected}")
        self.pem = pem
        self.by_settings = by_settings


class NotVouched(Refused):
    """The signing key does not vouch for the key that the master showed. ``missing``: no signature came with it."""

    def __init__(self, pem: str, why: str, *, missing: bool) -> None:
        super().__init__(NOT_VOUCHED, f"it shows {as_salt_shows(pem)}, {why}")
        self.missing = missing


@dataclass(frozen=True)
class SignIn:
    """One sign-in, from what is asked to what came of it. ``nonce`` is made for it and used once.

    A Salt minion also sends a text for the master to decrypt. The master's signature over our nonce shows as well that
    it has its key, and a stock master with ``auth_mode: 2`` fails on whoever sends such a text.
    """

    rules: SaltRules
    key: GatewayKey
    master: MasterKey | None
    """The key that the master must have, if we have met it."""
    nonce: str
    signing: MasterKey | None = None
    """The key that signs masters' keys, if there is one."""

    def request(self) -> bytes:
        """What is sent."""
        load: dict[str, Any] = {
            "cmd": "_auth",
            "id": self.rules.id,
            "nonce": self.nonce,
            "pub": self.key.pem,
            "enc_algo": self.rules.encryption_algorithm,
            "sig_algo": self.rules.signing_algorithm,
        }
        return wire.pack({"enc": "clear", "version": PROTOCOL, "load": load})

    def outcome(self, reply: bytes) -> Outcome:
        """What the master says. Raises ``Refused`` for what it did not say, or said wrong."""
        value = wire.envelope(reply, REPLY_BYTES)
        if not isinstance(value, dict):
            words = value[:64].decode("ascii", "replace") if isinstance(value, bytes) else type(value).__name__
            raise Refused("sign_in_refused", f"the master answered: {words}")
        load = value.get(b"load")
        if isinstance(load, dict):
            raise Refused("sign_in_refused", f"the master answered, unsigned: {str(wire.texts(load.get(b'ret')))[:64]}")
        signed = wire.binary(value, "load")
        signature = wire.binary(value, "sig")
        body = wire.as_fields(wire.envelope(signed, REPLY_BYTES, most_values=BODY_VALUES))
        if b"ret" in body:
            return self._not_in(body, signed, signature)
        return self._session(body, signed, signature)

    def _not_in(self, body: dict[Any, Any], signed: bytes, signature: bytes) -> Outcome:
        if self.master is not None:
            try:
                self._verify(self.master, signed, signature)
            except Refused as refusal:
                words = "of the key that is known; a master with a new one shows it when it has accepted ours"
                raise Refused(refusal.reason, words) from None
        # With nothing kept there is no key to check it with, and it is a hint only: nothing is granted by it.
        self._check_nonce(body)
        match body[b"ret"]:
            case True:
                return Pending()
            case False:
                return Rejected()
            case b"full":
                return Full()
            case _:
                pass
        raise Refused("malformed", "a sign-in answer that is none of those known")

    def _session(self, body: dict[Any, Any], signed: bytes, signature: bytes) -> Session:
        master = self._believed(body)
        self._verify(master, signed, signature)
        self._check_nonce(body)
        aes = self._opened(body, "aes")
        if b"session" not in body:
            raise Refused("old_master", "it gives no key of our own: Salt 3006, 3007 or 3008 of today is needed")
        session = self._opened(body, "session")
        digest = hashlib.sha256(aes.encode("utf-8")).hexdigest().encode("ascii")
        if not hmac.compare_digest(master.open_x931(wire.binary(body, "sig")), digest):
            raise Refused("bad_signature", "of the key for publishes")
        return Session(Box(aes), Box(session), self._port(body), master)

    def _believed(self, body: dict[Any, Any]) -> MasterKey:
        pem = wire.text(body, "pub_key")
        fingers = self.rules.master_finger
        # First: only of a key that is written in the one way does a fingerprint say which it is.
        shown = MasterKey(pem)
        # Of a kept key as well: it may have been kept before the fingerprint was set.
        if fingers and not any(has_fingerprint(shown.pem, finger) for finger in fingers):
            raise OtherKey(shown.pem, " or ".join(fingers), by_settings=True)
        known = self.master is not None and shown.pem == self.master.pem
        if self.rules.verify_master_pubkey_sign:
            if not known or self.rules.always_verify_signature:
                self._vouched(body, pem)
        elif self.master is not None and not known:
            raise OtherKey(shown.pem, as_salt_shows(self.master.pem))
        return shown

    def _vouched(self, body: dict[Any, Any], pem: str) -> None:
        """The signing key has signed this key, by either name: the signature may be from a file of the master's."""
        if self.signing is None:
            raise NotVouched(pem, "and there is no key here to check its signature with", missing=False)
        if not isinstance(said := body.get(b"pub_sig"), bytes):
            raise NotVouched(pem, "with no signature of the signing key", missing=True)
        try:
            signature = base64.b64decode(b"".join(said.split()), validate=True)
        except binascii.Error:
            signature = b""
        for algorithm in SIGNING_ALGORITHMS:
            with contextlib.suppress(Refused):
                self.signing.verify(algorithm, signature, pem.encode())
                return
        raise NotVouched(pem, f"signed by another key than {as_salt_shows(self.signing.pem)}", missing=False)

    def _verify(self, master: MasterKey, signed: bytes, signature: bytes) -> None:
        master.verify(self.rules.signing_algorithm, signature, signed)

    def _check_nonce(self, body: dict[Any, Any]) -> None:
        said = body.get(b"nonce")
        if not isinstance(said, bytes) or not hmac.compare_digest(said, self.nonce.encode("ascii")):
            raise Refused("wrong_nonce", "an answer to another sign-in")

    def _opened(self, body: dict[Any, Any], name: str) -> str:
        """A key that is encrypted for us."""
        return self.key.decrypt(self.rules.encryption_algorithm, wire.binary(body, name)).decode("ascii", "replace")

    def _port(self, body: dict[Any, Any]) -> int:
        port = self.rules.publish_port or body.get(b"publish_port")
        if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 1 << 16:
            raise Refused("malformed", "no port to hear publishes on")
        return port
