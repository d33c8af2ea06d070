"""Text from outside with nothing in it that a terminal would obey."""

from __future__ import annotations


def safe(text: str) -> str:
    r"""The text with everything that is not printable written as an escape: ``\x1b``, ``\n``, ``\u202e``."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
