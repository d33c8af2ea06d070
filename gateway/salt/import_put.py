"""Puts a setting into what an import makes, and says so: a secret is left out, and what was said already stays."""

from __future__ import annotations

from typing import Any, Final

from gateway.salt.import_findings import Finding, Said, Verdict, Wish, holds_secret
from gateway.secret_names import PLAIN

SECRET_WORDS: Final = "it holds a secret: write it by hand into a settings file that only the gateway's user may read"  # noqa: S105 - words about secrets
NAMED: Final = ("engines/", "schedule/", "station/beacons/")
"""Sections in which the last step of a path is a name that the site chose."""


def put(wish: Wish, said: Said, path: str, value: Any, verdict: Verdict = "carried", words: str = "") -> None:
    """Have a setting say something, unless it is a secret or said already, and tell of it."""
    first, _, last = path.partition("/")
    key = "" if path.startswith(NAMED) else last.rsplit("/", 1)[-1] or first
    if first not in PLAIN and holds_secret(value, key):
        tell(wish, said, "not carried", SECRET_WORDS)
    elif wish.put(path, value, said.where):
        tell(wish, said, verdict, words, path.replace("/", "."))
    else:
        tell(wish, said, "no meaning", f"{wish.origins[path]} says it for the whole gateway")


def tell(wish: Wish, said: Said, verdict: Verdict, words: str, to: str = "") -> None:
    """What became of a key."""
    wish.findings.append(Finding(verdict, said.key, said.where, words, to))


def entry_of(said: Said, name: str) -> Said:
    """An entry of a key, as a key of its own."""
    return Said(said.role, f"{said.key}.{name}", None, said.lines.get(name, said.where))
