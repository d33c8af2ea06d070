"""HTTP requests of an engine: to one address, bounded in time and answer, and with words for what went wrong."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urlsplit

from gateway.engines.carry import NotTaken, TryLater

ANSWER_BYTES: Final = 4096
AGAIN: Final = frozenset({408, 425, 429})
"""Statuses below 500 after which the same may be asked again (RFC 9110, RFC 6585, RFC 8470)."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object, **__: object) -> None:
        """An answer that points elsewhere is told as it is: what is sent is for this address alone."""


_opener = urllib.request.build_opener(_NoRedirect)


def check_url(url: str, option: str = "url") -> None:
    """Raises ``ValueError`` for what is no address of HTTP."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{option}: {url[:200]!r} is no address: http://HOST/PATH or https://HOST/PATH")
    if "@" in parts.netloc:
        # It would be taken for a part of the host, and be in the log with it.
        raise ValueError(f"{option}: no user and password in an address: headers: {{Authorization: Basic …}}")


def post(url: str, body: bytes, headers: Mapping[str, str], seconds: float, method: str = "POST") -> bytes:
    """Send it; the beginning of the answer. Raises ``TryLater`` and ``NotTaken``, with the host and never the path.

    A path may have a secret in it, as those of chat services do.
    """
    where = urlsplit(url).netloc.rpartition("@")[2]
    request = urllib.request.Request(url, body, dict(headers), method=method)  # noqa: S310 - check_url saw the scheme
    try:
        with _opener.open(request, timeout=seconds) as response:
            return _beginning(response, ANSWER_BYTES)
    except urllib.error.HTTPError as error:
        words = f"{where} answers {error.code} {_said(error)}".strip()
        raise (TryLater if error.code >= 500 or error.code in AGAIN else NotTaken)(words) from None
    except (urllib.error.URLError, HTTPException, OSError) as error:
        reason = getattr(error, "reason", error)
        words = "no answer in time" if isinstance(reason, TimeoutError | socket.timeout) else str(reason)
        raise TryLater(f"{where}: {words}") from None


def _said(error: urllib.error.HTTPError) -> str:
    with error:
        said = _beginning(error, 200).decode("utf-8", "replace")
    return "".join(c if c.isprintable() else " " for c in said)


def _beginning(answer: Any, most: int) -> bytes:
    """What comes of it at once: the status stands, also where the rest stays away or drips."""
    try:
        begun: bytes = answer.read1(most)
    except (HTTPException, OSError):
        return b""
    return begun
