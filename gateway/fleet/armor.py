"""Proofs as one line of text that says what it is and notices when it was not copied exactly.

    os-master:mfrggzdfmztwq2lk…        kind, a colon, base32 in lower case of the bytes and four bytes of their SHA-256

A file with such a line is carried on a stick, a line is pasted into a ticket; spaces and line breaks do not matter.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from pathlib import Path

from device_agent.errors import UsageInvalid

KINDS = {
    "os-master": "the description of a master, which `outstation master init` prints",
    "os-request": "the request of a site, which `outstation gateway init` prints",
    "os-release": "the public half of a release key, which `outstation fleet release key` prints",
    "os-bundle": "the bundle for a site, which `outstation keys accept --bundle` or `fleet sign-site` makes",
}
CHECK_BYTES = 4
TEXT_MAX = 4 * 1024 * 1024

_armored = re.compile(r"([a-z][a-z-]{1,30}):([a-z2-7]+)")


def wrap(kind: str, body: bytes) -> str:
    """The line for these bytes."""
    assert kind in KINDS, "every kind is named here, for the errors of readers"
    checked = body + hashlib.sha256(kind.encode() + body).digest()[:CHECK_BYTES]
    return f"{kind}:{base64.b32encode(checked).decode('ascii').rstrip('=').lower()}"


def unwrap(kind: str, text: str) -> bytes:
    """The bytes in a line, alone or among others that a command printed. Raises ``UsageInvalid``."""
    found = _armored.fullmatch(re.sub(r"\s", "", text).lower()) or _among(kind, text)
    if found is None:
        raise _wrong(kind, f"{text if len(text) <= 60 else text[:57] + '…'!r}: no such line")
    if found[1] != kind:
        raise _wrong(kind, KINDS.get(found[1], f"a line that begins with {found[1]}:"))
    try:
        checked = base64.b32decode(found[2].upper() + "=" * (-len(found[2]) % 8))
    except binascii.Error:
        checked = b""
    body, check = checked[:-CHECK_BYTES], checked[-CHECK_BYTES:]
    if not body or hashlib.sha256(kind.encode() + body).digest()[:CHECK_BYTES] != check:
        raise _wrong(kind, "a line that was not copied exactly: its check does not fit")
    return body


def _among(kind: str, text: str) -> re.Match[str] | None:
    lines = (_armored.fullmatch(line.strip().lower()) for line in text.splitlines())
    return next((line for line in lines if line is not None and line[1] == kind), None)


def typed(given: str) -> str:
    """What somebody typed: the line itself, or the text of the file of that name."""
    if _armored.match(given.strip().lower()):
        return given
    try:
        with Path(given).open("rb") as file:
            return file.read(TEXT_MAX).decode("ascii", "replace")
    except (OSError, ValueError):
        # No such file, or no name that a file could have: the line itself was meant.
        return given


def _wrong(kind: str, found: str) -> UsageInvalid:
    return UsageInvalid(
        "this is not what belongs here",
        error_id="fleet.other_text",
        found=found,
        allowed=KINDS[kind],
        hint="copy the whole line again, or give the file it was written to",
    )
