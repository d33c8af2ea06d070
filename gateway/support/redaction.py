"""Takes out of a text what is secret: what is known to be, and whatever looks like it. Pure.

It takes out too much rather than too little: a digest or a public key in a log may go as well.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote, quote_plus

MARK: Final = "[redacted]"
HIDDEN: Final = "(not shown)"
"""In the place of a setting that is there."""

LINE_CHARACTERS: Final = 4096
SHORTEST: Final = 6
"""Known secrets that are shorter would take ordinary words out of every text."""

_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]{1,60}-----.*?(?:-----END [A-Z0-9 ]{1,60}-----|\Z)", re.DOTALL)
_USER_INFO = re.compile(r"(?<=://)[^/\s@\"']{1,512}@")
_NAMED = re.compile(
    r"((?:passw(?:or)?d|passphrase|secret|token|api[-_]?key|authorization|cookie|pillar|seed|psk|credential"
    r"|private[-_]?key)[\w.-]{0,40}[\"']?\s{0,3}[=:]\s{0,3})"
    r"(\[[^\]\n]*\]|\{[^}\n]*\}|\"[^\"\n]*\"|'[^'\n]*'|(?:bearer|basic|digest)\s+\S+|[^\s,;}\]]+)",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(?:Bearer|Basic)\s+[\w.~+/=-]{6,}|\bos1_[\w-]{8,}")
_TYPED = re.compile(r"[0-9A-Z $%*+\-./:]{40,}")
"""Join tokens are base45 (RFC 9285)."""

_RUN = re.compile(r"[A-Za-z0-9+/_-]{20,}={0,2}")
_HEX = re.compile(r"(?<![0-9A-Fa-f])(?:[0-9A-Fa-f]{2}[:-]?){16,}")
_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2}|[\w.~-]){8,}")


class Redaction:
    """Takes out a set of known secrets and all that looks like one; counts what it took."""

    def __init__(self, known: Iterable[str | bytes] = ()) -> None:
        forms = {form for secret in known for form in _forms(secret)}
        # The longest first: one may be a part of another.
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None
        self.taken = 0

    def text(self, text: str) -> str:
        """A text without them; lines beyond all reason are cut."""
        text = "\n".join(
            line if len(line) <= LINE_CHARACTERS else f"{line[:LINE_CHARACTERS]} […cut]" for line in text.split("\n")
        )
        if self._known is not None:
            text = self._known.sub(self._mark, text)
        text = _PEM.sub(self._mark, text)
        text = _USER_INFO.sub(lambda _: f"{self._mark(_)}@", text)
        text = _NAMED.sub(lambda found: f"{found[1]}{self._mark(found)}", text)
        text = _BEARER.sub(self._mark, text)
        text = _TYPED.sub(self._if(_is_token), text)
        text = _HEX.sub(self._mark, text)
        return _RUN.sub(self._if(_is_random), text)

    def value(self, value: Any) -> Any:
        """A value of JSON with every text in it redacted, names of keys too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): self._named(str(key), inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(inner) for inner in value]
        return value

    def _named(self, key: str, value: Any) -> Any:
        """A text under a name that says it is secret goes whole."""
        if isinstance(value, str) and value and value != HIDDEN and _NAMED.match(f"{key}: x"):
            self.taken += 1
            return MARK
        return self.value(value)

    def _mark(self, _: re.Match[str]) -> str:
        self.taken += 1
        return MARK

    def _if(self, judge: Any) -> Any:
        return lambda found: self._mark(found) if judge(found[0]) else found[0]


def _forms(secret: str | bytes) -> set[str]:
    """The ways in which a secret may stand in a text: as it is, quoted for JSON or a URL, in base64 and in hex."""
    body = secret if isinstance(secret, bytes) else secret.encode("utf-8", "surrogateescape")
    if len(body) < SHORTEST:
        return set()
    forms = {body.hex(), body.hex().upper()}
    for shift in range(3):
        # What of it does not depend on the bytes before and after, wherever it begins.
        whole = base64.b64encode(b"\0" * shift + body).decode()
        inner = whole[(shift * 8 + 5) // 6 : (shift + len(body)) * 8 // 6]
        forms |= {inner, inner.replace("+", "-").replace("/", "_")}
    if isinstance(secret, str):
        if re.fullmatch(r"(?:[0-9A-Fa-f]{2}){8,}", secret):
            # Bytes that are written in hex here may be written otherwise there.
            forms |= _forms(bytes.fromhex(secret))
        forms |= {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
        forms |= {quote(secret, safe=""), quote(secret), quote_plus(secret), repr(secret)[1:-1]}
        lowered = re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), quote(secret, safe=""))
        forms.add(lowered)
    return {form for form in forms if len(form) >= SHORTEST}


def _is_token(text: str) -> bool:
    return sum(each.isdigit() for each in text) >= 8 and sum(each.isalpha() for each in text) >= 10


def _is_random(text: str) -> bool:
    """Whether a run of letters is no word, no path and no name of a thing: all kinds of letters in one piece."""
    piece = max(text.split("/"), key=len) if text.startswith("/") or text.count("/") > 3 else text
    kinds = (str.isupper, str.islower, str.isdigit)
    return len(piece) >= 20 and all(any(kind(each) for each in piece) for kind in kinds)
