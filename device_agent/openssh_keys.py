"""The lines of OpenSSH's authorized_keys and known_hosts, sshd(8). Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets

from msgspec import Struct

from device_agent import system_text

_key_type = re.compile(r"(sk-)?(ssh-|ecdsa-)[A-Za-z0-9@.-]+")
_QUOTED = r'"(?:\\"|\\(?!")|[^"\\])*"'
"""As sshd reads it: a backslash keeps a quote from ending the text, and is a plain character before all else."""

_token = re.compile(rf'(?:\\"|\\(?!")|[^ \t"\\]|{_QUOTED})+')
_option = re.compile(rf'(?:\\"|\\(?!")|[^,"\\]|{_QUOTED})+')
_LINE_ENDS = " \t\r"
"""Around a line. The carriage return is that of a file with the line ends of Windows, which sshd accepts."""

TYPES = {
    "r": "ssh-rsa",
    "rsa": "ssh-rsa",
    "ssh-rsa": "ssh-rsa",
    "d": "ssh-dss",
    "dsa": "ssh-dss",
    "dss": "ssh-dss",
    "ssh-dss": "ssh-dss",
    "e": "ecdsa-sha2-nistp256",
    "ecdsa": "ecdsa-sha2-nistp256",
    "ed25519": "ssh-ed25519",
    "ssh-ed25519": "ssh-ed25519",
}
"""What may be said for a type of key."""


class AuthorizedKey(Struct, frozen=True):
    """A line that lets somebody in."""

    enc: str
    key: str
    comment: str = ""
    options: tuple[str, ...] = ()

    def line(self) -> str:
        """As it stands in the file."""
        words = [",".join(self.options), self.enc, self.key, self.comment]
        return " ".join(each for each in words if each)


class KnownHost(Struct, frozen=True):
    """A line that says which key a host has."""

    hostname: str
    enc: str
    key: str
    marker: str = ""

    def line(self) -> str:
        """As it stands in the file."""
        return " ".join(each for each in [self.marker, self.hostname, self.enc, self.key] if each)

    def names(self, hostname: str) -> bool:
        """It is about this host, which may be hidden in it; a pattern with ``!`` excludes."""
        if self.hostname.startswith("|1|"):
            return _hidden(hostname, self.hostname)
        names = self.hostname.lower().split(",")
        return hostname.lower() in names and f"!{hostname.lower()}" not in names


def type_of(enc: str) -> str | None:
    """A type of key under the name it has in files; None when there is none such."""
    return TYPES.get(enc.lower()) or (enc if _key_type.fullmatch(enc) else None)


def authorized(line: str) -> AuthorizedKey | None:
    """A line of authorized_keys; None for a comment and for what is no key."""
    bare = line.strip(_LINE_ENDS)
    if bare.startswith("#"):
        return None
    tokens = list(_token.finditer(bare))
    for place in (0, 1):
        if len(tokens) > place + 1 and _key_type.fullmatch(tokens[place][0]):
            ends = [0, *(token.end() for token in tokens)]
            gaps = (bare[end : token.start()] for end, token in zip(ends, tokens[: place + 2], strict=False))
            if any(gap.strip(_LINE_ENDS) for gap in gaps):
                return None  # A quotation mark is not closed, and sshd reads no key here.
            comment = bare[tokens[place + 1].end() :].strip(_LINE_ENDS)
            options = tuple(_option.findall(tokens[0][0])) if place else ()
            return AuthorizedKey(tokens[place][0], _without_space(tokens[place + 1][0]), comment, options)
    return None


def known_host(line: str) -> KnownHost | None:
    """A line of known_hosts or of ssh-keyscan; None for a comment and for what is none."""
    words = system_text.fields(line.strip(_LINE_ENDS))
    marker = words.pop(0) if words and words[0].startswith("@") else ""
    if len(words) < 3 or words[0].startswith("#") or not _key_type.fullmatch(words[1]):
        return None
    return KnownHost(words[0], words[1], _without_space(words[2]), marker)


def fingerprint(key: str, kind: str | None = None) -> str | None:
    """The hash of a key as pairs of digits; None when it is no key. ``kind`` is sha256 unless it names another."""
    try:
        raw = base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(raw) < 8 or not 4 <= int.from_bytes(raw[:4], "big") <= 64:
        return None
    digest = hashlib.new(kind or "sha256", raw, usedforsecurity=False).hexdigest()
    return ":".join(digest[place : place + 2] for place in range(0, len(digest), 2))


def hidden(hostname: str) -> str:
    """A name of a host that can only be recognized, not read."""
    salt = secrets.token_bytes(20)
    digest = hmac.new(salt, hostname.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def _without_space(key: str) -> str:
    """The text of a key as OpenSSH decodes it: it skips a form feed, for example, inside of one."""
    return "".join(system_text.words(key))


def _hidden(hostname: str, field: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part) for part in field.split("|")[2:4])
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.new(salt, hostname.encode(), hashlib.sha1).digest(), digest)
