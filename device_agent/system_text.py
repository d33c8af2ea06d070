"""Lines and words of system files and of command output, split where the kernel and C programs split them. Pure.

``str.splitlines()`` also ends a line at a carriage return, a form feed or U+2028, and ``str.split()`` also splits at a
no-break space. A mount point, a comment of a key or a process name may contain each of these characters.
"""

from __future__ import annotations

import re

SPACE = " \t\n\v\f\r"
"""What ``isspace(3)`` accepts in the C locale, for ``str.strip``."""

_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")
_FIELD = re.compile(r"[^ \t]+")


def lines(text: str) -> list[str]:
    """Split a text at each line feed and at nothing else. A line feed at the end starts no further line."""
    found = text.split("\n")
    return found if found[-1] else found[:-1]


def words(line: str, most: int = -1) -> list[str]:
    """Split at runs of ``SPACE``, as ``sscanf(3)`` does.

    Args:
        line: One line, or a whole text that is a list of words.
        most: The most separators to use; the last word then keeps its blanks. -1 is no limit.
    """
    # Bytes know only these six blanks. Each character of UTF-8 outside ASCII consists of other bytes.
    found = line.encode(errors="surrogatepass").split(None, most)
    return [word.decode(errors="surrogatepass") for word in found]


def fields(line: str) -> list[str]:
    """Split at runs of spaces and tabs alone, as sshd(8), fstab(5) and crontab(5) do."""
    return _FIELD.findall(line)


def unescaped(word: str) -> str:
    """Read a field of fstab(5) or of the kernel's tables, in which a backslash and three octal digits are one byte."""
    raw = word.encode(errors="surrogateescape")
    return _OCTAL.sub(lambda found: bytes([int(found[1], 8)]), raw).decode(errors="surrogateescape")


def is_one_line(text: str) -> bool:
    """Whether every reader takes the text for one line, also those that end a line at other characters than ours."""
    return "\0" not in text and len(f"{text}.".splitlines()) == 1
