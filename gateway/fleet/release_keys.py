"""Release keys: each in a file that a passphrase opens, kept apart from the root keys and from every station.

    outstation release key
    public …  salt …  sealed …        hexadecimal; the sealed part is the private key

The private key is sealed with ChaCha20-Poly1305 under a key that scrypt makes of the passphrase (RFC 8439, RFC 7914).
The public half goes to the holders of the root keys as a line, signed by the key itself.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from device_agent.errors import Refused, UsageInvalid
from device_agent.trust import cose
from device_agent.trust.carried_keys import confirmed_key, take_confirmed_key
from device_agent.trust.claims import CNF, only
from device_agent.trust.keys import SigningKey, kid, new_private
from gateway.fleet import armor
from gateway.fleet.private_file import read_private, write_private

FIRST_LINE: Final = "outstation release key"
FILE_BYTES: Final = 64 * 1024
TYP: Final = "os-rlk"
SALT_BYTES: Final = 16
LOG_N: Final = 17
"""What scrypt is asked for: 128 MiB and about half a second."""

_NONCE = bytes(12)
"""A key of a fresh salt seals once."""


@dataclass(frozen=True)
class ReleaseKeyFile:
    """A release key on disk, still sealed."""

    path: Path
    public: bytes
    salt: bytes
    sealed: bytes

    def opened(self, passphrase: bytes) -> SigningKey:
        """The key itself. Raises ``UsageInvalid`` for another passphrase."""
        try:
            private = ChaCha20Poly1305(_stretched(passphrase, self.salt)).decrypt(_NONCE, self.sealed, self.public)
        except InvalidTag:
            raise UsageInvalid(
                "this passphrase does not open the release key",
                error_id="release.wrong_passphrase",
                where=str(self.path),
                allowed="the one that was typed when the key was made",
            ) from None
        return SigningKey(private)


def make_release_key(path: Path, passphrase: bytes) -> SigningKey:
    """A new release key in a file of mode 0600. Raises ``UsageInvalid`` for a file that is there."""
    if path.exists():
        raise UsageInvalid(
            "there is a file of this name",
            error_id="release.key_exists",
            where=str(path),
            allowed="a path where there is none: no key is overwritten",
            hint="outstation fleet release key OTHER",
        )
    key, salt = SigningKey(new_private()), os.urandom(SALT_BYTES)
    sealed = ChaCha20Poly1305(_stretched(passphrase, salt)).encrypt(_NONCE, key.private, key.public)
    text = f"{FIRST_LINE}\npublic {key.public.hex()}\nsalt {salt.hex()}\nsealed {sealed.hex()}\n"
    write_private(path, text.encode())
    return key


def read_release_key(path: Path) -> ReleaseKeyFile:
    """The sealed key in a file. Raises ``UsageInvalid``."""
    body = read_private(path, FILE_BYTES) if path.is_file() else None
    lines = (body or b"").decode("utf-8", "replace").splitlines()
    fields = dict(line.split(" ", 1) for line in lines[1:] if " " in line)
    try:
        found = ReleaseKeyFile(path, *(bytes.fromhex(fields[name]) for name in ("public", "salt", "sealed")))
    except (KeyError, ValueError):
        found = None
    if found is None or lines[0] != FIRST_LINE:
        raise UsageInvalid(
            "this is no release key",
            error_id="release.bad_key",
            where=str(path),
            found="no such file" if body is None else (lines[0][:60] if lines else "an empty file"),
            allowed="a file that `outstation fleet release key` made",
            hint="mount the medium it is on, and give its path: --key /media/…/release.key",
        )
    return found


def describe(key: SigningKey) -> str:
    """The line by which the holders of the root keys take up a release key."""
    return armor.wrap("os-release", cose.sign(key, TYP, {CNF: confirmed_key(key.public)}))


def read_description(text: str) -> bytes:
    """The public key in a line. Raises ``UsageInvalid``."""
    body = armor.unwrap("os-release", text)
    try:
        proof = cose.read(body, TYP)
        only(proof.claims, CNF)
        public = take_confirmed_key(proof.claims)
        if proof.kid != kid(public):
            raise Refused("unknown_issuer", "a release key is described by itself")
        proof.verified(public)
    except Refused as refusal:
        raise UsageInvalid(
            "this line of a release key proves nothing",
            error_id="release.bad_description",
            found=str(refusal),
            allowed=armor.KINDS["os-release"],
            hint="take it again from where the key was made",
        ) from None
    return public


def _stretched(passphrase: bytes, salt: bytes) -> bytes:
    return Scrypt(salt=salt, length=32, n=2**LOG_N, r=8, p=1).derive(passphrase)
