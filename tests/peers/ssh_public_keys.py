"""Public keys of SSH that differ, as text."""

from __future__ import annotations

import base64

KIND = b"ssh-ed25519"


def public_key(number: int) -> str:
    """The middle part of a line of authorized_keys. OpenSSH reads it; nothing signs with it."""
    body = bytes([number]) * 32
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in (KIND, body))
    return base64.b64encode(blob).decode("ascii")
