r"""The one line that an account's login shell reads, written so that every shell reads it alike.

An SSH server hands a command to the login shell of the account (RFC 4254, section 6.5), and that may be sh, bash, fish,
csh or tcsh. Their quoting differs: inside single quotes fish reads ``\\`` as one backslash, and csh expands ``!`` and
ends at a line break. So the script is written in characters that no shell treats specially inside single quotes, and
``/bin/sh`` turns it back with ``printf %b``.
"""

from __future__ import annotations

import string
from typing import Final

from device_agent.host import SHELL

PLAIN: Final = frozenset((string.ascii_letters + string.digits + ' "#$%&()*+,-./:;<=>?@[]^_`{|}~').encode())
"""Bytes that stand for themselves. The others are written as ``\\0ooo``, which ``printf %b`` reads (POSIX)."""

WORD_BYTES: Final = 900
"""The longest word of the line: the csh of BSD takes none of more than 1024 bytes."""

_READ: Final = 'eval "$(printf %b "$@")"'


def login_line(script: bytes) -> bytes:
    """A line for any login shell that runs a script in ``/bin/sh``."""
    words = [bytearray()]
    for byte in script:
        written = bytes((byte,)) if byte in PLAIN else b"\\0%03o" % byte
        if len(words[-1]) + len(written) > WORD_BYTES:
            words.append(bytearray())
        words[-1] += written
    return b" ".join([f"exec {SHELL} -c '{_READ}' sh".encode(), *(b"'%b'" % bytes(word) for word in words)])
