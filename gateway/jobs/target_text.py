"""The target of a rendered file as text: a text, or a list of names. Pure."""

from __future__ import annotations

from typing import Any

SHOWN_CHARACTERS = 80


class NotText(Exception):
    """A target that is a number, a boolean or a mapping; the message says what to write."""


def target_text(said: Any) -> str:
    """Return the text of a target; the names of a list have commas between them.

    A number is refused: its text may be the name of another device (427 of 00427), and Salt matches no device by one.

    Raises:
        NotText: The target, or a name in its list, is no text.
    """
    names = said if isinstance(said, list) else [said]
    for name in names:
        if not isinstance(name, str):
            found = "nothing" if name is None else f"the {type(name).__name__} {str(name)[:SHOWN_CHARACTERS]}"
            raise NotText(f"tgt is a text or a list of texts, and here is {found}; write the name in quotes")
    return ",".join(names)
