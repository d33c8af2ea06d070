"""What a site's broker may carry, read without the product's readers: by its topic each payload is exactly one object.

Every object has exactly its claims, each of its kind, in bytes that have no second form, and a signature by whom the
design says. The reader learns keys as a device does: root lists by the pinned fingerprint, masters from them, the site
from its certificate; and devices from their own requests. What is sealed stays shut.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter, defaultdict
from contextlib import suppress
from typing import Any

import cbor2
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from device_agent.trust import claims as c
from tests.peers.wire_claims import OBJECTS, ROOT, Check, Kind, is_octets

DEVICE_TOPIC = re.compile(r"^d/([a-z2-7]{26})/(up/ses|up/f|up/bye|job|sok|ep)$")
ANSWER_TOPIC = re.compile(r"^enr/rsp/([a-z2-7]{26})$")
FRAME_BYTES = 18 + 16
SEALED_BYTES = 32 + 16
LARGEST = 256 * 1024


class NotOfTheDesign(AssertionError):
    """A payload that is none of the objects which its topic may carry."""


class WireReader:
    """Reads what a broker carries, in the order in which it did."""

    def __init__(self, site: str, pinned: bytes) -> None:
        self.site = site
        self.seen: Counter[str] = Counter()
        """How many there were of each kind."""
        self._pinned = pinned
        self._signers: dict[bytes, tuple[str, bytes]] = {}
        self._devices: dict[str, bytes] = {}
        self._with_token: dict[str, bool] = {}
        self._sessions: dict[bytes, str] = {}
        self._nonces: dict[str, set[bytes]] = defaultdict(set)

    def read(self, topic: str, payload: bytes) -> str:
        """The kind of object that this is. Raises ``NotOfTheDesign``."""
        _require(len(payload) <= LARGEST, "larger than any message")
        prefix = f"os/{self.site}/"
        _require(topic.startswith(prefix), f"the topic {topic}")
        kind = self._of_topic(topic.removeprefix(prefix), payload)
        self.seen[kind] += 1
        return kind

    def _of_topic(self, topic: str, payload: bytes) -> str:
        if topic == "enr/req":
            return self._knock(payload)
        if topic == "trust":
            return self._bundle(payload)
        if topic == "g/all/ack":
            self._signed(payload, "os-ack")
            return "os-ack"
        if topic == "g/all/time":
            self._signed(payload, "os-tim")
            return "os-tim"
        if topic == "g/all/job":
            return self._delivery(payload, None)
        if (found := ANSWER_TOPIC.match(topic)) is not None:
            return self._answer(payload, found[1])
        found = DEVICE_TOPIC.match(topic)
        _require(found is not None, f"the topic {topic}")
        assert found is not None
        return self._of_device(found[1], found[2], payload)

    def _of_device(self, did: str, channel: str, payload: bytes) -> str:
        match channel:
            case "up/ses":
                opening = self._about(payload, "os-ses", did)
                self._sessions[hashlib.sha256(payload).digest()[:8]] = did
                self._nonces[did].add(opening[c.NONCE])
                return "os-ses"
            case "up/f":
                return self._frame(payload, did, 1)
            case "up/bye":
                _require(self._about(payload, "os-bye", did)[c.NONCE] in self._nonces[did], "the will of no connection")
                return "os-bye"
            case "ep":
                self._about(payload, "os-ep", did)
                return "os-ep"
            case "sok":
                if _typ(payload) == "os-rol":
                    self._about(payload, "os-rol", did)
                    return "os-rol"
                word = self._about(payload, "os-sok", did)
                _require(word[c.NONCE] in self._nonces[did], "the word on no opening")
                return "os-sok"
            case _:
                return self._frame(payload, did, 2) if payload[:1] == b"\x01" else self._delivery(payload, did)

    # --- by topic ------------------------------------------------------------------------------------------------

    def _knock(self, payload: bytes) -> str:
        if payload[:1] == b"\xd2":
            self._signed(payload, "os-cfm")
            return "os-cfm"
        body, tag = _array(payload, 2)
        _require(is_octets(body) and is_octets(tag), "a request and its tag are byte strings")
        claims = _claims(body)
        public = claims.get(c.CNF, {}).get(1, {}).get(-2)
        _require(is_octets(public, 32) and _did(public) == claims[c.SUB], "the name of a device is that of its key")
        self._devices.setdefault(claims[c.SUB], public)
        self._signed(body, "os-enr")
        self._with_token[claims[c.SUB]] = c.TOKEN in claims
        _require(len(tag) == (16 if c.TOKEN in claims else 0), "a tag goes with a token")
        return "os-enr"

    def _answer(self, payload: bytes, did: str) -> str:
        _require(did in self._with_token, "an answer to nobody")
        parts = _decoded(payload)
        _require(type(parts) is list and len(parts) in {2, 4}, "an acceptance or a refusal")
        if len(parts) == 2:
            sealed, tag = parts
            _require(
                is_octets(sealed) and len(sealed) > SEALED_BYTES and not _is_open(sealed), "what accepts is sealed"
            )
            _require(is_octets(tag, 16 if self._with_token[did] else 0), "a tag goes with a token")
            return "accepted"
        empty, root_lists, certificate, word = parts
        _require(empty == b"" and type(root_lists) is list, "a refusal begins with nothing")
        for body in root_lists:
            self._root_list(body)
        self._certificate(certificate)
        self._about(word, "os-nay", did)
        return "os-nay"

    def _bundle(self, payload: bytes) -> str:
        root_lists, certificates, prekey, revocations = _array(payload, 4)
        _require(
            all(type(part) is list for part in (root_lists, certificates, revocations)), "three lists and a prekey"
        )
        for body in root_lists:
            self._root_list(body)
        for body in certificates:
            self._certificate(body)
        self._signed(prekey, "os-pre")
        for body in revocations:
            self._signed(body, "os-rev")
        return "bundle"

    def _delivery(self, payload: bytes, did: str | None) -> str:
        parts = _decoded(payload)
        _require(type(parts) is list and len(parts) in {2, 3}, "a job or a cancellation")
        bits = parts[-1]
        _require(bits is None if did is not None else bits is None or is_octets(bits), "a bitmap, and for many only")
        if len(parts) == 2:
            self._signed(parts[0], "os-can")
            return "os-can"
        _require(type(parts[1]) is int and parts[1] >= 0, "the time that is left")
        claims = self._signed(parts[0], "os-job").claims
        group = claims[c.SUB] == "all"
        _require(group or claims[c.SUB] == did, "a job for another device")
        _require((c.EPOCH in claims) is group and (c.SALT in claims) is group, "epoch and salt go with a group")
        return "os-job"

    def _frame(self, payload: bytes, did: str, direction: int) -> str:
        _require(len(payload) >= FRAME_BYTES and payload[:2] == bytes((1, direction)), "a frame of this direction")
        _require(self._sessions.get(payload[2:10]) == did, "a frame of no session of this device")
        return f"frame {'up' if direction == 1 else 'down'}"

    # --- objects -------------------------------------------------------------------------------------------------

    def _about(self, body: bytes, typ: str, did: str) -> dict[int, Any]:
        """The claims of an object that is about this device."""
        claims: dict[int, Any] = self._signed(body, typ).claims
        _require(claims[c.SUB] == did, f"{typ} about another device")
        return claims

    def _signed(self, body: Any, typ: str) -> Proof:
        kind = OBJECTS[typ]
        proof = Proof(body)
        _require(proof.typ == typ, f"{proof.typ} in the place of {typ}")
        _check_claims(proof.claims, kind, typ)
        _require(proof.claims.get(c.AUD, self.site) == self.site, "for another site")
        if "device" in kind.signers:
            public = self._devices.get(proof.claims[c.SUB])
        else:
            role, public = self._signers.get(proof.kid, ("nobody", None))
            _require(role in kind.signers, f"{typ} by {role}")
        _require(public is not None and _kid(public) == proof.kid, f"{typ} by a key that nobody knows")
        assert public is not None
        _verify(public, proof.signature, ["Signature1", proof.protected, b"", proof.payload])
        return proof

    def _certificate(self, body: bytes) -> None:
        claims = self._signed(body, "os-site").claims
        _require(claims[c.SUB] == claims[c.AUD], "a certificate about one site and for another")
        public = claims[c.CNF][1][-2]
        self._signers[_kid(public)] = ("site", public)

    def _root_list(self, body: Any) -> None:
        _require(is_octets(body) and body[:2] == b"\xd8\x62", "a COSE_Sign")
        protected, unprotected, payload, signatures = _array(body[2:], 4)
        _require(unprotected == {} and _decoded(protected) == {16: "os-root"}, "the header of a root list")
        claims = _decoded(payload)
        _check_claims(claims, ROOT, "os-root")
        roots = claims[c.ROOTS]
        print_ = hashlib.sha256(b"os1 root\0" + b"".join(sorted(roots))).digest()[:16]
        _require(print_ == self._pinned, "a root list of another fleet")
        known, by = {_kid(root): root for root in roots}, set()
        for own, nothing, signature in signatures:
            header = _decoded(own)
            _require(nothing == {} and list(header) == [1, 4] and header[1] == -8, "the header of a signature")
            _verify(known[header[4]], signature, ["Signature", protected, own, b"", payload])
            by.add(header[4])
        _require(len(by) >= claims[c.THRESHOLD] >= 2, "too few root keys have signed")
        for master in claims[c.MASTERS]:
            self._signers[_kid(master[1])] = ("master", master[1])


class Proof:
    """A COSE_Sign1 in its one form, unverified."""

    def __init__(self, body: Any) -> None:
        _require(is_octets(body) and body[:1] == b"\xd2", "a COSE_Sign1")
        self.protected, unprotected, self.payload, self.signature = _array(body[1:], 4)
        _require(unprotected == {} and is_octets(self.signature, 64), "nothing unprotected, and 64 bytes that sign")
        header = _decoded(self.protected)
        _require(type(header) is dict and list(header) == [1, 4, 16] and header[1] == -8, "algorithm, kid and typ")
        self.kid, self.typ = header[4], header[16]
        _require(is_octets(self.kid, 8) and type(self.typ) is str, "a kid of 8 bytes and a name")
        self.claims = _decoded(self.payload)


def _is_open(body: bytes) -> bool:
    """Whether anybody can read this."""
    with suppress(NotOfTheDesign):
        Proof(body)
        return True
    return False


def _claims(body: bytes) -> dict[int, Any]:
    claims: dict[int, Any] = Proof(body).claims
    _require(type(claims) is dict and c.SUB in claims, "claims about somebody")
    return claims


def _typ(body: bytes) -> str:
    return str(Proof(body).typ)


def _check_claims(claims: Any, kind: Kind, typ: str) -> None:
    _require(type(claims) is dict, f"the claims of {typ} are a map")
    missing = [c.NAMES[label] for label in kind.must if label not in claims]
    unknown = [str(label) for label in claims if label not in kind.must and label not in kind.may]
    _require(not missing and not unknown, f"{typ} without {missing} and with {unknown}")
    checks: dict[int, Check] = {**kind.must, **kind.may}
    wrong = [c.NAMES[label] for label, value in claims.items() if not checks[label](value)]
    _require(not wrong, f"{typ} with a false {wrong}")
    _require(c.CT not in claims or list(claims)[-1] == c.CT, f"{typ}: what is sealed comes last")


def _decoded(body: Any) -> Any:
    """A value whose bytes are the only ones it has."""
    _require(is_octets(body), "not a byte string")
    try:
        value = cbor2.loads(body)
    except (cbor2.CBORDecodeError, RecursionError) as error:
        raise NotOfTheDesign(f"no CBOR: {error}") from error
    _require(cbor2.dumps(value) == body, "CBOR in another form than the shortest")
    return value


def _array(body: Any, length: int) -> list[Any]:
    parts = _decoded(body)
    _require(type(parts) is list and len(parts) == length, f"not {length} parts")
    found: list[Any] = parts
    return found


def _verify(public: bytes, signature: bytes, content: list[Any]) -> None:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, cbor2.dumps(content))
    except InvalidSignature:
        raise NotOfTheDesign("a signature that does not hold") from None


def _identity(public: bytes) -> bytes:
    return hashlib.sha256(b"os1 id\0" + public).digest()


def _kid(public: bytes) -> bytes:
    return _identity(public)[:8]


def _did(public: bytes) -> str:
    return base64.b32encode(_identity(public)[:16]).decode("ascii").rstrip("=").lower()


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise NotOfTheDesign(otherwise)
