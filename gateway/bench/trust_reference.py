"""The reference of ``bench trust``: the bare cryptography that no program of this design can do without.

Signatures (Ed25519), sealing (HPKE), HKDF, HMAC and ChaCha20-Poly1305 over byte strings as long as the product's, and
nothing around them: no encoding, no claims, no judgement. It imports nothing but Python's own library and
``cryptography``, and is run as a plain script in a process of its own. A key that stands in a message is loaded from
its bytes each time; one that is known beforehand is loaded once.

Lines of JSON on standard input: first the ``sizes``, then for each turn its ``chain``, the ``count`` of devices, the
``frames`` of each and whether it is the ``first`` turn of its chain. Lines of JSON on standard output: ``ready``, then
for each turn and part ``ok`` (what was verified, or opened to what had been sealed) and ``cpu_seconds``; or ``error``.
"""

from __future__ import annotations

import hmac
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes, hpke
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

SUITE = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305)
TAG_BYTES = 16
SECRET_BYTES = 32

Spent = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Turn:
    """What one turn of a chain is asked to do."""

    count: int
    frames: int
    first: bool


class Watch:
    """What each part has taken in this turn."""

    def __init__(self) -> None:
        self.spent: Spent = {}

    @contextmanager
    def on(self, part: str) -> Iterator[None]:
        """Count what is done inside to this part."""
        before = time.process_time()
        yield
        entry = self.spent.setdefault(part, {"ok": 0, "cpu_seconds": 0.0})
        entry["cpu_seconds"] += time.process_time() - before

    def ok(self, part: str, count: int) -> None:
        """So many were proven to be right."""
        self.spent[part]["ok"] += count


def derive(secret: bytes, salt: bytes, length: int) -> bytes:
    """HKDF-SHA256."""
    return HKDF(hashes.SHA256(), length, salt, b"reference").derive(secret)


def seal(public: bytes, info: bytes, plaintext: bytes) -> bytes:
    """HPKE to a key that is known by its bytes."""
    return SUITE.encrypt(plaintext, X25519PublicKey.from_public_bytes(public), info=info)


def tag(key: bytes, content: bytes) -> bytes:
    """HMAC-SHA256, cut."""
    return hmac.digest(key, content, "sha256")[:TAG_BYTES]


def raw(key: Ed25519PrivateKey | X25519PrivateKey) -> bytes:
    """The bytes of a public key."""
    return key.public_key().public_bytes_raw()


class Bare:
    """The primitives of each chain."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self._sizes = sizes
        self._site = Ed25519PrivateKey.generate()
        self._site_public = self._site.public_key()
        self._master = Ed25519PrivateKey.generate()
        self._master_public = self._master.public_key()
        self._roots = [Ed25519PrivateKey.generate() for _ in range(2)]
        self._kem = X25519PrivateKey.generate()
        self._kem_public = raw(self._kem)
        self._signed_root = [self._signed(root, "root_list") for root in self._roots]
        self._signed_site = self._signed(self._master, "site_certificate")
        self._signed_prekey = self._signed(self._site, "prekey")

    def _bytes(self, name: str) -> bytes:
        return os.urandom(self._sizes[name])

    def _signed(self, key: Ed25519PrivateKey, name: str) -> tuple[bytes, bytes, bytes]:
        """Bytes of this length, their signature, and the signer's key as bytes."""
        content = self._bytes(name)
        return content, key.sign(content), raw(key)

    def join(self, turn: Turn, watch: Watch) -> None:
        """A device asks with a token, a station accepts and seals its answer, the device opens that."""
        keys = [(Ed25519PrivateKey.generate(), X25519PrivateKey.generate()) for _ in range(turn.count)]
        secrets = [os.urandom(16) for _ in keys]
        named = [(raw(key), raw(kem)) for key, kem in keys]
        asked = [(self._bytes("request"), self._bytes("request_body")) for _ in keys]
        certificates = [(self._bytes("device_certificate"), self._bytes("accept")) for _ in keys]
        plain, info = self._bytes("answer"), self._bytes("answer_info")
        requests, answers = [], []
        with watch.on("enroll"):
            for (key, _), secret, (content, body) in zip(keys, secrets, asked, strict=True):
                token = derive(secret, b"", 32)
                requests.append((key.sign(content), token, tag(token, body)))
        with watch.on("accept"):
            for (sig, kem), secret, (content, body), (certificate, word), (signature, _, came) in zip(
                named, secrets, asked, certificates, requests, strict=True
            ):
                Ed25519PublicKey.from_public_bytes(sig).verify(signature, content)
                token = derive(secret, b"", 32)
                if not hmac.compare_digest(came, tag(token, body)):
                    raise InvalidTag
                signatures = self._site.sign(certificate), self._site.sign(word)
                sealed = seal(kem, info, plain)
                answers.append((signatures, sealed, tag(token, sealed)))
        opened = []
        with watch.on("enroll"):
            for (_, own), (_, token, _), contents, (signatures, sealed, came) in zip(
                keys, requests, certificates, answers, strict=True
            ):
                if not hmac.compare_digest(came, tag(token, sealed)):
                    raise InvalidTag
                opened.append(SUITE.decrypt(sealed, own, info=info))
                for content, signature, public in (*self._signed_root, self._signed_site):
                    Ed25519PublicKey.from_public_bytes(public).verify(signature, content)
                site = Ed25519PublicKey.from_public_bytes(raw(self._site))
                for signed, signature in zip(contents, signatures, strict=True):
                    site.verify(signature, signed)
        for part in ("accept", "enroll"):
            watch.ok(part, opened.count(plain))

    def job_group(self, turn: Turn, watch: Watch) -> None:
        """A job under a fresh key of the group's, signed; verified and opened."""
        group_key = os.urandom(32)
        orders = [(self._bytes("group_order"), self._bytes("group_job"), os.urandom(16)) for _ in range(turn.count)]
        aad = self._bytes("group_aad")
        sealed, opened = [], []
        with watch.on("job_seal_group"):
            for order, content, salt in orders:
                key = derive(group_key, salt, 44)
                ct = ChaCha20Poly1305(key[:32]).encrypt(key[32:], order, aad)
                sealed.append((ct, self._master.sign(content)))
        with watch.on("job_open_group"):
            for (_, content, salt), (ct, signature) in zip(orders, sealed, strict=True):
                self._master_public.verify(signature, content)
                key = derive(group_key, salt, 44)
                opened.append(ChaCha20Poly1305(key[:32]).decrypt(key[32:], ct, aad))
        for part in ("job_seal_group", "job_open_group"):
            watch.ok(part, sum(found == order[0] for found, order in zip(opened, orders, strict=True)))

    def job_single(self, turn: Turn, watch: Watch) -> None:
        """A job sealed to one device, signed; verified and opened."""
        orders = [(self._bytes("single_order"), self._bytes("single_job")) for _ in range(turn.count)]
        info = self._bytes("single_info")
        sealed, opened = [], []
        with watch.on("job_seal_single"):
            sealed += [(seal(self._kem_public, info, order), self._master.sign(content)) for order, content in orders]
        with watch.on("job_open_single"):
            for (_, content), (ct, signature) in zip(orders, sealed, strict=True):
                self._master_public.verify(signature, content)
                opened.append(SUITE.decrypt(ct, self._kem, info=info))
        for part in ("job_seal_single", "job_open_single"):
            watch.ok(part, sum(found == order[0] for found, order in zip(opened, orders, strict=True)))

    def session(self, turn: Turn, watch: Watch) -> None:
        """A device opens a session, the station takes it and says so, the device takes that; then frames go up."""
        devices = [Ed25519PrivateKey.generate() for _ in range(turn.count)]
        publics = [raw(device) for device in devices]
        openings = [(self._bytes("opening"), os.urandom(SECRET_BYTES), os.urandom(32)) for _ in devices]
        words = [self._bytes("session_ok") for _ in devices]
        info = self._bytes("opening_info")
        prekey, prekey_signature, _ = self._signed_prekey
        sent, answers, ends = [], [], []
        with watch.on("session_device"):
            for device, (content, secret, salt) in zip(devices, openings, strict=True):
                self._site_public.verify(prekey_signature, prekey)
                sealed = seal(self._kem_public, info, secret)
                sent.append((device.sign(content), sealed, derive(secret, salt, 64)))
        with watch.on("session_station"):
            for public, (content, _, salt), word, (signature, sealed, _) in zip(
                publics, openings, words, sent, strict=True
            ):
                Ed25519PublicKey.from_public_bytes(public).verify(signature, content)
                keys = derive(SUITE.decrypt(sealed, self._kem, info=info), salt, 64)
                answers.append((keys, self._site.sign(word)))
        with watch.on("session_device"):
            for word, (_, signature) in zip(words, answers, strict=True):
                self._site_public.verify(signature, word)
        for (_, _, ours), (theirs, _) in zip(sent, answers, strict=True):
            ends.append((ChaCha20Poly1305(ours[:32]), ChaCha20Poly1305(theirs[:32])))
        alike = sum(ours == theirs for (_, _, ours), (theirs, _) in zip(sent, answers, strict=True))
        for part in ("session_device", "session_station"):
            watch.ok(part, alike)
        self._frames(ends, turn.frames, watch)

    def _frames(self, ends: list[tuple[ChaCha20Poly1305, ChaCha20Poly1305]], frames: int, watch: Watch) -> None:
        plain, aad = self._bytes("frame"), self._bytes("frame_aad")
        nonces = [number.to_bytes(12, "big") for number in range(frames)]
        with watch.on("frame_seal"):
            sealed = [[device.encrypt(nonce, plain, aad) for nonce in nonces] for device, _ in ends]
        with watch.on("frame_open"):
            opened = [
                [station.decrypt(nonce, ct, aad) for nonce, ct in zip(nonces, frames_of_one, strict=True)]
                for (_, station), frames_of_one in zip(ends, sealed, strict=True)
            ]
        for part in ("frame_seal", "frame_open"):
            watch.ok(part, sum(found.count(plain) for found in opened))

    def revocation(self, turn: Turn, watch: Watch) -> None:
        """A list of revoked keys, signed; another group key, sealed to each device that is left and signed."""
        kems = [X25519PrivateKey.generate() for _ in range(turn.count - turn.first)]
        publics = [raw(kem) for kem in kems]
        contents = [self._bytes("epoch") for _ in kems]
        listed, info, group_key = self._bytes("revocations"), self._bytes("epoch_info"), os.urandom(32)
        sealed, signature = [], b""
        with watch.on("revocation"):
            if turn.first:
                signature = self._site.sign(listed)
            for public, content in zip(publics, contents, strict=True):
                sealed.append((seal(public, info, group_key), self._site.sign(content)))
        if turn.first:
            self._site_public.verify(signature, listed)
        opened = []
        for kem, content, (ct, signed) in zip(kems, contents, sealed, strict=True):
            self._site_public.verify(signed, content)
            opened.append(SUITE.decrypt(ct, kem, info=info))
        watch.ok("revocation", opened.count(group_key) + turn.first)


def run(lines: Any, out: Any) -> None:
    """Talk to whoever started this script until its lines end."""
    told = json.loads(lines.readline())
    bare = Bare(told["sizes"])
    chains: dict[str, Callable[[Turn, Watch], None]] = {
        chain.__name__: chain for chain in (bare.join, bare.job_group, bare.job_single, bare.session, bare.revocation)
    }
    out.write('{"ready": true}\n')
    out.flush()
    for line in lines:
        asked = json.loads(line)
        watch = Watch()
        chains[asked["chain"]](Turn(asked["count"], asked["frames"], asked["first"]), watch)
        out.write(json.dumps({"parts": watch.spent}) + "\n")
        out.flush()


def main() -> int:
    """The script; returns the exit status."""
    # It ends when its lines end; Ctrl-C is for whoever started it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run(sys.stdin, sys.stdout)
    except (InvalidSignature, InvalidTag, KeyError, ValueError) as error:
        sys.stdout.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
