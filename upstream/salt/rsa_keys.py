"""The gateway's RSA pair, and what Salt does with RSA: OAEP and PKCS#1 v1.5, each with the hash that its name says."""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from device_agent.durable import read_regular, replace_private
from device_agent.errors import ConfigInvalid, Refused
from device_agent.start_errors import start_error
from upstream.salt import x931

PEM_CHARACTERS: Final = 8192
LEAST_BITS: Final = 2048
MOST_BITS: Final = 8192
_EXPONENT: Final = 65537
_TOKEN: Final = b"salt"
"""What a client signs to show with every request that it has its key; it is the same in all."""

_OAEP: Final = {"OAEP-SHA224": hashes.SHA224, "OAEP-SHA1": hashes.SHA1}
_SIGNATURES: Final = {"PKCS1v15-SHA224": hashes.SHA224, "PKCS1v15-SHA1": hashes.SHA1}
SIGNING_ALGORITHMS: Final = tuple(_SIGNATURES)


def plain(pem: str) -> str:
    """A key as it is sent and compared: no white space around it, lines that end as on Unix."""
    return pem.replace("\r\n", "\n").replace("\r", "\n").strip()


def fingerprint(pem: str) -> str:
    """SHA-256 with colons over the lines between the first and the last.

    So ``salt-key`` of Salt 3006 and 3007 shows a key with ``-f`` and ``-F``.
    """
    lines = plain(pem).split("\n")
    return _with_colons("".join(f"{line}\n" for line in lines[1:-1]))


def whole_fingerprint(pem: str) -> str:
    """SHA-256 with colons over the whole text: so ``salt-key -f`` of Salt 3008 shows a minion's key."""
    return _with_colons(plain(pem))


def file_fingerprint(pem: str) -> str:
    """SHA-256 with colons over the file with its last line break: so ``salt-key -F`` of Salt 3008 shows its own key."""
    return _with_colons(f"{plain(pem)}\n")


def as_salt_shows(pem: str) -> str:
    """A master's fingerprint as ``salt-key -F master`` prints it there.

    The sign-in does not say which release a master has, and the releases do not print the same digest.
    """
    return f"{file_fingerprint(pem)} (as Salt 3008 prints it; 3006 and 3007 print {fingerprint(pem)})"


def has_fingerprint(pem: str, finger: str) -> bool:
    """Whether a key has this fingerprint in one of the forms in which a release shows it, however it is written."""
    text = plain(pem)
    forms = (fingerprint(text), whole_fingerprint(text), file_fingerprint(text))
    wanted = finger.replace(":", "").strip().lower().encode("utf-8", "replace")
    return any(hmac.compare_digest(form.replace(":", "").encode("ascii"), wanted) for form in forms)


def _written(key: rsa.RSAPublicKey, form: serialization.PublicFormat) -> str:
    return plain(key.public_bytes(serialization.Encoding.PEM, form).decode("ascii"))


def _with_colons(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest().hex(":")


_FORMS: Final = (serialization.PublicFormat.SubjectPublicKeyInfo, serialization.PublicFormat.PKCS1)


class MasterKey:
    """A master's public key. Raises ``Refused`` (``malformed``) for a text that is none."""

    def __init__(self, pem: str) -> None:
        self.pem = plain(pem)
        try:
            key = serialization.load_pem_public_key(self.pem.encode("ascii")) if len(pem) <= PEM_CHARACTERS else None
        except (ValueError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, rsa.RSAPublicKey) or not LEAST_BITS <= key.key_size <= MOST_BITS:
            raise Refused("malformed", f"no RSA key of {LEAST_BITS} to {MOST_BITS} bits")
        # A fingerprint is one of lines, and a reader of PEM may find another key beside them.
        if self.pem not in (_written(key, form) for form in _FORMS):
            raise Refused("malformed", "a key in PEM with something beside it, or written in another way")
        self._key = key
        self.fingerprint = fingerprint(self.pem)

    def verify(self, algorithm: str, signature: bytes, body: bytes) -> None:
        """Raises ``Refused``: ``unknown_algorithm``, ``bad_signature``."""
        if (digest := _SIGNATURES.get(algorithm)) is None:
            raise Refused("unknown_algorithm", algorithm[:64])
        try:
            self._key.verify(signature, body, padding.PKCS1v15(), digest())
        except InvalidSignature:
            raise Refused("bad_signature", "it is not of this master's key") from None

    def open_x931(self, signature: bytes) -> bytes:
        """What the master signed. Raises ``Refused`` (``bad_signature``)."""
        return x931.opened(self._key.public_numbers(), signature)


class GatewayKey:
    """The gateway's pair."""

    def __init__(self, key: rsa.RSAPrivateKey) -> None:
        self._key = key
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self.pem = plain(public.decode("ascii"))
        """The public half, as it is sent."""
        self.fingerprint, self.whole_fingerprint = fingerprint(self.pem), whole_fingerprint(self.pem)
        self.token = x931.make(key.private_numbers(), _TOKEN)
        """What shows the master with every request whose it is."""

    def decrypt(self, algorithm: str, sealed: bytes) -> bytes:
        """What was encrypted for us. Raises ``Refused`` (``not_for_us``)."""
        try:
            return self._key.decrypt(sealed, _oaep(algorithm))
        except ValueError:
            raise Refused("not_for_us", "it is not encrypted for this gateway's key") from None


def load_or_make(path: Path, bits: int) -> GatewayKey:
    """The pair in a file of mode 0600, made at first use. Raises ``ConfigInvalid`` when the file is not one."""
    try:
        body = read_regular(path)
    except FileNotFoundError:
        made = rsa.generate_private_key(_EXPONENT, bits)
        written = made.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = path.parent.stat()
        replace_private(path, written, (folder.st_uid, folder.st_gid) if os.geteuid() == 0 else None)
        return GatewayKey(made)
    except OSError as error:
        raise start_error(
            error,
            "the gateway's key for Salt masters cannot be read",
            where=str(path),
            found=error.strerror,
            allowed="a file of this user, mode 0600",
            hint=f"chown outstation: {path}; chmod 600 {path}",
        ) from None
    try:
        key = serialization.load_pem_private_key(body, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, rsa.RSAPrivateKey) or not LEAST_BITS <= key.key_size <= MOST_BITS:
        raise ConfigInvalid(
            "the gateway's key for Salt masters is damaged",
            where=str(path),
            found="no RSA key in PEM without a password",
            allowed=f"an RSA key of {LEAST_BITS} to {MOST_BITS} bits, as this station writes it, or a Salt minion's",
            hint=f"restore {path} from a backup, or move it away and accept the new key on the masters",
        )
    return GatewayKey(key)


def _oaep(algorithm: str) -> padding.OAEP:
    digest = _OAEP[algorithm]
    return padding.OAEP(mgf=padding.MGF1(digest()), algorithm=digest(), label=None)
