"""Passwords at the site's broker, as mosquitto keeps them: salted PBKDF2-SHA512 of one iteration.

One is enough: a password here is 24 random bytes, which no number of iterations makes harder to guess, and at every
change of a password file mosquitto hashes the password of every connected client again. Ten thousand clients take it
0.09 s with one iteration, where the 101 of its own tool take 0.8 s.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets

PASSWORD_BYTES = 24
SALT_BYTES = 12
ITERATIONS = 1
HASH_PATTERN = r"^\$7\$([1-9][0-9]{0,5})\$([A-Za-z0-9+/=]{1,64})\$([A-Za-z0-9+/=]{88})$(?!\n)"

_hash = re.compile(HASH_PATTERN)


def new_password() -> str:
    """A password that cannot be guessed: 32 characters."""
    return secrets.token_urlsafe(PASSWORD_BYTES)


def hash_password(password: str) -> str:
    """What stands for a password in a password file (mosquitto_passwd(1), ``$7$``)."""
    salt = secrets.token_bytes(SALT_BYTES)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS)
    return f"$7${ITERATIONS}${base64.b64encode(salt).decode('ascii')}${base64.b64encode(digest).decode('ascii')}"


def is_hash(text: str) -> bool:
    """Whether this may stand in a password file; what is written there must never end its line."""
    return _hash.match(text) is not None


def fits(password: str, password_hash: str) -> bool:
    """Whether this is the password; for the broker that is ours to the last line."""
    parts = _hash.match(password_hash)
    if parts is None:
        return False
    try:
        salt = base64.b64decode(parts[2], validate=True)
        digest = base64.b64decode(parts[3], validate=True)
    except binascii.Error:
        return False
    return hmac.compare_digest(hashlib.pbkdf2_hmac("sha512", password.encode(), salt, int(parts[1])), digest)
